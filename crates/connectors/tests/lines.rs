//! Reading files from outside: every position that a reader gives leads to the same lines.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use strandline_connectors::file::{FileLines, Line, Position};
use strandline_runtime::ErrorKind;
use strandline_runtime::source::{Read, Source, SplitReader};

const LONGEST_BYTES: usize = 16 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).expect("a file can be written");
}

/// A folder with one file `f`.
fn one_file(bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, FileLines) {
    let folder = folder();
    write(&folder.path().join("f"), bytes);
    let source = FileLines::new(folder.path()).expect("there is a file");
    (folder, source)
}

/// All lines from a position on, read by one reader, and where it ends.
fn rest(source: &FileLines, from: Option<&Position>) -> (Vec<Line>, Position) {
    let mut reader = source.open("f", from).expect("it opens");
    let mut lines = Vec::new();
    while reader.read(7, &mut lines).expect("it reads") != Read::End {}
    (lines, reader.position())
}

/// The position before each record, and at last the one behind the last.
fn positions(source: &FileLines) -> Vec<Option<Position>> {
    let mut reader = source.open("f", None).expect("it opens");
    let (mut positions, mut line) = (vec![None], Vec::new());
    while reader.read(1, &mut line).expect("it reads") != Read::End {
        positions.push(Some(reader.position()));
    }
    positions
}

fn check(input: &str, expected: &[&str]) {
    let (_folder, source) = one_file(input);
    let (lines, end) = rest(&source, None);
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, expected, "{input:?}");
    let whole = Position { offset: input.len() as u64, line: expected.len() as u64, ended: true };
    assert_eq!(end, whole, "{input:?}");
}

#[test]
fn lines_end_in_two_ways_or_with_the_file() {
    check("", &[]);
    check("\n", &[""]);
    check("\r\n", &[""]);
    check("\r", &["\r"]);
    check("\r\r\n", &["\r"]);
    check("a", &["a"]);
    check("a\n", &["a"]);
    check("a\n\n", &["a", ""]);
    check("a\rb\r\nc\r", &["a\rb", "c\r"]);
    check("\u{feff}é\u{2028}x\u{85}\r\n日本\n", &["\u{feff}é\u{2028}x\u{85}", "日本"]);
    check("\0\n\u{b}\u{c}\n", &["\0", "\u{b}\u{c}"]);
}

/// The lines of a text with their numbers, without a buffer or a position.
fn naive(text: &str, header: bool) -> Vec<(u64, String)> {
    let ended = text.split_inclusive('\n').map(|line| match line.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => line,
    });
    let numbered = (1..).zip(ended.map(str::to_owned));
    numbered.skip(usize::from(header)).collect()
}

fn numbered(lines: &[Line]) -> Vec<(u64, String)> {
    lines.iter().map(|line| (line.number, line.text.clone())).collect()
}

/// Texts with every end of line, and lines that cross the border of the reader's buffer.
fn texts() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => "[a-zé日\r ]{0,5}",
        1 => (65_530_usize..65_545).prop_map(|len| "x".repeat(len)),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\n\n")];
    let lines = prop::collection::vec((line, end), 0..8);
    (lines, "[a-z\r]{0,3}").prop_map(|(lines, last)| {
        let mut text: String =
            lines.into_iter().flat_map(|(line, end)| [line, end.into()]).collect();
        text.push_str(&last);
        text
    })
}

/// A failing seed is kept beside this file.
fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(96))]

    /// From the position before any record, the rest of the file follows: nothing twice, nothing
    /// left out, the same numbers.
    #[test]
    fn every_position_leads_to_the_rest(text in texts(), header: bool) {
        let (_folder, source) = one_file(&text);
        let source = source.skip_header(header);
        let expected = naive(&text, header);
        let positions = positions(&source);
        prop_assert_eq!(positions.len(), expected.len() + 1);
        for (read, position) in positions.iter().enumerate() {
            let (lines, _) = rest(&source, position.as_ref());
            prop_assert_eq!(numbered(&lines), &expected[read..], "from {:?}", position);
        }
    }

    /// A position is the count of bytes and lines read, so the bytes before it end a line.
    #[test]
    fn a_position_counts_bytes_and_lines(text in texts()) {
        let (_folder, source) = one_file(&text);
        for position in positions(&source).into_iter().flatten() {
            let offset = usize::try_from(position.offset).expect("a small file");
            let before = text.get(..offset).expect("a position is at a border of text");
            prop_assert!(before.ends_with('\n') || before.len() == text.len());
            prop_assert_eq!(naive(before, false).len() as u64, position.line);
        }
    }

    /// A file that has been cut before the position is refused, wherever it was cut.
    #[test]
    fn a_cut_before_the_position_is_refused(text in texts(), at: prop::sample::Index, cut: prop::sample::Index) {
        let (folder, source) = one_file(&text);
        let positions = positions(&source);
        let Some(position) = positions[at.index(positions.len())] else { return Ok(()) };
        let offset = usize::try_from(position.offset).expect("a small file");
        write(&folder.path().join("f"), &text.as_bytes()[..cut.index(offset)]);
        let error = source.open("f", Some(&position)).expect_err("it has been cut short");
        prop_assert_eq!(error.kind(), ErrorKind::Restore);
        prop_assert!(error.to_string().contains("cut short"), "{}", error);
    }
}

#[test]
fn a_file_may_have_grown_behind_the_position() {
    let (folder, source) = one_file("one\ntwo\n");
    let (_, end) = rest(&source, None);
    write(&folder.path().join("f"), "one\ntwo\nthree\n");
    let at = Position { ended: false, ..end };
    assert_eq!(numbered(&rest(&source, Some(&at)).0), [(3, "three".to_owned())]);
}

#[test]
fn a_last_line_that_went_on_is_refused() {
    let (folder, source) = one_file("one\ntw");
    let (_, end) = rest(&source, None);
    assert!(source.open("f", Some(&end)).is_ok());
    write(&folder.path().join("f"), "one\ntwo\n");
    let error = source.open("f", Some(&end)).expect_err("line 2 had been read as \"tw\"");
    assert_eq!(error.kind(), ErrorKind::Restore);
}

#[test]
fn a_position_beyond_any_file_is_refused() {
    let (_folder, source) = one_file("one\n");
    let at = Position { offset: u64::MAX, line: 1, ended: false };
    let error = source.open("f", Some(&at)).expect_err("no file is as long");
    assert_eq!(error.kind(), ErrorKind::Restore);
}

#[test]
fn a_line_may_have_16_mib_and_no_more() {
    let longest = "x".repeat(LONGEST_BYTES);
    for end in ["", "\n"] {
        let (_folder, source) = one_file(format!("a\n{longest}{end}"));
        assert_eq!(rest(&source, None).0[1].text.len(), LONGEST_BYTES, "{end:?}");
    }
    let (_folder, source) = one_file(format!("a\n{longest}x\nb\n"));
    let mut reader = source.open("f", None).expect("it opens");
    let mut lines = Vec::new();
    let error = reader.read(10, &mut lines).expect_err("line 2 is too long");
    assert_eq!(error.kind(), ErrorKind::Source);
    assert!(error.to_string().contains("f:2 is longer than 16 MiB"), "{error}");
    assert_eq!(numbered(&lines), [(1, "a".to_owned())], "what was read before counts");
}

#[test]
fn a_header_is_no_record_even_if_it_is_no_text() {
    let (_folder, source) = one_file(b"\xFF\xFE\nx\n");
    assert_eq!(numbered(&rest(&source.skip_header(true), None).0), [(2, "x".to_owned())]);
    let (_folder, source) = one_file("only a header");
    assert_eq!(rest(&source.skip_header(true), None).0, []);
}

#[test]
fn a_single_file_is_the_split_of_its_name() {
    let folder = folder();
    let path = folder.path().join("flights.csv");
    write(&path, "x\n");
    let source = FileLines::new(&path).expect("it is there");
    assert_eq!(source.splits().expect("one"), ["flights.csv"]);
    let mut lines = Vec::new();
    let mut reader = source.open("flights.csv", None).expect("it opens");
    reader.read(1, &mut lines).expect("it reads");
    assert_eq!(lines[0].location(), "flights.csv:1");
    assert_eq!(reader.position().to_string(), "line 1 (byte 2)");
}

#[test]
fn a_folder_with_hidden_files_and_folders_only_is_empty() {
    let folder = folder();
    write(&folder.path().join(".hidden"), "x\n");
    fs::create_dir(folder.path().join("inner")).expect("a folder can be made");
    write(&folder.path().join("inner/f"), "x\n");
    let error = FileLines::new(folder.path()).expect_err("it has no files");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let named = folder.path().display().to_string();
    assert!(error.to_string().contains(&named), "{error}");
}
