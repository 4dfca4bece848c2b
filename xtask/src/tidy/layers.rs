//! Which package may name which.

use super::{Dependency, Package, Problem, Tree};

/// What a package may name, of the packages of this workspace.
enum Reach {
    Any,
    Only(&'static [&'static str]),
}

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["common", "helpers", "types", "util", "utils"];

/// The layers. A development dependency counts like any other, or a leaf's tests would need the
/// house around it. A package that isn't named here has no place.
fn reach(package: &str) -> Option<Reach> {
    Some(match package {
        "strandline-barrier" | "strandline-snapshot" | "strandline-state" | "xtask" => {
            Reach::Only(&[])
        }
        "strandline-coordinator" => Reach::Only(&["strandline-barrier"]),
        "strandline-runtime" => Reach::Only(&[
            "strandline-barrier",
            "strandline-coordinator",
            "strandline-snapshot",
            "strandline-state",
        ]),
        "strandline-connectors" => Reach::Only(&["strandline-runtime"]),
        "strandline-store-object" => Reach::Only(&["strandline-snapshot"]),
        "strandline" => Reach::Only(&[
            "strandline-barrier",
            "strandline-connectors",
            "strandline-coordinator",
            "strandline-runtime",
            "strandline-snapshot",
            "strandline-state",
            "strandline-store-object",
        ]),
        "strandline-cli" => Reach::Only(&["strandline"]),
        "strandline-benches" | "strandline-tests" => Reach::Any,
        _ => return None,
    })
}

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    tree.packages.iter().flat_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Problem> {
    let problem = |line, what| Problem { path: package.manifest(), line, what };
    let mut problems = Vec::new();
    if has_empty_name(package) {
        let what = format!("{}: a name that says nothing about what is inside", package.name);
        problems.push(problem(1, what));
    }
    match reach(&package.name) {
        None => {
            problems.push(problem(1, format!("{} has no place among the layers", package.name)));
        }
        Some(Reach::Any) => {}
        Some(Reach::Only(allowed)) => {
            let manifest = tree.file(&package.manifest()).map_or("", |file| file.text.as_str());
            let forbidden = house_dependencies(tree, package)
                .filter(|dependency| !allowed.contains(&dependency.name.as_str()));
            problems.extend(forbidden.map(|dependency| {
                let what = format!("{} must not name {}", package.name, dependency.name);
                problem(line_of(manifest, dependency), what)
            }));
        }
    }
    problems
}

fn has_empty_name(package: &Package) -> bool {
    let folder = package.folder.rsplit('/').next().unwrap_or_default();
    let name = package.name.trim_start_matches("strandline-");
    EMPTY_NAMES.contains(&folder) || EMPTY_NAMES.contains(&name)
}

fn house_dependencies<'a>(
    tree: &'a Tree,
    package: &'a Package,
) -> impl Iterator<Item = &'a Dependency> {
    let of_the_house = |name: &str| tree.packages.iter().any(|package| package.name == name);
    package.dependencies.iter().filter(move |dependency| of_the_house(&dependency.name))
}

/// Where the manifest names the dependency; 1 where it does so in a way unknown here.
fn line_of(manifest: &str, dependency: &Dependency) -> usize {
    let mut section = "";
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        }
        let rest = line.strip_prefix(dependency.name.as_str());
        let named = rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
        if named && section.ends_with(dependency.section.as_str()) {
            return number;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[(&str, &str)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(section, name)| Dependency {
                name: (*name).to_owned(),
                section: (*section).to_owned(),
            })
            .collect();
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            library: true,
            rust_version: None,
            dependencies,
        }
    }

    fn house() -> Vec<Package> {
        [
            ("strandline", "crates/strandline"),
            ("strandline-barrier", "crates/barrier"),
            ("strandline-cli", "crates/cli"),
            ("strandline-connectors", "crates/connectors"),
            ("strandline-coordinator", "crates/coordinator"),
            ("strandline-runtime", "crates/runtime"),
            ("strandline-snapshot", "crates/snapshot"),
            ("strandline-state", "crates/state"),
            ("strandline-store-object", "crates/store-object"),
            ("strandline-tests", "tests"),
            ("xtask", "xtask"),
        ]
        .map(|(name, folder)| package(name, folder, &[]))
        .into()
    }

    /// `edges` are lines of `package section dependency`.
    #[track_caller]
    fn check_edges(edges: &str, expected: &[&str]) {
        let mut packages = house();
        for edge in edges.lines() {
            let mut words = edge.split_whitespace().map(str::to_owned);
            let mut word = || words.next().expect("an edge has three words");
            let from = word();
            let found = packages.iter_mut().find(|package| package.name == from);
            let (section, name) = (word(), word());
            let edges = &mut found.expect("a package of the house").dependencies;
            edges.push(Dependency { name, section });
        }
        let tree = Tree { packages, ..Tree::default() };
        let found: Vec<String> = check(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn arrows_that_are_meant() {
        check_edges(
            "strandline-coordinator dependencies strandline-barrier\n\
             strandline-runtime dependencies strandline-barrier\n\
             strandline-runtime dependencies strandline-coordinator\n\
             strandline-runtime dependencies strandline-snapshot\n\
             strandline-runtime dependencies strandline-state\n\
             strandline-connectors dependencies strandline-runtime\n\
             strandline dependencies strandline-connectors\n\
             strandline dependencies strandline-store-object\n\
             strandline-store-object dependencies strandline-snapshot\n\
             strandline dev-dependencies strandline-state\n\
             strandline-cli dependencies strandline\n\
             strandline-tests dependencies strandline\n\
             strandline-tests dev-dependencies strandline-snapshot\n\
             strandline-state dependencies serde\n",
            &[],
        );
    }

    #[test]
    fn arrows_that_are_forbidden() {
        check_edges(
            "strandline-state dependencies strandline-snapshot",
            &["crates/state/Cargo.toml:1: strandline-state must not name strandline-snapshot"],
        );
        check_edges(
            "strandline-coordinator dependencies strandline-state",
            &["crates/coordinator/Cargo.toml:1: \
               strandline-coordinator must not name strandline-state"],
        );
        check_edges(
            "strandline-runtime dev-dependencies strandline-connectors",
            &[
                "crates/runtime/Cargo.toml:1: strandline-runtime must not name strandline-connectors",
            ],
        );
        check_edges(
            "strandline-connectors dependencies strandline-snapshot",
            &["crates/connectors/Cargo.toml:1: \
               strandline-connectors must not name strandline-snapshot"],
        );
        check_edges(
            "strandline dev-dependencies strandline-cli",
            &["crates/strandline/Cargo.toml:1: strandline must not name strandline-cli"],
        );
        check_edges(
            "strandline-cli dependencies strandline-runtime",
            &["crates/cli/Cargo.toml:1: strandline-cli must not name strandline-runtime"],
        );
        check_edges(
            "strandline-store-object dependencies strandline-runtime",
            &["crates/store-object/Cargo.toml:1: \
               strandline-store-object must not name strandline-runtime"],
        );
        check_edges(
            "xtask dependencies strandline",
            &["xtask/Cargo.toml:1: xtask must not name strandline"],
        );
    }

    #[test]
    fn the_tests_of_a_leaf_stand_alone_too() {
        check_edges(
            "strandline-barrier dev-dependencies strandline-state\n\
             strandline-snapshot build-dependencies strandline-state",
            &[
                "crates/barrier/Cargo.toml:1: strandline-barrier must not name strandline-state",
                "crates/snapshot/Cargo.toml:1: strandline-snapshot must not name strandline-state",
            ],
        );
    }

    #[test]
    fn a_package_needs_a_place_and_a_name() {
        let packages = vec![package("strandline-utils", "crates/utils", &[])];
        let tree = Tree { packages, ..Tree::default() };
        let found: Vec<String> = check(&tree).iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/utils/Cargo.toml:1: strandline-utils: \
                 a name that says nothing about what is inside",
                "crates/utils/Cargo.toml:1: strandline-utils has no place among the layers",
            ]
        );
    }

    #[test]
    fn the_line_is_that_of_the_section() {
        let text = "[dependencies]\nstrandline-state-x = \"1\"\n\n\
                    [dev-dependencies]\nstrandline-state.workspace = true\n";
        let packages = vec![
            package(
                "strandline-barrier",
                "crates/barrier",
                &[("dev-dependencies", "strandline-state")],
            ),
            package("strandline-state", "crates/state", &[]),
        ];
        let files =
            vec![File { path: "crates/barrier/Cargo.toml".to_owned(), text: text.to_owned() }];
        let tree = Tree { packages, files, ..Tree::default() };
        assert_eq!(check(&tree).first().map(|problem| problem.line), Some(5));
    }
}
