//! What the command says of checkpoints, as data: the JSON output, and the source of the tables.

use serde::Serialize;
use strandline::checkpointing::{JobMetadata, OperatorMetadata, SplitProgress};
use strandline::snapshot::{Listed, Report};

/// One line of `list`.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) job_id: String,
    pub(crate) job_name: String,
    pub(crate) checkpoint: u64,
    /// When its manifest was published.
    pub(crate) completed: String,
    pub(crate) completed_ms: u64,
    /// From trigger until all tasks had acknowledged.
    pub(crate) duration_ms: u64,
    /// Bytes that a restore reads.
    pub(crate) full_bytes: u64,
    /// Bytes that it added to storage.
    pub(crate) written_bytes: u64,
    pub(crate) records_read: u64,
    pub(crate) operators: usize,
    /// The job has ended with it.
    pub(crate) finished: bool,
    /// Why nothing else is known of it.
    pub(crate) damaged: Option<String>,
}

/// What `show` says.
#[derive(Serialize)]
pub(crate) struct Details {
    #[serde(flatten)]
    pub(crate) row: Row,
    pub(crate) token: u64,
    pub(crate) max_parallelism: u16,
    pub(crate) operators_detail: Vec<OperatorMetadata>,
    pub(crate) sections: Vec<SectionDetail>,
    pub(crate) splits: Vec<SplitProgress>,
}

/// One named piece of state.
#[derive(Serialize)]
pub(crate) struct SectionDetail {
    pub(crate) name: String,
    pub(crate) runs: usize,
    pub(crate) entries: u64,
    pub(crate) full_bytes: u64,
}

/// What `verify` says of one checkpoint.
#[derive(Serialize)]
pub(crate) struct Verified {
    pub(crate) job_id: String,
    pub(crate) checkpoint: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    pub(crate) problems: Vec<Found>,
    /// The job deleted it while it was being read: neither whole nor damaged.
    pub(crate) subsumed: bool,
}

/// One thing that is wrong.
#[derive(Serialize)]
pub(crate) struct Found {
    pub(crate) object: String,
    pub(crate) what: String,
}

impl Row {
    /// A checkpoint whose manifest can be read.
    pub(crate) fn whole(id: &str, listed: &Listed, metadata: &JobMetadata) -> Self {
        Self {
            job_id: id.to_owned(),
            job_name: metadata.job_name.clone(),
            checkpoint: listed.checkpoint,
            completed: time(listed.created_ms),
            completed_ms: listed.created_ms,
            duration_ms: metadata.duration_ms,
            full_bytes: listed.full_bytes,
            written_bytes: listed.written_bytes,
            records_read: metadata.records_read,
            operators: metadata.operators.len(),
            finished: metadata.finished,
            damaged: None,
        }
    }

    /// One that can't.
    pub(crate) fn damaged(id: &str, name: &str, checkpoint: u64, why: String) -> Self {
        Self {
            job_id: id.to_owned(),
            job_name: name.to_owned(),
            checkpoint,
            completed: String::new(),
            completed_ms: 0,
            duration_ms: 0,
            full_bytes: 0,
            written_bytes: 0,
            records_read: 0,
            operators: 0,
            finished: false,
            damaged: Some(why),
        }
    }
}

impl Verified {
    pub(crate) fn of(id: &str, checkpoint: u64, report: Report) -> Self {
        let found = report.problems.into_iter();
        let problems =
            found.map(|problem| Found { object: problem.object, what: problem.what }).collect();
        Self {
            job_id: id.to_owned(),
            checkpoint,
            chunks: report.chunks,
            bytes: report.bytes,
            problems,
            subsumed: false,
        }
    }
}

impl Verified {
    /// Not even its manifest can be read.
    pub(crate) fn unreadable(id: &str, checkpoint: u64, why: String) -> Self {
        let object = format!("checkpoint {checkpoint}");
        Self {
            job_id: id.to_owned(),
            checkpoint,
            chunks: 0,
            bytes: 0,
            problems: vec![Found { object, what: why }],
            subsumed: false,
        }
    }
}

/// ISO 8601, UTC, to the second.
fn time(unix_ms: u64) -> String {
    let second = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(second).map_or_else(|_| "?".to_owned(), |time| time.to_string())
}
