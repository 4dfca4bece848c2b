//! Lines of files, with positions.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{Error, ErrorKind, Result};

use crate::file::place;

/// No line is longer.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file's name, as the split's.
    pub file: Arc<str>,
    /// Its number in the file, from 1.
    pub number: u64,
    /// Its text, without the end of line.
    pub text: String,
}

impl Line {
    /// `flights.csv:123`.
    #[must_use]
    pub fn location(&self) -> String {
        format!("{}:{}", self.file, self.number)
    }
}

/// As the tuple of its fields, so that a line may cross an exchange.
impl Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&*self.file, self.number, &self.text).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (file, number, text) = <(String, u64, String)>::deserialize(deserializer)?;
        Ok(Self { file: file.into(), number, text })
    }
}

/// Where reading a file goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes read.
    pub offset: u64,
    /// Lines read, a skipped header among them.
    pub line: u64,
    /// The end of the file has been read.
    pub ended: bool,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.ended { ", the end" } else { "" };
        write!(f, "line {} (byte {}{end})", self.line, self.offset)
    }
}

/// The lines of a file, or of all files of a folder. A split is a whole file.
///
/// Lines end with `\n` or `\r\n`; the last one may end with the file. They are UTF-8. A file that is
/// being read may grow by whole lines, but what has been read must not change.
#[derive(Clone, Debug)]
pub struct FileLines {
    path: PathBuf,
    skip_header: bool,
    lossy: bool,
}

impl FileLines {
    /// The lines of this file, or of every file in this folder: hidden ones and folders in it are
    /// left out.
    ///
    /// # Errors
    /// `Invalid`: there is no such path, it can't be read, or the folder has no files.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let lines = Self { path: path.as_ref().to_owned(), skip_header: false, lossy: false };
        if lines.splits()?.is_empty() {
            return Err(lines.invalid("has no files in it"));
        }
        if lines.path.is_file() {
            let opened = File::open(&lines.path);
            opened.map_err(|error| lines.invalid("can't be read").because(error))?;
        }
        Ok(lines)
    }

    /// Whether the first line of every file is no record. It counts for line numbers.
    #[must_use]
    pub fn skip_header(mut self, skip: bool) -> Self {
        self.skip_header = skip;
        self
    }

    /// Whether bytes that are not UTF-8 become U+FFFD, so that whoever parses the line can decide
    /// what becomes of it. Otherwise such a line is an error.
    #[must_use]
    pub fn lossy(mut self, lossy: bool) -> Self {
        self.lossy = lossy;
        self
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, format!("input {} {what}", self.path.display()))
    }

    fn file(&self, split: &str) -> PathBuf {
        if self.path.is_dir() { self.path.join(split) } else { self.path.clone() }
    }

    fn names(&self) -> Result<Vec<String>> {
        let unlistable = |error| self.invalid("can't be listed").because(error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unlistable)? {
            let entry = entry.map_err(unlistable)?;
            let name = entry.file_name().into_string().map_err(|name| {
                self.invalid(&format!("has a file whose name is not UTF-8: {}", name.display()))
            })?;
            if !name.starts_with('.') && entry.path().is_file() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Source for FileLines {
    type Record = Line;
    type Position = Position;
    type Reader = LineReader;

    fn input(&self) -> Option<String> {
        Some(place(&self.path))
    }

    fn splits(&self) -> Result<Vec<String>> {
        if self.path.is_dir() {
            return self.names();
        }
        if !self.path.exists() {
            return Err(self.invalid("is not there"));
        }
        if !self.path.is_file() {
            return Err(self.invalid("is neither a file nor a folder"));
        }
        let name = self.path.file_name().and_then(|name| name.to_str());
        Ok(vec![name.ok_or_else(|| self.invalid("has a name that is not UTF-8"))?.to_owned()])
    }

    fn open(&self, split: &str, position: Option<&Position>) -> Result<LineReader> {
        let path = self.file(split);
        // What a checkpoint has read of must be there again.
        let kind = if position.is_some() { ErrorKind::Restore } else { ErrorKind::Source };
        let unreadable =
            |error| Error::new(kind, format!("{} can't be read", path.display())).because(error);
        let mut file = File::open(&path).map_err(unreadable)?;
        let at = Position { ended: false, ..position.copied().unwrap_or_default() };
        if at.offset > 0 {
            check_position(&mut file, &path, at)?;
        }
        file.seek(SeekFrom::Start(at.offset)).map_err(unreadable)?;
        Ok(LineReader {
            input: BufReader::with_capacity(64 << 10, file),
            file: split.into(),
            path,
            at,
            skip_header: self.skip_header && at.line == 0,
            lossy: self.lossy,
            bytes: Vec::new(),
        })
    }
}

/// The file must still have what has been read of it, with the end of a line before the position.
fn check_position(file: &mut File, path: &Path, at: Position) -> Result<()> {
    let changed = |what: &str| {
        let text = format!(
            "{} {what}: it has changed since the checkpoint, which has read it to {at}",
            path.display()
        );
        Error::new(ErrorKind::Restore, text)
    };
    let len = file.metadata().map_err(|error| changed("can't be read").because(error))?.len();
    if len < at.offset {
        return Err(changed("has been cut short"));
    }
    let mut before = [0];
    let read = file.seek(SeekFrom::Start(at.offset - 1)).and_then(|_| file.read_exact(&mut before));
    read.map_err(|error| changed("can't be read").because(error))?;
    // The last line of a file need not end.
    if before != *b"\n" && len != at.offset {
        return Err(changed("has no end of line where there was one"));
    }
    Ok(())
}

/// Reads the lines of one file.
#[derive(Debug)]
pub struct LineReader {
    input: BufReader<File>,
    file: Arc<str>,
    path: PathBuf,
    at: Position,
    skip_header: bool,
    lossy: bool,
    /// The line at hand.
    bytes: Vec<u8>,
}

impl LineReader {
    /// Reads the next line into `bytes`, its end left out, and says where it ends; `None` at the
    /// end of the file. The position stays where it is until the line is accepted.
    fn next(&mut self) -> Result<Option<Position>> {
        self.bytes.clear();
        let limit = MAX_LINE_BYTES as u64 + 2;
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|error| self.error("can't be read").because(error))?;
        if read == 0 {
            self.at.ended = true;
            return Ok(None);
        }
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
            if self.bytes.last() == Some(&b'\r') {
                self.bytes.pop();
            }
        }
        if self.bytes.len() > MAX_LINE_BYTES {
            return Err(self.broken("is longer than 16 MiB"));
        }
        let Position { offset, line, .. } = self.at;
        Ok(Some(Position { offset: offset + read as u64, line: line + 1, ended: false }))
    }

    fn line(&mut self, end: Position) -> Result<Line> {
        let text = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text.to_owned(),
            Err(_) if self.lossy => String::from_utf8_lossy(&self.bytes).into_owned(),
            Err(error) => return Err(self.broken("is not UTF-8").because(error)),
        };
        self.at = end;
        Ok(Line { file: Arc::clone(&self.file), number: end.line, text })
    }

    /// An error of the line at hand, after which reading goes no further.
    fn broken(&mut self, what: &str) -> Error {
        // Back to where the line begins, so that it is met again.
        drop(self.input.seek(SeekFrom::Start(self.at.offset)));
        self.error(what)
    }

    fn error(&self, what: &str) -> Error {
        let text = format!("{}:{} {what}", self.path.display(), self.at.line + 1);
        Error::new(ErrorKind::Source, text)
    }
}

impl SplitReader for LineReader {
    type Record = Line;
    type Position = Position;

    fn read(&mut self, max: usize, out: &mut Vec<Line>) -> Result<Read> {
        if self.skip_header {
            let Some(end) = self.next()? else { return Ok(Read::End) };
            self.skip_header = false;
            self.at = end;
        }
        for _ in 0..max {
            let Some(end) = self.next()? else { return Ok(Read::End) };
            out.push(self.line(end)?);
        }
        Ok(Read::More)
    }

    fn position(&self) -> Position {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn write(path: &Path, bytes: impl AsRef<[u8]>) {
        fs::write(path, bytes).expect("a file can be written");
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// Reads a split to its end, in pieces, opening it anew at the position after each.
    fn read_in_pieces(source: &FileLines, split: &str, pieces: &[usize]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut position = None;
        for max in pieces.iter().copied().chain(std::iter::repeat(100)) {
            let mut reader = source.open(split, position.as_ref()).expect("it opens");
            let read = reader.read(max, &mut lines).expect("it reads");
            position = Some(reader.position());
            if read == Read::End {
                break;
            }
        }
        lines
    }

    fn naive(text: &str) -> Vec<String> {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        if lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        let last = lines.len().saturating_sub(1);
        let ends = text.ends_with('\n');
        for (index, line) in lines.iter_mut().enumerate() {
            if (index < last || ends) && line.ends_with('\r') {
                line.pop();
            }
        }
        lines
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_lines_of_the_file(
            text in "([a-cé ]{0,6}(\n|\r\n)?){0,12}",
            pieces in prop::collection::vec(1_usize..4, 0..20),
        ) {
            let folder = folder();
            write(&folder.path().join("f"), &text);
            let source = FileLines::new(folder.path()).expect("there is a file");
            let lines = read_in_pieces(&source, "f", &pieces);
            prop_assert_eq!(texts(&lines), naive(&text));
            let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
            prop_assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_header_is_skipped_once_and_counted() {
        let folder = folder();
        write(&folder.path().join("f.csv"), "a,b\n1,2\n3,4\n");
        let source = FileLines::new(folder.path().join("f.csv")).expect("it is there");
        let lines = read_in_pieces(&source.skip_header(true), "f.csv", &[1, 1]);
        assert_eq!(texts(&lines), ["1,2", "3,4"]);
        assert_eq!(lines[0].location(), "f.csv:2");
    }

    #[test]
    fn a_folder_is_its_files_in_order() {
        let folder = folder();
        for name in ["b", "a", ".hidden"] {
            write(&folder.path().join(name), "x");
        }
        fs::create_dir(folder.path().join("inner")).expect("a folder can be made");
        let source = FileLines::new(folder.path()).expect("there are files");
        assert_eq!(source.splits().ok(), Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = folder();
        let error = FileLines::new(folder.path().join("nothing")).expect_err("it is not there");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("nothing"));
        let error = FileLines::new(folder.path()).expect_err("it is empty");
        assert!(error.to_string().contains("no files"), "{error}");
    }

    #[test]
    fn a_file_that_has_changed_is_refused() {
        let folder = folder();
        let path = folder.path().join("f");
        write(&path, "one\ntwo\nthree\n");
        let source = FileLines::new(&path).expect("it is there");
        let at = Position { offset: 8, line: 2, ended: false };
        assert!(source.open("f", Some(&at)).is_ok());
        for changed in ["one\n", "one and two\n"] {
            write(&path, changed);
            let error = source.open("f", Some(&at)).expect_err("it has changed");
            assert_eq!(error.kind(), ErrorKind::Restore, "{changed}");
            assert!(error.to_string().contains("line 2 (byte 8)"), "{error}");
        }
    }

    #[test]
    fn bad_text_is_named_with_its_line() {
        let folder = folder();
        let path = folder.path().join("f");
        write(&path, b"fine\n\xFF\n");
        let source = FileLines::new(&path).expect("it is there");
        let mut reader = source.open("f", None).expect("it opens");
        let error = reader.read(10, &mut Vec::new()).expect_err("it is not UTF-8");
        assert_eq!(error.kind(), ErrorKind::Source);
        assert!(error.to_string().contains("f:2"), "{error}");
    }
}
