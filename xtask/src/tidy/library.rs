//! What every library crate has: a property test, a page with a program that runs, a stated MSRV.

use super::{File, Package, Problem, Tree};

const PROPERTY_TEST: &str = "proptest!";
const MSRV: &str = "MSRV: ";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let libraries = tree.packages.iter().filter(|package| package.library);
    let published = libraries.filter(|package| package.folder.starts_with("crates/"));
    published.flat_map(|package| check_library(tree, package)).collect()
}

fn check_library(tree: &Tree, package: &Package) -> Vec<Problem> {
    let mut problems = property_test(tree, package);
    let manifest =
        |what: &str| Problem { path: package.manifest(), line: 1, what: what.to_owned() };
    let Some(rust_version) = &package.rust_version else {
        problems.push(manifest("no rust-version"));
        return problems;
    };
    let Some(root) = tree.file(&format!("{}/src/lib.rs", package.folder)) else {
        problems.push(manifest("no src/lib.rs, where the crate's page belongs"));
        return problems;
    };
    problems.extend(page(root, rust_version));
    problems
}

/// A crate that defines no function has nothing that a property could hold for.
fn property_test(tree: &Tree, package: &Package) -> Vec<Problem> {
    let rust = || tree.files.iter().filter(|file| file.is_rust() && package.has(file));
    let tested = rust().any(|file| code_contains(file, PROPERTY_TEST));
    let source = format!("{}/src/", package.folder);
    let does_something =
        rust().any(|file| file.path.starts_with(&source) && code_contains(file, "fn "));
    let missing = does_something && !tested;
    let what = format!("no property test: no `{PROPERTY_TEST}` in src or tests");
    missing.then(|| Problem { path: package.manifest(), line: 1, what }).into_iter().collect()
}

fn code_contains(file: &File, word: &str) -> bool {
    let code = file.text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter().any(|line| line.contains(word))
}

fn page(root: &File, rust_version: &str) -> Vec<Problem> {
    let page: Vec<&str> = root.text.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    let mut problems = Vec::new();
    if !has_program(&page) {
        problems.push(root.problem(1, "the crate's page has no program that runs"));
    }
    let stated = page.iter().find_map(|line| line.split(MSRV).nth(1));
    match stated {
        None => problems.push(root.problem(1, "the crate's page has no line with `MSRV:`")),
        Some(version) if !states(version, rust_version) => {
            let what = format!("the crate's page states another MSRV than {rust_version}");
            problems.push(root.problem(1, what));
        }
        Some(_) => {}
    }
    problems
}

fn states(text: &str, rust_version: &str) -> bool {
    let rest = text.trim_start_matches('`').strip_prefix(rust_version);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a fenced block is one that rustdoc compiles and runs.
fn has_program(page: &[&str]) -> bool {
    let fences = page.iter().filter_map(|line| line.trim().strip_prefix("```"));
    fences.step_by(2).any(runs)
}

fn runs(tags: &str) -> bool {
    let mut tags = tags.split([',', ' ']).filter(|tag| !tag.is_empty());
    tags.all(|tag| matches!(tag, "rust" | "should_panic") || tag.starts_with("edition"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "//! Idea. MSRV: 1.89.\n//!\n//! ```text\n//! a ──► b\n//! ```\n//!\n\
                        //! ```\n//! assert!(strandline_x::f());\n//! ```\n\npub fn f() {}\n";
    const TESTS: &str = "//! Tests.\nproptest::proptest! {}\n";

    #[track_caller]
    fn check_crate(rust_version: Option<&str>, files: &[(&str, &str)], expected: &[&str]) {
        let package = Package {
            name: "strandline-x".to_owned(),
            folder: "crates/x".to_owned(),
            library: true,
            rust_version: rust_version.map(str::to_owned),
            dependencies: Vec::new(),
        };
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let files = files.iter().map(file).collect();
        let tree = Tree { packages: vec![package], files, ..Tree::default() };
        let found: Vec<String> = check(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_page(page: &str, expected: &[&str]) {
        check_crate(
            Some("1.89"),
            &[("crates/x/src/lib.rs", page), ("crates/x/tests/model.rs", TESTS)],
            expected,
        );
    }

    #[test]
    fn a_crate_that_has_all() {
        check_page(PAGE, &[]);
    }

    #[test]
    fn a_property_test_is_code() {
        let what = "crates/x/Cargo.toml:1: no property test: no `proptest!` in src or tests";
        check_crate(Some("1.89"), &[("crates/x/src/lib.rs", PAGE)], &[what]);
        let said = "//! We use `proptest!` everywhere.\n";
        check_crate(
            Some("1.89"),
            &[("crates/x/src/lib.rs", PAGE), ("crates/x/tests/a.rs", said)],
            &[what],
        );
    }

    #[test]
    fn a_crate_without_functions_needs_no_property_test() {
        let facade = PAGE.replace("pub fn f() {}", "pub use other::f;");
        check_crate(Some("1.89"), &[("crates/x/src/lib.rs", &facade)], &[]);
    }

    #[test]
    fn another_crate_whose_name_begins_alike_does_not_count() {
        let what = "crates/x/Cargo.toml:1: no property test: no `proptest!` in src or tests";
        check_crate(
            Some("1.89"),
            &[("crates/x/src/lib.rs", PAGE), ("crates/xy/tests/a.rs", TESTS)],
            &[what],
        );
    }

    #[test]
    fn a_program_must_run() {
        let what = "crates/x/src/lib.rs:1: the crate's page has no program that runs";
        for tags in ["ignore", "no_run", "text", "rust,no_run", "compile_fail", "sh"] {
            let page = PAGE.replacen("```\n//! assert", &format!("```{tags}\n//! assert"), 1);
            check_page(&page, &[what]);
        }
        for tags in ["rust", "rust,should_panic", "edition2024"] {
            let page = PAGE.replacen("```\n//! assert", &format!("```{tags}\n//! assert"), 1);
            check_page(&page, &[]);
        }
    }

    #[test]
    fn the_msrv_is_set_and_stated() {
        let missing = "crates/x/src/lib.rs:1: the crate's page has no line with `MSRV:`";
        check_page(&PAGE.replace("MSRV: 1.89.", ""), &[missing]);
        let other = "crates/x/src/lib.rs:1: the crate's page states another MSRV than 1.89";
        check_page(&PAGE.replace("1.89", "1.88"), &[other]);
        check_page(&PAGE.replace("1.89", "1.890"), &[other]);
        let files = [("crates/x/src/lib.rs", PAGE), ("crates/x/tests/model.rs", TESTS)];
        check_crate(None, &files, &["crates/x/Cargo.toml:1: no rust-version"]);
    }
}
