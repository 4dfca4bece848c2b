//! Creates whose outcome is not known: what to believe, and when to try again.
//!
//! A service may do a write and lose the reply; a retry within a client library then reports that
//! the path is taken, by its own bytes. S3 may answer 409 to a conditional put though nothing is
//! there. So no failure is believed: the path is read, and what is found there decides. A write that
//! is still on its way when the path is found empty may yet arrive; being conditional, it then makes
//! the next attempt find the path taken by the right bytes.

use std::time::Duration;

use bytes::Bytes;
use strandline_snapshot::{Error, ErrorKind, Result};

use crate::blocking::within;
use crate::options::Options;

/// What was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) bytes: u64,
    pub(crate) hash: blake3::Hash,
}

impl Expected {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, hash: blake3::hash(bytes) }
    }
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// The expected bytes.
    Ours,
    /// Others.
    Other,
}

/// Storage whose replies may be lost.
pub(crate) trait Remote: Sync {
    /// An object as a user would look for it.
    fn name(&self, path: &str) -> String;

    /// One attempt at a new object.
    fn try_create(&self, path: &str, bytes: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// What is there.
    fn look(&self, path: &str, expected: Expected) -> impl Future<Output = Result<Found>> + Send;
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Makes a new object, or says that its path is taken by others, or what went wrong.
pub(crate) async fn create<R: Remote>(
    remote: &R,
    path: &str,
    bytes: Bytes,
    options: Options,
) -> Result<()> {
    let name = remote.name(path);
    let attempts = attempts(remote, path, &bytes, options);
    match tokio::time::timeout(options.total_timeout, attempts).await {
        Ok(ended) => ended,
        Err(_) => {
            let failure = crate::blocking::late(options.total_timeout, &name);
            settle(remote, path, Expected::of(&bytes), failure, options).await
        }
    }
}

async fn attempts<R: Remote>(
    remote: &R,
    path: &str,
    bytes: &Bytes,
    options: Options,
) -> Result<()> {
    let mut pause = PAUSE_FIRST;
    let mut left = options.attempts;
    loop {
        let Err(failure) = remote.try_create(path, bytes.clone()).await else { return Ok(()) };
        left -= 1;
        let again = left > 0 && may_pass(&failure);
        let settled = settle(remote, path, Expected::of(bytes), failure, options).await;
        match settled {
            Err(error) if error.kind() == ErrorKind::Io && again => {}
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether another attempt may succeed. That a path is taken where nothing is found passes too.
fn may_pass(failure: &Error) -> bool {
    matches!(failure.kind(), ErrorKind::Io | ErrorKind::AlreadyExists)
}

/// What a write has led to that failed like this.
pub(crate) async fn settle<R: Remote>(
    remote: &R,
    path: &str,
    expected: Expected,
    failure: Error,
    options: Options,
) -> Result<()> {
    let name = remote.name(path);
    let looking = remote.look(path, expected);
    match within(options.total_timeout, &name, looking).await {
        Ok(Found::Ours) => Ok(()),
        Ok(Found::Other) => Err(taken(&name).because(failure)),
        Ok(Found::Nothing) if failure.kind() == ErrorKind::AlreadyExists => {
            let text = format!("{name}: another write is in the way, and nothing is there yet");
            Err(Error::new(ErrorKind::Io, text).because(failure))
        }
        Ok(Found::Nothing) => Err(failure),
        Err(error) => {
            let text = format!(
                "{name}: whether it was written is not known: {failure}; and it can't be read back"
            );
            Err(Error::new(ErrorKind::Io, text).because(error))
        }
    }
}

pub(crate) fn taken(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("{name} exists already"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::blocking::wait;

    /// Replies of a service, one letter for each, and then `-`:
    /// writes: `.` fine, `!` an error, `4` the path is taken, `d` denied, `~` no reply;
    /// looks: `o` ours, `x` other, `0` nothing, `?` an error.
    struct Script {
        writes: Mutex<Vec<char>>,
        looks: Mutex<Vec<char>>,
    }

    fn next(replies: &Mutex<Vec<char>>) -> char {
        let mut replies = replies.lock().expect("no test has panicked");
        if replies.is_empty() { '-' } else { replies.remove(0) }
    }

    impl Remote for Script {
        fn name(&self, path: &str) -> String {
            format!("s3://b/{path}")
        }

        async fn try_create(&self, path: &str, _: Bytes) -> Result<()> {
            let name = self.name(path);
            match next(&self.writes) {
                '.' => Ok(()),
                '!' => Err(Error::new(ErrorKind::Io, format!("{name}: no luck"))),
                '4' => Err(taken(&name)),
                'd' => Err(Error::new(ErrorKind::Invalid, format!("{name}: denied"))),
                '~' => std::future::pending().await,
                other => panic!("no write was expected: {other}"),
            }
        }

        async fn look(&self, _: &str, _: Expected) -> Result<Found> {
            match next(&self.looks) {
                'o' => Ok(Found::Ours),
                'x' => Ok(Found::Other),
                '0' => Ok(Found::Nothing),
                '?' => Err(Error::new(ErrorKind::Io, "no luck either")),
                other => panic!("no look was expected: {other}"),
            }
        }
    }

    fn run(writes: &str, looks: &str) -> Result<()> {
        let script = |replies: &str| Mutex::new(replies.chars().collect());
        let script = Script { writes: script(writes), looks: script(looks) };
        let options = Options {
            attempts: 3,
            request_timeout: Duration::from_millis(500),
            total_timeout: Duration::from_millis(500),
            ..Options::default()
        };
        wait(async move {
            let ended = create(&script, "a", Bytes::from_static(b"x"), options).await;
            assert_eq!((next(&script.writes), next(&script.looks)), ('-', '-'), "all was used");
            ended
        })
    }

    #[track_caller]
    fn check(writes: &str, looks: &str, expected: &str) {
        let ended = run(writes, looks).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert!(ended.starts_with(expected), "{ended}");
    }

    #[test]
    fn a_reply_is_believed_when_it_is_good() {
        check(".", "", "ok");
    }

    #[test]
    fn a_lost_reply_is_found_out() {
        check("!", "o", "ok");
        check("4", "o", "ok");
        check("~", "o", "ok");
    }

    #[test]
    fn a_taken_path_is_taken() {
        check("4", "x", "s3://b/a exists already");
        check("!", "x", "s3://b/a exists already");
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        check("!.", "0", "ok");
        check("4.", "0", "ok");
        check("!4", "0o", "ok");
        check("!!!", "000", "s3://b/a: no luck");
        check("444", "000", "s3://b/a: another write is in the way");
        check("d", "0", "s3://b/a: denied");
    }

    #[test]
    fn an_outcome_that_stays_unknown_is_called_that() {
        check("!!!", "???", "s3://b/a: whether it was written is not known: s3://b/a: no luck");
        check("!!", "?o", "ok");
    }
}
