//! From blocking calls to async ones: one small runtime for the process.
//!
//! Work is handed to the runtime and its outcome awaited on a channel, so that a call from inside
//! somebody else's runtime blocks that thread and does not panic.

use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use strandline_snapshot::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Requests wait for the network, not for a processor.
const THREADS: usize = 2;

/// Where the work goes. It lives as long as the process.
pub(crate) fn handle() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let build = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("strandline-store").enable_all().build()
    };
    match RUNTIME.get_or_init(build) {
        Ok(runtime) => Ok(runtime.handle()),
        Err(error) => {
            let text = format!("the threads for remote storage can't be started: {error}");
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

/// Runs it to its end.
pub(crate) fn wait<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (tell, told) = mpsc::sync_channel(1);
    handle()?.spawn(async move {
        // Nobody listens any more if the caller's thread is gone.
        drop(tell.send(work.await));
    });
    told.recv().map_err(|_| Error::new(ErrorKind::Io, "a task of remote storage has panicked"))?
}

/// Starts it, and goes on.
pub(crate) fn start<T, F>(work: F) -> Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    Ok(handle()?.spawn(work))
}

/// Ends it with an error when its time is over.
pub(crate) async fn within<T>(
    limit: Duration,
    name: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late(limit, name)))
}

/// A request that was not answered in time.
pub(crate) fn late(limit: Duration, name: &str) -> Error {
    let text = format!("{name}: no answer in time limit_ms={}", limit.as_millis());
    Error::new(ErrorKind::Io, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let ended: Result<()> = wait(async { panic!("planted") });
        assert_eq!(ended.expect_err("it has panicked").kind(), ErrorKind::Io);
    }

    #[test]
    fn it_can_be_called_from_a_runtime() {
        let outer = Builder::new_current_thread().build().expect("a runtime");
        let answer = outer.block_on(async { wait(async { Ok(42) }) });
        assert_eq!(answer.ok(), Some(42));
    }

    #[test]
    fn time_is_limited() {
        let limit = Duration::from_millis(1);
        let ended = wait(async move {
            within(limit, "s3://b/a", std::future::pending::<Result<()>>()).await
        });
        let error = ended.expect_err("nothing answers");
        assert!(error.to_string().starts_with("s3://b/a: no answer in time"), "{error}");
    }
}
