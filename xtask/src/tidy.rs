//! `cargo xtask tidy`: what no compiler checks.
//!
//! [`tree`] reads, the other modules are rules: pure functions from what was read to problems. Each
//! rule has a test with a violation planted for it. So that the tests of a rule don't break it, they
//! write what is forbidden with a `~` in it, which `planted` takes away; the rules' own tables join
//! their words from halves.

mod layers;
mod library;
mod named_files;
mod source;
mod tree;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

/// A text file of the tree.
#[derive(Clone, Debug)]
struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

/// A package of the workspace.
#[derive(Clone, Debug)]
struct Package {
    name: String,
    /// From the root, with `/`.
    folder: String,
    library: bool,
    rust_version: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
struct Dependency {
    name: String,
    /// `dependencies`, `dev-dependencies` or `build-dependencies`.
    section: String,
}

/// All that the rules look at.
#[derive(Debug, Default)]
struct Tree {
    packages: Vec<Package>,
    /// Text files written for this project: sources, documentation, settings.
    files: Vec<File>,
    /// All files and folders, also of those whose text isn't read.
    paths: BTreeSet<String>,
}

/// A line that is wrong, and why.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    fn problem(&self, line: usize, what: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line, what: what.into() }
    }
}

impl Package {
    fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }

    fn has(&self, file: &File) -> bool {
        file.path.strip_prefix(&self.folder).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl Tree {
    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// Prints the problems of the source tree, and how many; whether there are none.
pub(crate) fn run() -> Result<bool, Box<dyn Error>> {
    let tree = tree::read(&crate::workspace::root())?;
    let problems = check(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {} in {} files", count(problems.len(), "problem"), tree.files.len());
    Ok(problems.is_empty())
}

/// The problems of a tree, by path and line.
fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = layers::check(tree);
    problems.extend(library::check(tree));
    for file in &tree.files {
        problems.extend(source::check(file));
        problems.extend(named_files::check(file, &tree.paths));
    }
    problems.sort();
    problems
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Text with something forbidden in it, written with a `~` so that it isn't found here.
#[cfg(test)]
fn planted(text: &str) -> String {
    text.replace('~', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_sorted_and_printed_with_their_place() {
        let text = planted("fn main() {}\nfn later() { to~do!() }\n");
        let file = |path: &str| File { path: path.to_owned(), text: text.clone() };
        let tree = Tree { files: vec![file("b.rs"), file("a.rs")], ..Tree::default() };
        let lines: Vec<String> = check(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(
            lines,
            [
                "a.rs:1: no module doc: the first line is not `//!`".to_owned(),
                planted("a.rs:2: to~do!: unfinished"),
                "b.rs:1: no module doc: the first line is not `//!`".to_owned(),
                planted("b.rs:2: to~do!: unfinished"),
            ]
        );
    }

    #[test]
    fn counts() {
        assert_eq!(count(0, "problem"), "0 problems");
        assert_eq!(count(1, "problem"), "1 problem");
    }
}
