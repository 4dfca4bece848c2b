//! Files that the documentation names are there: links, and paths in backquotes.

use std::collections::BTreeSet;

use super::{File, Problem};

/// Folders of the root in which a path in backquotes is looked up.
const FOLDERS: [&str; 7] = ["benches/", "crates/", "data/", "docs/", "python/", "tests/", "xtask/"];

pub(super) fn check(file: &File, paths: &BTreeSet<String>) -> Vec<Problem> {
    let lines = documentation(file);
    let mut problems = Vec::new();
    for (number, line) in lines {
        let links = if file.is_markdown() { links(line) } else { Vec::new() };
        let missing_links = links.into_iter().filter(|link| !is_linked(file, link, paths));
        let missing_names = quoted(line).into_iter().filter(|name| !is_named(file, name, paths));
        for name in missing_links.chain(missing_names) {
            problems.push(file.problem(number, format!("no such file: {name}")));
        }
    }
    problems
}

/// The lines that are prose: markdown outside of fences, and comments of sources.
fn documentation(file: &File) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let prose = file.lines().filter(|(_, line)| {
        let fence = line.trim_start().trim_start_matches(['/', '!']).trim().starts_with("```");
        fenced ^= fence;
        let comment = line.trim_start().starts_with("//");
        !fence && !fenced && (file.is_markdown() || (file.is_rust() && comment))
    });
    prose.collect()
}

/// Targets of links to files, without anchors.
fn links(line: &str) -> Vec<&str> {
    let outside_quotes = line.split('`').step_by(2);
    let after = outside_quotes.flat_map(|piece| piece.split("](").skip(1));
    let targets = after.filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| !target.is_empty() && !target.contains(':')).collect()
}

/// Paths in backquotes that begin with a folder of the root and name a file.
fn quoted(line: &str) -> Vec<&str> {
    let quotes = line.split('`').skip(1).step_by(2);
    quotes.filter(|quote| FOLDERS.iter().any(|f| quote.starts_with(f)) && is_file(quote)).collect()
}

fn is_file(path: &str) -> bool {
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    plain && path.rsplit('/').next().is_some_and(|name| name.contains('.'))
}

fn is_linked(file: &File, link: &str, paths: &BTreeSet<String>) -> bool {
    resolve(folder_of(&file.path), link).is_some_and(|path| paths.contains(&path))
}

/// From the root, or from the crate where the file lies.
fn is_named(file: &File, name: &str, paths: &BTreeSet<String>) -> bool {
    let mut folder = folder_of(&file.path);
    loop {
        if resolve(folder, name).is_some_and(|path| paths.contains(&path)) {
            return true;
        }
        if folder.is_empty() {
            return false;
        }
        folder = folder_of(folder);
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The path from the root; `None` if it leads out of the root. The root itself is the empty path.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 6] = [
        "",
        "README.md",
        "crates/state",
        "crates/state/tests/keys.rs",
        "docs/format.md",
        "docs/vectors/keys.txt",
    ];

    #[track_caller]
    fn check_at(path: &str, text: &str, expected: &[&str]) {
        let paths = PATHS.iter().map(|&path| path.to_owned()).collect();
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let found: Vec<String> =
            check(&file, &paths).iter().map(|p| format!("{}: {}", p.line, p.what)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn links_of_pages() {
        check_at("README.md", "[a](docs/format.md), [`b`](crates/state) [c](#d)\n", &[]);
        check_at("README.md", "[a](https://example.org/x.md) [b](docs/format.md#part)\n", &[]);
        check_at("docs/format.md", "[a](../README.md) [b](vectors/keys.txt) [c](..)\n", &[]);
        check_at(
            "README.md",
            "\n[a](docs/none.md) and [b](crates/none)\n",
            &["2: no such file: docs/none.md", "2: no such file: crates/none"],
        );
        check_at("docs/format.md", "[a](README.md)\n", &["1: no such file: README.md"]);
        check_at("README.md", "[a](../secret)\n", &["1: no such file: ../secret"]);
    }

    #[test]
    fn code_is_no_link() {
        check_at("README.md", "`a[0](x)`\n```rust\na[0](x)\n```\n", &[]);
    }

    #[test]
    fn golden_files_in_backquotes() {
        check_at("docs/format.md", "See `docs/vectors/keys.txt`.\n", &[]);
        check_at(
            "docs/format.md",
            "See `docs/vectors/none.txt`.\n",
            &["1: no such file: docs/vectors/none.txt"],
        );
    }

    #[test]
    fn golden_files_in_comments_of_sources() {
        check_at("crates/state/src/key.rs", "//! Vectors: `docs/vectors/keys.txt`.\n", &[]);
        check_at("crates/state/src/key.rs", "//! Tests: `tests/keys.rs`.\n", &[]);
        check_at(
            "crates/state/src/key.rs",
            "fn f() {}\n/// As in `docs/none.txt`.\n",
            &["2: no such file: docs/none.txt"],
        );
        check_at("crates/state/src/key.rs", "let a = \"`docs/none.txt`\";\n", &[]);
    }

    #[test]
    fn patterns_and_folders_name_no_file() {
        check_at("README.md", "`docs/chk-<n>/a.txt`, `data/part-*`, `crates/none`\n", &[]);
    }
}
