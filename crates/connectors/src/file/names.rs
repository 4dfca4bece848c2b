//! The names of output files, made and read in one place.
//!
//! ```text
//! .open-<job>-<token>-<subtask>-<number>              being written
//! .staged-<checkpoint>-<subtask>-<token>-<job>        closed, waits for its checkpoint
//! part-<checkpoint>-<subtask>-<token>-<job>           committed
//! .probe-<process>                                    made and removed at a start
//! ```
//!
//! The checkpoint has 10 digits and the subtask 5, so that names sort; the job 32 hex digits.

use strandline_runtime::sink::SinkOwner;

/// What every committed file's name begins with.
pub(crate) const COMMITTED: &str = "part-";

const STAGED: &str = ".staged-";

const OPEN: &str = ".open-";

/// A committed or staged file's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) checkpoint: u64,
    pub(crate) subtask: u32,
    pub(crate) token: u64,
    pub(crate) job: String,
}

impl Part {
    pub(crate) fn committed(&self) -> String {
        format!("{COMMITTED}{}", self.rest())
    }

    pub(crate) fn staged(&self) -> String {
        format!("{STAGED}{}", self.rest())
    }

    fn rest(&self) -> String {
        let Self { checkpoint, subtask, token, job } = self;
        format!("{checkpoint:010}-{subtask:05}-{token}-{job}")
    }

    /// The part of a committed file's name; `None` for names that are not ours.
    pub(crate) fn of_committed(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix(COMMITTED)?).filter(|part| part.committed() == name)
    }

    /// The part of a staged file's name.
    pub(crate) fn of_staged(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix(STAGED)?).filter(|part| part.staged() == name)
    }

    fn parse(rest: &str) -> Option<Self> {
        let fields: Vec<&str> = rest.split('-').collect();
        let [checkpoint, subtask, token, job] = fields[..] else { return None };
        if !is_job(job) {
            return None;
        }
        Some(Self {
            checkpoint: checkpoint.parse().ok()?,
            subtask: subtask.parse().ok()?,
            token: token.parse().ok()?,
            job: job.to_owned(),
        })
    }
}

/// The name of a file that is being written.
pub(crate) fn open(owner: &SinkOwner, subtask: u32, number: u64) -> String {
    format!("{OPEN}{}-{}-{subtask}-{number}", owner.job, owner.token)
}

/// The name of a file that is made and removed to see whether that can be done.
pub(crate) fn probe() -> String {
    format!(".probe-{}", std::process::id())
}

/// Whether a file is unfinished work of this job.
pub(crate) fn is_unfinished(name: &str, job: &str) -> bool {
    let open = name.strip_prefix(OPEN).and_then(job_of_open);
    let staged = Part::of_staged(name);
    open.is_some_and(|of| of == job) || staged.is_some_and(|part| part.job == job)
}

fn is_job(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn job_of_open(rest: &str) -> Option<&str> {
    let fields: Vec<&str> = rest.split('-').collect();
    let [job, token, subtask, number] = fields[..] else { return None };
    let is_number = |text: &str| text.parse::<u64>().is_ok_and(|parsed| parsed.to_string() == text);
    ([token, subtask, number].into_iter().all(is_number) && is_job(job)).then_some(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_strangers_are_left_alone() {
        let job = "0123456789abcdef0123456789abcdef".to_owned();
        let part = Part { checkpoint: 7, subtask: 1, token: 3, job: job.clone() };
        assert_eq!(Part::of_committed(&part.committed()), Some(part.clone()));
        assert_eq!(Part::of_staged(&part.staged()), Some(part.clone()));
        assert!(is_unfinished(&part.staged(), &job) && !is_unfinished(&part.committed(), &job));
        let owner = SinkOwner { job: job.clone(), token: 3 };
        assert!(is_unfinished(&open(&owner, 0, 0), &job));
        assert!(!is_unfinished(&open(&owner, 0, 0), "another"));
        for stranger in
            ["part-1", "part-7-1-3-x", ".staged-", "part-0000000007-00001-3-x-y", "notes"]
        {
            assert_eq!(Part::of_committed(stranger), None, "{stranger}");
            assert!(!is_unfinished(stranger, &job), "{stranger}");
        }
    }
}
