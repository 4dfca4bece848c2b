//! A bar on standard error for work that takes its time; nothing where nobody looks at it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far some work is. The bar is gone when this is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Work on so many bytes, as far as is known.
    pub(crate) fn new(doing: &str, bytes: u64) -> Self {
        // Hidden unless standard error is a terminal.
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {elapsed}",
        );
        // The template is a constant; if it were wrong, the usual bar would do.
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(doing.to_owned());
        Self(bar)
    }

    /// So many more are done.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
