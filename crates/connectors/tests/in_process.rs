//! The source and the sink that live in the process.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use strandline_connectors::generator::Generator;
use strandline_connectors::memory::{CollectSink, Collector};
use strandline_runtime::sink::{Committable, Sink, SinkOwner, SinkWriter};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{CheckpointId, ErrorKind};

fn owner(token: u64) -> SinkOwner {
    SinkOwner { job: "0123456789abcdef0123456789abcdef".to_owned(), token }
}

fn stage(writer: &mut Collector<u64>, id: u64, mut records: Vec<u64>) -> Vec<Committable> {
    writer.write(&mut records).expect("it can be written");
    let prepared = writer.prepare(CheckpointId(id)).expect("it can be staged");
    (prepared.make_durable)().expect("it is durable enough");
    prepared.committables
}

/// A failing seed is kept beside this file.
fn config() -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Read in any pieces, opened anew after each: the records of the split, in order.
    #[test]
    fn pieces_make_the_split(records in 0_u64..40, pieces in prop::collection::vec(0_usize..9, 0..20)) {
        let source = Generator::new(2, Some(records), |split, index| (split, index));
        let splits = source.splits().expect("two");
        prop_assert_eq!(splits.len(), 2);
        for (split, name) in (0_u32..).zip(&splits) {
            let (mut out, mut position) = (Vec::new(), None);
            for max in pieces.iter().copied().chain([100]) {
                let mut reader = source.open(name, position.as_ref()).expect("it opens");
                let before = out.len();
                let read = reader.read(max, &mut out).expect("it reads");
                prop_assert!(out.len() - before <= max);
                prop_assert_eq!(read == Read::End, out.len() as u64 == records);
                position = Some(reader.position());
            }
            prop_assert_eq!(out, (0..records).map(|index| (split, index)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_endless_split_does_not_end() {
    let source = Generator::new(1, None, |_, index| index);
    let name = &source.splits().expect("one")[0];
    let mut reader = source.open(name, None).expect("it opens");
    let mut out = Vec::new();
    for _ in 0..3 {
        assert_eq!(reader.read(2, &mut out).expect("it reads"), Read::More);
    }
    assert_eq!(out, [0, 1, 2, 3, 4, 5]);
    assert_eq!(reader.position().to_string(), "record 6");
}

#[test]
fn records_appear_with_their_commit_in_order_of_checkpoint_and_subtask() {
    let sink = CollectSink::new();
    let mut writers: Vec<_> =
        (0..2).map(|subtask| sink.writer(&owner(1), subtask).expect("a writer")).collect();
    let mut pending = Vec::new();
    for id in [1, 2] {
        for (subtask, writer) in [0, 10].into_iter().zip(&mut writers) {
            let first = id * 100 + subtask;
            pending.extend(stage(writer, id, vec![first, first + 1]));
        }
    }
    assert_eq!(sink.records(), Vec::<u64>::new());
    pending.reverse();
    writers[0].commit(&pending).expect("it can be committed");
    writers[0].commit(&pending).expect("twice is once");
    assert_eq!(sink.records(), [100, 101, 110, 111, 200, 201, 210, 211]);
}

#[test]
fn a_restore_commits_what_is_pending_and_forgets_the_rest() {
    let sink = CollectSink::new();
    let mut writer = sink.writer(&owner(1), 0).expect("a writer");
    let pending = stage(&mut writer, 1, vec![1]);
    let never = stage(&mut writer, 2, vec![2]);
    sink.recover(&owner(2), CheckpointId(1), pending).expect("it recovers");
    assert_eq!(sink.records(), [1]);
    let error = writer.commit(&never).expect_err("it has been forgotten");
    assert_eq!(error.kind(), ErrorKind::Sink);
}

#[test]
fn a_sink_that_has_records_refuses_a_fresh_start() {
    let sink = CollectSink::new();
    sink.check_fresh().expect("it has none");
    let mut writer = sink.writer(&owner(1), 0).expect("a writer");
    let pending = stage(&mut writer, 1, vec![1]);
    sink.check_fresh().expect("nothing is committed");
    writer.commit(&pending).expect("it can be committed");
    assert_eq!(sink.check_fresh().expect_err("it has one").kind(), ErrorKind::Refused);
}
