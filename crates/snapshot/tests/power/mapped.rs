//! Files that somebody cuts short in use: an error where they are read, a signal where they are
//! mapped. The decision record on mapped files says why.

use std::path::Path;

use strandline_snapshot::{ErrorKind, LocalStore, Store};

const OBJECT: &str = "job/object";

fn store_with_object(folder: &Path) -> LocalStore {
    let store = LocalStore::new(folder);
    store.create(OBJECT, &[7; 100_000]).expect("it can be made");
    store
}

/// What nobody must do.
fn cut_short(store: &LocalStore) {
    let path = store.describe(OBJECT);
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("it can be opened");
    file.set_len(0).expect("it can be cut");
}

#[test]
fn a_file_cut_short_is_named_by_a_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = store_with_object(folder.path());
    assert_eq!(store.read(OBJECT, 50_000, 2).expect("it is whole"), [7, 7]);
    cut_short(&store);
    let error = store.read(OBJECT, 50_000, 2).expect_err("it is cut");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(OBJECT), "{error}");
    assert!(store.map(OBJECT).expect("it is there").is_none(), "nothing is left to be mapped");
}

#[cfg(target_os = "linux")]
mod signal {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// The number of SIGBUS on Linux, but for MIPS and SPARC.
    const SIGBUS: i32 = 7;

    const VICTIM: &str = "STRANDLINE_MAPPED_VICTIM";

    /// In a process of its own, named by the variable, it maps a file, cuts it short and touches
    /// it. As a test it starts that process, and sees how it ends.
    #[test]
    fn a_file_cut_short_ends_a_process_that_has_it_mapped() {
        if let Some(folder) = std::env::var_os(VICTIM) {
            die_by_touching(Path::new(&folder));
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let this = std::env::current_exe().expect("a test has a path");
        let name = "mapped::signal::a_file_cut_short_ends_a_process_that_has_it_mapped";
        let mut victim = Command::new(this);
        victim.args(["--exact", name, "--nocapture"]).env(VICTIM, folder.path());
        let ended = victim.output().expect("it can be started");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(ended.status.signal(), Some(SIGBUS), "{said}");
        assert!(said.contains("whole: Some(7)"), "it lived until the cut: {said}");
        assert!(!said.contains("cut: "), "it did not live on: {said}");
    }

    #[expect(clippy::print_stdout, reason = "what it has come to is read by its parent")]
    fn die_by_touching(folder: &Path) -> ! {
        let store = store_with_object(folder);
        let map = store.map(OBJECT).expect("it can be mapped").expect("a folder has maps");
        println!("whole: {:?}", map.get(50_000));
        cut_short(&store);
        println!("cut: {:?}", map.get(50_000));
        std::process::exit(0)
    }
}
