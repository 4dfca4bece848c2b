//! What jobs have committed, and the samples that they read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The root of the repository.
///
/// # Panics
/// The tests are not where they were built.
#[must_use]
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the tests have a folder of their own").to_owned()
}

/// All committed parts of an output folder, by name.
///
/// # Panics
/// A part can't be read.
#[must_use]
pub fn committed_parts(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with("part-"))
        .map(|name| {
            let text = std::fs::read_to_string(folder.join(&name)).expect("a part can be read");
            (name, text)
        })
        .collect()
}

/// All committed lines, sorted.
#[must_use]
pub fn committed_lines(folder: &Path) -> Vec<String> {
    let parts = committed_parts(folder);
    let mut lines: Vec<String> =
        parts.values().flat_map(|text| text.lines().map(str::to_owned)).collect();
    lines.sort();
    lines
}

/// How many records a job has noted as read; 0 before its first note.
#[must_use]
pub fn records_noted(checkpoints: &Path) -> u64 {
    let jobs = std::fs::read_dir(checkpoints).into_iter().flatten();
    let notes =
        jobs.filter_map(|job| std::fs::read_to_string(job.ok()?.path().join("progress")).ok());
    notes.filter_map(|note| note.trim().parse::<u64>().ok()).sum()
}

/// Copies a folder and all in it.
///
/// # Panics
/// It can't be copied.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("a folder can be listed") {
        let entry = entry.expect("a folder can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
