//! What the command says of checkpoints, as data: the JSON output, and the source of the tables.

use serde::Serialize;
use strandline::checkpointing::{JobMetadata, OperatorMetadata, SplitProgress};
use strandline::snapshot::{Listed, Manifest, Report, Saved, SectionDiff, Tally, Usage};

use crate::reading::Reading;

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
    /// `None` where it is damaged.
    #[serde(flatten)]
    pub(crate) space: Option<Space>,
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

/// What a checkpoint holds in storage.
#[derive(Serialize)]
pub(crate) struct Space {
    /// Bytes that no other completed checkpoint of the job names.
    pub(crate) exclusive_bytes: u64,
    pub(crate) shared_bytes: u64,
    /// Of its chunks, before compression.
    pub(crate) plain_bytes: u64,
    /// Of its chunks, as stored.
    pub(crate) chunk_bytes: u64,
    /// Plain by stored; nothing where there are no chunks.
    pub(crate) compression_ratio: Option<f64>,
    pub(crate) runs: u64,
    pub(crate) chunks: u64,
    pub(crate) packs: u64,
}

/// One line of `du`.
#[derive(Serialize)]
pub(crate) struct UsageRow {
    pub(crate) job_id: String,
    pub(crate) checkpoint: u64,
    pub(crate) full_bytes: u64,
    pub(crate) written_bytes: u64,
    #[serde(flatten)]
    pub(crate) space: Space,
    /// Why nothing is known of it.
    pub(crate) damaged: Option<String>,
}

/// One entry, a line each with `show --entries`.
#[derive(Serialize)]
pub(crate) struct EntryLine<'a> {
    pub(crate) section: &'a str,
    /// Lower-case hex.
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// One entry that differs, a line each with `diff --entries`.
#[derive(Serialize)]
pub(crate) struct DifferenceLine<'a> {
    pub(crate) difference: &'a str,
    pub(crate) section: &'a str,
    /// Lower-case hex.
    pub(crate) key: &'a str,
}

/// How a section differs.
#[derive(Serialize)]
pub(crate) struct SectionDiffRow {
    pub(crate) section: String,
    pub(crate) added: TallyCell,
    pub(crate) removed: TallyCell,
    pub(crate) changed: TallyCell,
    pub(crate) unchanged: TallyCell,
}

/// Some entries.
#[derive(Serialize)]
pub(crate) struct TallyCell {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// A savepoint or an export that has been made.
#[derive(Serialize)]
pub(crate) struct Made {
    /// Its folder, or its file.
    pub(crate) place: String,
    pub(crate) job_id: String,
    pub(crate) checkpoint: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// What `gc` has deleted of a job, or would delete.
#[derive(Serialize)]
pub(crate) struct Collected {
    pub(crate) job_id: String,
    pub(crate) dry_run: bool,
    pub(crate) bytes: u64,
    pub(crate) manifests: Vec<ObjectLine>,
    pub(crate) packs: Vec<ObjectLine>,
    /// The checkpoint that can't be read, while no pack is deleted.
    pub(crate) unreadable: Option<String>,
}

/// An object of the store.
#[derive(Serialize)]
pub(crate) struct ObjectLine {
    pub(crate) path: String,
    pub(crate) bytes: u64,
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

    /// Newer ones have taken its place before it was read to its end.
    pub(crate) fn subsumed(id: &str, checkpoint: u64) -> Self {
        let mut verified = Self::of(id, checkpoint, Report::default());
        verified.subsumed = true;
        verified
    }

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

impl Space {
    pub(crate) fn of(usage: &Usage) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let ratio = |plain: u64, stored: u64| plain as f64 / stored as f64;
        let stored = (usage.chunk_bytes > 0).then_some(usage.chunk_bytes);
        Self {
            exclusive_bytes: usage.exclusive_bytes,
            shared_bytes: usage.shared_bytes,
            plain_bytes: usage.plain_bytes,
            chunk_bytes: usage.chunk_bytes,
            compression_ratio: stored.map(|stored| ratio(usage.plain_bytes, stored)),
            runs: usage.runs,
            chunks: usage.chunks,
            packs: usage.packs,
        }
    }
}

impl UsageRow {
    pub(crate) fn new(id: &str, usage: &Usage) -> Self {
        Self {
            job_id: id.to_owned(),
            checkpoint: usage.checkpoint,
            full_bytes: usage.full_bytes,
            written_bytes: usage.written_bytes,
            space: Space::of(usage),
            damaged: usage.damaged.clone(),
        }
    }
}

impl SectionDiffRow {
    pub(crate) fn of(diff: &SectionDiff) -> Self {
        let cell = |of: Tally| TallyCell { entries: of.entries, bytes: of.bytes };
        Self {
            section: diff.section.clone(),
            added: cell(diff.added),
            removed: cell(diff.removed),
            changed: cell(diff.changed),
            unchanged: cell(diff.unchanged),
        }
    }
}

impl Made {
    pub(crate) fn new(reading: &Reading, place: String, saved: &Saved) -> Self {
        let manifest = reading.snapshot.manifest();
        Self {
            place,
            job_id: manifest.job_id.to_string(),
            checkpoint: manifest.checkpoint,
            entries: saved.entries,
            bytes: saved.written_bytes,
        }
    }
}

/// What a list says of a checkpoint that has been opened.
pub(crate) fn listed(manifest: &Manifest) -> Listed {
    Listed {
        checkpoint: manifest.checkpoint,
        token: manifest.token,
        created_ms: manifest.created_ms,
        full_bytes: manifest.full_bytes,
        written_bytes: manifest.written_bytes,
        damaged: None,
    }
}

/// ISO 8601, UTC, to the second.
fn time(unix_ms: u64) -> String {
    let second = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(second).map_or_else(|_| "?".to_owned(), |time| time.to_string())
}
