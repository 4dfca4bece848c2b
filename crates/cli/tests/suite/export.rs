//! Savepoints and tar files: what comes back is what was there; what is hostile is refused.

use std::fs::File;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::fixture::{Root, files, run};

/// An export of the newest checkpoint.
fn exported(root: &Root) -> String {
    let output = root.path("export.tar").display().to_string();
    run(&["checkpoints", "export", &root.uri(), "--output", &output]).expect(0);
    output
}

fn import(file: &str, target: &Path) -> crate::fixture::Ended {
    run(&["checkpoints", "import", file, "--target", &target.display().to_string(), "--json"])
}

#[test]
fn an_export_comes_back_as_a_savepoint() {
    let root = Root::with_checkpoints(3);
    let file = exported(&root);
    let made = import(&file, &root.path("elsewhere")).expect(0).json();
    let folder = made["place"].as_str().expect("it says where it is").to_owned();
    assert_eq!((&made["checkpoint"], &made["entries"]), (&3.into(), &4.into()));
    run(&["checkpoints", "verify", &folder]).expect(0);
    let same = run(&["checkpoints", "diff", &root.uri(), "3", &folder, "--entries"]).expect(0);
    assert_eq!(same.out, "");
    // A savepoint can be exported too, and a checkpoint by its number.
    let output = root.path("again.tar").display().to_string();
    run(&["checkpoints", "export", &folder, "--output", &output]).expect(0);
    let output = root.path("first.tar").display().to_string();
    let first = ["checkpoints", "export", &root.uri(), "--checkpoint", "1", "--output", &output];
    assert_eq!(run(&[&first[..], &["--json"]].concat()).expect(0).json()["checkpoint"], 1);
}

#[test]
fn entries_of_a_tar_are_those_of_a_savepoints_folder() {
    let root = Root::with_checkpoints(2);
    let file = File::open(exported(&root)).expect("it has been made");
    let mut names = Vec::new();
    for entry in tar::Archive::new(file).entries().expect("it is a tar") {
        let entry = entry.expect("a header");
        names.push(entry.path().expect("a name").display().to_string());
    }
    let folder = names[0].split('/').next().expect("a folder").to_owned();
    assert!(folder.starts_with("savepoint-"), "{folder}");
    assert_eq!(names, [format!("{folder}/state.pack"), format!("{folder}/_metadata")]);
    let left = files(root.folder.path());
    assert!(!left.iter().any(|name| name.contains(".tmp-")), "{left:?}");
}

#[test]
fn a_file_that_is_there_is_never_replaced() {
    let root = Root::with_checkpoints(1);
    let output = root.path("export.tar");
    std::fs::write(&output, "mine").expect("a file can be written");
    let named = output.display().to_string();
    let refused = run(&["checkpoints", "export", &root.uri(), "--output", &named]).expect(2);
    refused.says(&[&named, "exists already"]);
    assert_eq!(std::fs::read(&output).expect("it is there"), b"mine");
}

#[test]
fn savepoints_go_where_they_are_told() {
    let root = Root::with_checkpoints(3);
    let target = root.path("savepoints").display().to_string();
    let create = ["savepoint", "create", &root.uri(), "--checkpoint", "2", "--target", &target];
    let made = run(&[&create[..], &["--json"]].concat()).expect(0).json();
    let folder = made["place"].as_str().expect("it says where it is").to_owned();
    assert!(folder.starts_with(&target), "{folder}");
    let same = run(&["checkpoints", "diff", &root.uri(), "2", &folder, "--entries"]).expect(0);
    assert_eq!(same.out, "");
    assert!(run(&create).expect(0).out.contains("checkpoint 2"));
    run(&["savepoint", "create", &folder]).expect(2).says(&["--target"]);
    let job = root.job_folder().display().to_string();
    run(&["savepoint", "create", &root.uri(), "--target", &job]).expect(2).says(&["job's folder"]);
}

#[test]
fn a_damaged_file_imports_nothing() {
    let root = Root::with_checkpoints(3);
    let file = exported(&root);
    let whole = std::fs::read(&file).expect("it has been made");
    let target = root.path("elsewhere");
    // Every 97th byte, header, pack, manifest and padding.
    for at in (0..whole.len() - 1024).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&file, bytes).expect("a file can be written");
        let ended = import(&file, &target);
        match ended.code {
            // Padding, or a field of the header that nobody reads.
            0 => {
                let place = ended.json()["place"].as_str().expect("a place").to_owned();
                run(&["checkpoints", "verify", &place]).expect(0);
                std::fs::remove_dir_all(place).expect("it can be removed");
            }
            1 | 2 => assert!(ended.err.contains("export.tar"), "{ended:?}"),
            _ => panic!("{ended:?}"),
        }
        assert!(
            !target.exists() || files(&target).is_empty(),
            "byte {at} left {:?}",
            files(&target)
        );
    }
    for len in [0, 100, 512, 600, whole.len() - 2000] {
        std::fs::write(&file, &whole[..len]).expect("a file can be written");
        let ended = import(&file, &target);
        assert_ne!(ended.code, 0, "{len}: {ended:?}");
        assert!(!target.exists() || files(&target).is_empty(), "{len} bytes");
    }
    import("/nowhere at all", &target).expect(1).says(&["/nowhere at all"]);
}

/// A tar with one entry more than an export.
fn with_entry(root: &Root, name: &str, kind: EntryType, size: u64) -> String {
    let hostile = root.path("hostile.tar");
    let mut builder = Builder::new(File::create(&hostile).expect("a file can be made"));
    let source = File::open(root.path("export.tar")).expect("it has been made");
    for entry in tar::Archive::new(source).entries().expect("it is a tar") {
        let entry = entry.expect("a header");
        let header = entry.header().clone();
        builder.append(&header, entry).expect("an entry can be copied");
    }
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    // Past the checks of the builder.
    let field = &mut header.as_old_mut().name;
    field.iter_mut().zip(name.as_bytes()).for_each(|(to, from)| *to = *from);
    if kind == EntryType::Symlink {
        header.set_link_name("/etc/passwd").expect("a name");
    }
    header.set_cksum();
    builder.append(&header, std::io::empty()).expect("an entry can be added");
    drop(builder.into_inner().expect("the file can be ended"));
    hostile.display().to_string()
}

#[test]
fn hostile_files_are_refused() {
    let root = Root::with_checkpoints(1);
    let file = exported(&root);
    let source = File::open(&file).expect("it has been made");
    let mut archive = tar::Archive::new(source);
    let mut entries = archive.entries().expect("it is a tar");
    let first = entries.next().expect("an entry").expect("a header");
    let name = first.path().expect("a name").display().to_string();
    let (folder, _) = name.split_once('/').expect("a folder");
    let (plain, link) = (EntryType::Regular, EntryType::Symlink);
    let cases = [
        (format!("{folder}/../x.pack"), plain, 0),
        ("../x.pack".to_owned(), plain, 0),
        ("/etc/x.pack".to_owned(), plain, 0),
        (format!("{folder}/x.pack"), link, 0),
        (format!("{folder}/x.pack"), EntryType::Link, 0),
        (format!("{folder}/x.pack"), EntryType::Char, 0),
        (format!("{folder}/x.pack"), EntryType::GNUSparse, 0),
        (format!("{folder}/x.pack"), EntryType::XHeader, 0),
        (format!("{folder}/readme"), plain, 0),
        (format!("{folder}/x.pack"), plain, 1 << 40),
        (format!("{folder}/x.pack"), plain, u64::MAX >> 1),
        (format!("{folder}/x.pack"), plain, 0),
        (format!("{folder}/_metadata"), plain, 0),
        ("savepoint-other/state.pack".to_owned(), plain, 0),
        ("0123456789abcdef0123456789abcdef/_metadata".to_owned(), plain, 0),
    ];
    let target = root.path("elsewhere");
    for (name, kind, size) in cases {
        let hostile = with_entry(&root, &name, kind, size);
        let ended = import(&hostile, &target);
        assert_eq!(ended.code, 2, "{name} {kind:?} {size}: {ended:?}");
        assert!(!target.exists(), "{name} {kind:?}");
    }
    // The folder itself is fine: whoever packs a folder with another program has it.
    let hostile = with_entry(&root, &format!("{folder}/"), EntryType::Directory, 0);
    import(&hostile, &target).expect(0);
}
