//! A job goes on from a savepoint that has been moved, with nothing left of where it came from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strandline_tests::{Ended, Program, build, committed_lines, records_noted, wait_until};

struct Scene {
    job: Program,
    command: Program,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self {
            job: build("strandline", "--example", "wordcount"),
            command: build("strandline-cli", "--bin", "strandline"),
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn arguments(&self, checkpoints: &str, more: &[&str]) -> Vec<String> {
        let (output, checkpoints) = (self.path("output"), self.path(checkpoints));
        let own = ["--output", &output, "--checkpoints", &checkpoints];
        let often = ["--interval", "100ms"];
        let often = often.iter().filter(|_| !more.contains(&"--interval"));
        own.iter().chain(often).chain(more).map(ToString::to_string).collect()
    }

    /// Runs the job slowly until it has read some lines.
    fn run_for_a_while(&self, checkpoints: &str, more: &[&str], signal: &str) -> Ended {
        let root = self.folder.path().join(checkpoints);
        let before = records_noted(&root);
        let slowly = [&["--rate", "1500"], more].concat();
        let run = self.job.start(&self.arguments(checkpoints, &slowly));
        wait_until("some lines have been read", Duration::from_secs(30), || {
            records_noted(&root) >= before + 400
        });
        run.signal(signal);
        run.wait()
    }

    /// Runs the job slowly until it has two checkpoints, and kills it.
    fn run_until_a_checkpoint(&self, checkpoints: &str, more: &[&str]) -> Ended {
        let slowly = [&["--rate", "1500"], more].concat();
        let run = self.job.start(&self.arguments(checkpoints, &slowly));
        let root = self.folder.path().join(checkpoints);
        wait_until("there are two checkpoints", Duration::from_secs(30), || {
            let folders = fs::read_dir(only_entry(&root)).expect("it is there").flatten();
            folders.filter(|of| of.file_name().to_string_lossy().starts_with("chk-")).count() >= 2
        });
        run.signal("KILL");
        run.wait()
    }

    /// Makes a savepoint of the job's newest checkpoint, and moves it.
    fn moved_savepoint(&self) -> String {
        let (from, to) = (self.path("checkpoints"), self.path("savepoints"));
        let made = self.command.run(&["savepoint", "create", &from, "--target", &to]);
        made.expect_code(0);
        let folder = only_entry(Path::new(&to));
        let moved = self.path("a place of its own");
        fs::rename(folder, &moved).expect("it can be moved");
        fs::remove_dir_all(from).expect("the checkpoints can be removed");
        moved
    }
}

fn only_entry(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it can be listed").path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.remove(0)
}

#[test]
fn a_job_goes_on_from_a_savepoint_that_was_moved() {
    let whole = Scene::new();
    whole.job.run(&whole.arguments("checkpoints", &[])).expect_code(0);
    let expected = committed_lines(Path::new(&whole.path("output")));

    let scene = Scene::new();
    scene.run_for_a_while("checkpoints", &[], "TERM").expect_code(143);
    let savepoint = scene.moved_savepoint();
    let from = ["--savepoint", savepoint.as_str()];
    // Killed before it has a checkpoint of its own: there is still nothing but the savepoint.
    let early = [&from[..], &["--interval", "1h"]].concat();
    let killed = scene.run_for_a_while("elsewhere", &early, "KILL");
    assert!(killed.stderr.contains("goes on from checkpoint"), "{}", killed.stderr);
    let refused = scene.job.run(&scene.arguments("elsewhere", &[]));
    refused.expect_code(2);
    assert!(refused.stderr.contains("name the savepoint again"), "{}", refused.stderr);
    let killed = scene.run_until_a_checkpoint("elsewhere", &from);
    assert!(killed.stderr.contains("goes on from checkpoint"), "{}", killed.stderr);
    assert!(!killed.stderr.contains("was taken up before"), "{}", killed.stderr);
    // The same command once more: not back to the savepoint.
    let ended = scene.job.run(&scene.arguments("elsewhere", &from));
    ended.expect_code(0);
    assert!(ended.stderr.contains("was taken up before"), "{}", ended.stderr);
    assert_eq!(committed_lines(Path::new(&scene.path("output"))), expected);
}

#[test]
fn what_is_no_whole_savepoint_is_refused_before_anything_starts() {
    let scene = Scene::new();
    scene.run_for_a_while("checkpoints", &[], "TERM").expect_code(143);
    let job = only_entry(Path::new(&scene.path("checkpoints")));
    let checkpoint = fs::read_dir(&job)
        .expect("it is there")
        .map(|entry| entry.expect("it can be listed").path())
        .find(|path| path.to_string_lossy().contains("chk-"))
        .expect("it has one");
    let check = |uri: &Path, names: &[&str]| {
        let uri = uri.display().to_string();
        let ended = scene.job.run(&scene.arguments("new", &["--savepoint", &uri]));
        ended.expect_code(2);
        for name in names.iter().chain([&uri.as_str()]) {
            assert!(ended.stderr.contains(name), "{name:?} is not named in: {}", ended.stderr);
        }
        assert!(!scene.folder.path().join("new").exists(), "nothing was started");
    };
    check(&job, &["the folder of a job", "strandline savepoint create"]);
    check(&checkpoint, &["a checkpoint of a job", "strandline savepoint create"]);
    check(&scene.folder.path().join("nowhere"), &["_metadata is missing"]);
    let savepoint = PathBuf::from(scene.moved_savepoint());
    fs::remove_file(savepoint.join("state.pack")).expect("it is there");
    check(&savepoint, &["is not whole", "state.pack"]);
}
