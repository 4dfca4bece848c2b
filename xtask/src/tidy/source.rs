//! Rules for one file: module doc, length, leftovers, words of a workplace.

use super::{File, Problem};

const LINES_MAX: usize = 700;

/// What doesn't belong in a finished source file, and why.
const LEFTOVERS: [(&str, &str); 8] = [
    (concat!("to", "do!"), "unfinished"),
    (concat!("unimpl", "emented!"), "unfinished"),
    (concat!("db", "g!("), "left from debugging"),
    (concat!("#[ign", "ore"), "a test that doesn't run"),
    (concat!("FIX", "ME"), "unfinished"),
    (concat!("X", "XX"), "unfinished"),
    (concat!("#[al", "low("), "use `expect` with a reason"),
    (concat!("#![al", "low("), "use `expect` with a reason"),
];

const EXPECTS: [&str; 2] = [concat!("#[exp", "ect("), concat!("#![exp", "ect(")];

const WORKPLACE: &str = concat!("/wo", "rk/");
const TRACKER: &str = concat!("iss", "ue");

pub(super) fn check(file: &File) -> Vec<Problem> {
    let mut problems = workplace_words(file);
    if file.is_rust() {
        problems.extend(module_doc(file));
        problems.extend(length(file));
        problems.extend(leftovers(file));
        problems.extend(expects_without_reason(file));
    }
    problems
}

fn module_doc(file: &File) -> Option<Problem> {
    let documented = file.text.starts_with("//!");
    (!documented).then(|| file.problem(1, "no module doc: the first line is not `//!`"))
}

fn length(file: &File) -> Option<Problem> {
    let count = file.text.lines().count();
    let what = format!("{count} lines, {LINES_MAX} at most: more than one room");
    (count > LINES_MAX).then(|| file.problem(LINES_MAX + 1, what))
}

fn leftovers(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in file.lines() {
        let found = LEFTOVERS.iter().filter(|(word, _)| has_word(line, word));
        problems.extend(found.map(|(word, why)| file.problem(number, format!("{word}: {why}"))));
    }
    problems
}

/// An attribute may span lines; it ends at its first `)]`.
fn expects_without_reason(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for opening in EXPECTS {
        let mut line = 1;
        let mut pieces = file.text.split(opening);
        line += line_ends(pieces.next().unwrap_or_default());
        for piece in pieces {
            let attribute = piece.split(")]").next().unwrap_or_default();
            if !attribute.contains("reason") {
                problems.push(file.problem(line, format!("{opening}: no reason is given")));
            }
            line += line_ends(piece);
        }
    }
    problems
}

fn line_ends(text: &str) -> usize {
    text.matches('\n').count()
}

fn workplace_words(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in file.lines() {
        if line.contains(WORKPLACE) {
            problems.push(file.problem(number, format!("{WORKPLACE}: a path of one machine")));
        }
        if names_tracker_entry(line) {
            problems.push(file.problem(number, format!("{TRACKER} by number: say it in words")));
        }
    }
    problems
}

/// The word, a blank, perhaps `#`, and a digit, in any case of letters.
fn names_tracker_entry(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let mut rests = line.split(TRACKER).skip(1).filter_map(|rest| rest.strip_prefix(' '));
    rests.any(|rest| {
        rest.strip_prefix('#').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Whether the word is there and is not a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, rest) = line.split_at(at);
        let after = rest.strip_prefix(word).unwrap_or_default();
        let joined_before = word.starts_with(part) && before.ends_with(part);
        let joined_after = word.ends_with(part) && after.starts_with(part);
        !joined_before && !joined_after
    })
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    /// `expected` is lines of `number: what`, with planted words too.
    #[track_caller]
    fn check_at(path: &str, text: &str, expected: &[&str]) {
        let file = File { path: path.to_owned(), text: planted(text) };
        let found: Vec<String> =
            check(&file).iter().map(|p| format!("{}: {}", p.line, p.what)).collect();
        let expected: Vec<String> = expected.iter().map(|line| planted(line)).collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_rust(text: &str, expected: &[&str]) {
        check_at("a.rs", &format!("//! Doc.\n{text}"), expected);
    }

    #[test]
    fn a_file_begins_with_a_module_doc() {
        check_at("a.rs", "//! Doc.\n", &[]);
        let what = "1: no module doc: the first line is not `//!`";
        check_at("a.rs", "use std::fmt;\n//! Doc.\n", &[what]);
        check_at("a.rs", "// Doc.\n", &[what]);
        check_at("a.rs", "", &[what]);
        check_at("a.md", "# Title\n", &[]);
    }

    #[test]
    fn a_file_has_at_most_700_lines() {
        check_rust(&"// line\n".repeat(699), &[]);
        check_rust(&"// line\n".repeat(700), &["701: 701 lines, 700 at most: more than one room"]);
    }

    #[test]
    fn unfinished_work() {
        check_rust("fn f() { to~do!() }\n", &["2: to~do!: unfinished"]);
        check_rust(
            "fn f() {\n    unimpl~emented!(\"x\")\n}\n",
            &["3: unimpl~emented!: unfinished"],
        );
        check_rust("// FIX~ME: later\n", &["2: FIX~ME: unfinished"]);
        check_rust("// X~XX\n", &["2: X~XX: unfinished"]);
    }

    #[test]
    fn words_that_only_contain_a_leftover() {
        check_rust("use xxhash::XX~XH; not_to~do!(); // FIX~MES\n", &[]);
    }

    #[test]
    fn debugging() {
        check_rust("let a = db~g!(b);\n", &["2: db~g!(: left from debugging"]);
    }

    #[test]
    fn tests_that_do_not_run() {
        check_rust("#[ign~ore]\n", &["2: #[ign~ore: a test that doesn't run"]);
        check_rust("#[ign~ore = \"slow\"]\n", &["2: #[ign~ore: a test that doesn't run"]);
    }

    #[test]
    fn lints_are_not_switched_off() {
        check_rust("#[al~low(dead_code)]\n", &["2: #[al~low(: use `expect` with a reason"]);
        check_rust("#![al~low(dead_code)]\n", &["2: #![al~low(: use `expect` with a reason"]);
    }

    #[test]
    fn an_expectation_has_a_reason() {
        check_rust("#[exp~ect(dead_code, reason = \"soon\")]\n", &[]);
        check_rust("#[exp~ect(\n    dead_code,\n    reason = \"soon\"\n)]\n", &[]);
        check_rust(
            "#[exp~ect(a, reason = \"b\")]\n\n#[exp~ect(dead_code)]\nfn f(reason: u8) {}\n",
            &["4: #[exp~ect(: no reason is given"],
        );
        check_rust("#![exp~ect(dead_code)]\n", &["2: #![exp~ect(: no reason is given"]);
    }

    #[test]
    fn words_of_a_workplace_are_found_in_every_text() {
        check_at("a.md", "one\nsee /wo~rk/x\n", &["2: /wo~rk/: a path of one machine"]);
        let what = "1: iss~ue by number: say it in words";
        check_at("a.toml", "# Iss~ue 12\n", &[what]);
        check_at("a.toml", "# iss~ue #3\n", &[what]);
        check_at("a.toml", "# an iss~ue of 3, two iss~ues\n", &[]);
    }
}
