//! Ctrl-C and SIGTERM: work that may take its time breaks off, and lets go of its pin; unfinished
//! files are removed. A second signal ends the process at once: then the pin expires by itself.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Result};

/// The exit code of a process that was interrupted.
const CODE: u8 = 130;

/// Set by the first signal.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Takes note of signals from here on.
pub(crate) fn watch() {
    let interrupted = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset. Where signals can't be had, they end
        // the process as ever.
        let second =
            flag::register_conditional_shutdown(signal, i32::from(CODE), Arc::clone(interrupted));
        drop(second.and_then(|_| flag::register(signal, Arc::clone(interrupted))));
    }
}

/// For work that asks whether it may go on.
pub(crate) fn go_on() -> ControlFlow<()> {
    // Relaxed: nothing else is read because of it.
    let set = INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    if set { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// For work that has ended: whether it was broken off.
pub(crate) fn check() -> Result<()> {
    if go_on().is_continue() {
        return Ok(());
    }
    Err(Failure { text: "interrupted".to_owned(), code: CODE, subsumed: false })
}
