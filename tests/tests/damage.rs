//! Damaged checkpoints: `strandline checkpoints verify` names the file, a restore refuses it and
//! says which older checkpoint is whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strandline_tests::{Program, build, copy_folder, records_noted, wait_until};

/// A suspended word count with several checkpoints.
struct Suspended {
    words: Program,
    command: Program,
    folder: tempfile::TempDir,
}

impl Suspended {
    fn new() -> Self {
        let words = build("strandline", "--example", "wordcount");
        let command = build("strandline-cli", "--bin", "strandline");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let suspended = Self { words, command, folder };
        let slow = ["--rate", "1500", "--interval", "100ms"];
        let run = suspended.words.start(&suspended.arguments("whole", &slow));
        let checkpoints = suspended.checkpoints("whole");
        wait_until("a third of the input has been read", Duration::from_secs(30), || {
            records_noted(&checkpoints) > 1500
        });
        run.signal("TERM");
        run.wait().expect_code(143);
        suspended
    }

    fn checkpoints(&self, case: &str) -> PathBuf {
        self.folder.path().join(case).join("checkpoints")
    }

    fn arguments(&self, case: &str, more: &[&str]) -> Vec<String> {
        let output = self.folder.path().join(case).join("output").display().to_string();
        let checkpoints = self.checkpoints(case).display().to_string();
        let own = ["--output", &output, "--checkpoints", &checkpoints];
        own.iter().chain(more).map(ToString::to_string).collect()
    }

    /// A copy of everything, to be damaged.
    fn copy(&self, case: &str) {
        copy_folder(&self.folder.path().join("whole"), &self.folder.path().join(case));
    }

    fn verify(&self, case: &str) -> strandline_tests::Ended {
        let uri = self.checkpoints(case).display().to_string();
        self.command.run(&["checkpoints", "verify", &uri])
    }

    /// Checkpoint numbers of a copy, ascending.
    fn numbers(&self, case: &str) -> Vec<u64> {
        let job = job_folder(&self.checkpoints(case));
        let entries = std::fs::read_dir(job).expect("a job's folder can be listed");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}

fn job_folder(checkpoints: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(checkpoints).expect("a root can be listed");
    let entry = entries.next().expect("a root has a job").expect("a root can be listed");
    entry.path()
}

/// A pack that the newest checkpoint has written, and no older one can name.
fn newest_pack(checkpoints: &Path, newest: u64) -> PathBuf {
    let shared = job_folder(checkpoints).join("shared");
    let entries = std::fs::read_dir(shared).expect("packs can be listed");
    let mut packs: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    packs.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{newest:020}"))
    });
    packs.sort_by_key(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
    packs.pop().expect("the newest checkpoint has written a pack")
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).expect("a file can be read");
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).expect("the file has bytes") ^= 0x10;
    std::fs::write(path, bytes).expect("a file can be written");
}

fn truncate(path: &Path, keep: impl Fn(u64) -> u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("a file can be opened");
    let len = file.metadata().expect("a file has a length").len();
    file.set_len(keep(len)).expect("a file can be cut");
}

/// Does something to a file.
type Damage = fn(&Path);

#[test]
fn each_damage_is_found_and_refused() {
    let suspended = Suspended::new();
    suspended.verify("whole").expect_code(0);
    let numbers = suspended.numbers("whole");
    let [.., older, newest] = numbers[..] else {
        panic!("at least two checkpoints are retained: {numbers:?}");
    };
    let damages: [(&str, Damage); 4] = [
        ("flipped", flip),
        ("truncated", |path| truncate(path, |len| len / 2)),
        ("empty", |path| truncate(path, |_| 0)),
        ("missing", |path| std::fs::remove_file(path).expect("a file can be removed")),
    ];
    for (name, damage) in damages {
        suspended.copy(name);
        let pack = newest_pack(&suspended.checkpoints(name), newest);
        damage(&pack);
        check(&suspended, name, &pack, newest, older);
        if name == "missing" {
            // A checkpoint without its manifest does not exist.
            continue;
        }
        let case = format!("{name}-manifest");
        suspended.copy(&case);
        let folder = job_folder(&suspended.checkpoints(&case)).join(format!("chk-{newest}"));
        let manifest = folder.join("_metadata");
        damage(&manifest);
        check(&suspended, &case, &manifest, newest, older);
    }
}

#[test]
fn going_back_by_hand_is_exact() {
    let suspended = Suspended::new();
    let numbers = suspended.numbers("whole");
    let newest = numbers.last().expect("there are checkpoints");
    suspended.copy("back");
    let folder = job_folder(&suspended.checkpoints("back"));
    let chk = folder.join(format!("chk-{newest}"));
    let aside = suspended.folder.path().join("aside");
    std::fs::rename(&chk, &aside).expect("a folder can be moved");
    let refused = suspended.words.run(&suspended.arguments("back", &[]));
    refused.expect_code(2);
    assert!(refused.stderr.contains("--withdraw-later"), "{}", refused.stderr);
    // The refusal has changed nothing: put back, the checkpoint counts as before.
    std::fs::rename(&aside, &chk).expect("a folder can be moved");
    suspended.copy("forth");
    copy_folder(&suspended.folder.path().join("back"), &suspended.folder.path().join("forth"));
    let forth = suspended.words.run(&suspended.arguments("forth", &[]));
    forth.expect_code(0);
    assert!(forth.stderr.contains(&format!("from checkpoint {newest} ")), "{}", forth.stderr);
    std::fs::remove_dir_all(&chk).expect("a folder can be removed");
    suspended.words.run(&suspended.arguments("back", &["--withdraw-later"])).expect_code(0);
    for case in ["back", "forth"] {
        let output = suspended.folder.path().join(case).join("output");
        let lines = strandline_tests::committed_lines(&output);
        let different: std::collections::BTreeSet<&String> = lines.iter().collect();
        assert_eq!((lines.len(), different.len()), (37_078, 37_078), "{case}");
    }
}

/// Verify ends with 1 and names the file; a restore ends with 1, names it, and names the older
/// checkpoint that is whole.
fn check(suspended: &Suspended, case: &str, damaged: &Path, newest: u64, older: u64) {
    let name = damaged.display().to_string();
    let verified = suspended.verify(case);
    verified.expect_code(1);
    let said = format!("{}{}", verified.stdout, verified.stderr);
    assert!(said.contains(&name), "{case}: verify must name {name}: {said}");
    let restored = suspended.words.run(&suspended.arguments(case, &[]));
    restored.expect_code(1);
    assert!(
        restored.stderr.contains(&name),
        "{case}: restore must name {name}: {}",
        restored.stderr
    );
    let whole = format!("the newest older checkpoint that is whole is {older}");
    assert!(restored.stderr.contains(&whole), "{case}: {whole:?} is not in: {}", restored.stderr);
    assert!(restored.stderr.contains(&format!("checkpoint {newest}")), "{}", restored.stderr);
    for said in [&said, &restored.stderr] {
        assert!(!said.contains("panicked"), "{case}: {said}");
    }
}

#[test]
fn verify_beside_a_running_job_finds_nothing_wrong() {
    let words = build("strandline", "--example", "wordcount");
    let command = build("strandline-cli", "--bin", "strandline");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let arguments = [
        "--output",
        &path("output"),
        "--checkpoints",
        &path("checkpoints"),
        "--rate",
        "1500",
        "--interval",
        "50ms",
        "--num-retained",
        "1",
    ];
    let mut run = words.start(&arguments);
    wait_until("the job has begun", Duration::from_secs(30), || {
        records_noted(Path::new(&path("checkpoints"))) > 0
    });
    let mut verified = 0;
    while run.is_running() && verified < 30 {
        command.run(&["checkpoints", "verify", &path("checkpoints")]).expect_code(0);
        verified += 1;
    }
    assert!(verified >= 3, "the job must run beside the command: {verified}");
    run.wait().expect_code(0);
}
