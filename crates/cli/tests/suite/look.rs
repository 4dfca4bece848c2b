//! Commands that only look: list, show, verify, diff, du, of checkpoints and of savepoints.

use crate::fixture::{Root, files, run};

fn numbers(json: &serde_json::Value) -> Vec<u64> {
    let rows = json.as_array().expect("an array");
    rows.iter().map(|row| row["checkpoint"].as_u64().expect("a number")).collect()
}

#[test]
fn list_show_and_verify_of_a_root_a_job_and_a_savepoint() {
    let root = Root::with_checkpoints(3);
    let job = root.job_folder().display().to_string();
    for uri in [root.uri(), job, root.savepoint()] {
        let newest =
            |command: &str| run(&["checkpoints", command, &uri, "--json"]).expect(0).json();
        assert_eq!(numbers(&newest("list")).last(), Some(&3), "{uri}");
        assert_eq!(newest("show")["checkpoint"], 3, "{uri}");
        let verified = newest("verify");
        assert_eq!(numbers(&verified).last(), Some(&3), "{uri}");
        assert_eq!(verified[0]["problems"].as_array().map(Vec::len), Some(0), "{uri}");
        for command in ["list", "show", "verify"] {
            let table = run(&["checkpoints", command, &uri, "--checkpoint", "3"]).expect(0);
            assert!(!table.out.is_empty(), "{command} {uri}");
            let uri_of_9 = run(&["checkpoints", command, &uri, "--checkpoint", "9"]).expect(2);
            uri_of_9.says(&[&uri]);
        }
    }
}

#[test]
fn entries_are_section_key_and_value_in_hex() {
    let root = Root::with_checkpoints(2);
    let expected = "changing\t01\t0200000000000000\n\
                    changing\t02\t0200000000000000\n\
                    same\t6b\t76616c7565\n";
    for uri in [root.uri(), root.savepoint()] {
        let show =
            |more: &[&str]| run(&[&["checkpoints", "show", &uri, "--entries"], more].concat());
        assert_eq!(show(&[]).expect(0).out, expected);
        assert_eq!(show(&["--section", "same"]).expect(0).out, "same\t6b\t76616c7565\n");
        let json = show(&["--section", "same", "--json"]).expect(0).json();
        assert_eq!(json["key"], "6b");
        show(&["--section", "other"]).expect(2).says(&["other", "changing", "same"]);
    }
    let earlier = ["checkpoints", "show", &root.uri(), "--entries", "--checkpoint", "1"];
    assert!(run(&earlier).expect(0).out.starts_with("changing\t01\t0100000000000000\nsame"));
    run(&["checkpoints", "show", &root.uri(), "--section", "same"]).expect(2).says(&["--entries"]);
}

#[test]
fn du_tells_own_bytes_from_shared_ones() {
    let root = Root::with_checkpoints(3);
    let rows = run(&["checkpoints", "du", &root.uri(), "--json"]).expect(0).json();
    assert_eq!(numbers(&rows), [1, 2, 3]);
    for row in rows.as_array().expect("an array") {
        let figure = |name: &str| row[name].as_u64().expect("a number");
        assert!(figure("exclusive_bytes") > 0 && figure("shared_bytes") > 0, "{row}");
        assert_eq!(figure("exclusive_bytes") + figure("shared_bytes"), figure("full_bytes"));
        assert_eq!((figure("runs"), figure("chunks")), (2, 2));
        assert!(row["compression_ratio"].as_f64().expect("a number") > 0.0);
    }
    assert!(run(&["checkpoints", "du", &root.uri()]).expect(0).out.contains("exclusive"));
    let savepoint = run(&["checkpoints", "du", &root.savepoint(), "--json"]).expect(0).json();
    assert_eq!((numbers(&savepoint), &savepoint[0]["shared_bytes"]), (vec![3], &0.into()));
    run(&["checkpoints", "du", &root.uri(), "--checkpoint", "7"]).expect(2).says(&["7", "1, 2, 3"]);
    let shown = run(&["checkpoints", "show", &root.uri(), "--json"]).expect(0).json();
    assert_eq!(shown["exclusive_bytes"], rows[2]["exclusive_bytes"]);
}

#[test]
fn diff_of_two_numbers_and_of_a_number_and_a_savepoint() {
    let root = Root::with_checkpoints(3);
    let (uri, savepoint) = (root.uri(), root.savepoint());
    for operands in [&[&*uri, "2", "3"][..], &[&uri, "2", &savepoint]] {
        let diff = |more: &[&str]| run(&[&["checkpoints", "diff"], operands, more].concat());
        let json = diff(&["--json"]).expect(0).json();
        assert_eq!(json[0]["section"], "changing");
        assert_eq!(
            (&json[0]["added"]["entries"], &json[0]["added"]["bytes"]),
            (&1.into(), &9.into())
        );
        assert_eq!(json[0]["changed"]["entries"], 2);
        assert_eq!(json[1]["unchanged"]["entries"], 1);
        let lines = diff(&["--entries"]).expect(0).out;
        assert_eq!(lines, "changed\tchanging\t01\nchanged\tchanging\t02\nadded\tchanging\t03\n");
        assert!(diff(&[]).expect(0).out.contains("unchanged"));
    }
    let back = run(&["checkpoints", "diff", &uri, "3", "2", "--entries", "--json"]).expect(0);
    let last = back.out.lines().last().expect("there are lines").to_owned();
    assert_eq!(last, r#"{"difference":"removed","section":"changing","key":"03"}"#);
    let same = run(&["checkpoints", "diff", &uri, &savepoint, "--entries"]).expect(0);
    assert_eq!(same.out, "", "a savepoint holds what its checkpoint does");
    run(&["checkpoints", "diff", &uri]).expect(2);
    run(&["checkpoints", "diff", &uri, "2", "9"]).expect(2).says(&["9", "1, 2, 3"]);
    run(&["checkpoints", "diff", &uri, "2", "/nowhere at all"])
        .expect(2)
        .says(&["/nowhere at all"]);
}

#[test]
fn readers_leave_no_pin_behind() {
    let root = Root::with_checkpoints(2);
    let uri = root.uri();
    let before = files(&root.path("checkpoints"));
    run(&["checkpoints", "verify", &uri]).expect(0);
    run(&["checkpoints", "show", &uri, "--entries"]).expect(0);
    run(&["checkpoints", "du", &uri]).expect(0);
    run(&["checkpoints", "diff", &uri, "1", "2"]).expect(0);
    assert_eq!(files(&root.path("checkpoints")), before);
}

#[test]
fn where_nothing_can_be_written_readers_warn_and_read() {
    let root = Root::with_checkpoints(2);
    // A file where the folder of pins would be.
    std::fs::write(root.job_folder().join("pins"), "").expect("a file can be written");
    for command in ["verify", "du", "show"] {
        let read = run(&["checkpoints", command, &root.uri()]).expect(0);
        read.says(&["warning: reading without a pin"]);
    }
}

#[test]
fn damage_is_named_and_ends_with_1() {
    let root = Root::with_checkpoints(2);
    let newest = format!("{:020}-", 2);
    let pack = files(&root.job_folder()).into_iter().find(|name| name.contains(&newest));
    let pack = pack.expect("checkpoint 2 has written a pack");
    std::fs::remove_file(root.job_folder().join(&pack)).expect("it can be removed");
    let verified = run(&["checkpoints", "verify", &root.uri()]).expect(1);
    assert!(verified.out.contains(&pack) && verified.out.contains("DAMAGED"), "{verified:?}");
    for command in ["show", "du"] {
        let ended = run(&["checkpoints", command, &root.uri()]).expect(1);
        assert!(ended.err.contains(&pack), "{ended:?}");
    }
    let output = root.path("export.tar").display().to_string();
    run(&["checkpoints", "export", &root.uri(), "--output", &output]).expect(1).says(&[&pack]);
    assert!(!root.path("export.tar").exists(), "what is damaged is not exported");
    assert_eq!(
        numbers(&run(&["checkpoints", "list", &root.uri(), "--json"]).expect(0).json()),
        [1, 2]
    );
}

#[test]
fn bad_arguments_end_with_2_and_name_the_way_out() {
    let root = Root::with_checkpoints(1);
    let inside = root.job_folder().join("chk-1").display().to_string();
    run(&["checkpoints", "show", &inside]).expect(2).says(&["inside a job's folder"]);
    run(&["checkpoints", "show", "gopher://x"]).expect(2).says(&["gopher"]);
    run(&["checkpoints", "show", "/nowhere at all"]).expect(2).says(&["/nowhere at all", "root"]);
    run(&["checkpoints", "show", &root.uri(), "--checkpoint", "x"]).expect(2);
    run(&["checkpoints"]).expect(2);
    run(&["--help"]).expect(0);
}
