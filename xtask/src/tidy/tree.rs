//! Reads the tree and what cargo says about its packages.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Dependency, File, Package, Tree};
use crate::workspace::cargo;

/// Hidden folders whose files are read all the same.
const SHOWN: [&str; 2] = [".cargo", ".ci"];

/// Reads all text under the root, apart from build output and sample data.
pub(super) fn read(root: &Path) -> Result<Tree, Box<dyn Error>> {
    let mut tree = Tree { packages: packages(root)?, ..Tree::default() };
    tree.paths.insert(String::new());
    walk(root, "", &mut tree)?;
    Ok(tree)
}

fn walk(root: &Path, folder: &str, tree: &mut Tree) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(format!("a name that is not UTF-8: {}", entry.path().display()).into());
        };
        if is_left_out(&name) {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            walk(root, &path, tree)?;
        } else if is_ours(&path) {
            let text = fs::read_to_string(entry.path()).map_err(|e| format!("{path}: {e}"))?;
            tree.files.push(File { path: path.clone(), text });
        }
        tree.paths.insert(path);
    }
    Ok(())
}

fn is_left_out(name: &str) -> bool {
    name == "target" || (name.starts_with('.') && !SHOWN.contains(&name))
}

/// Whether the text was written for this project, and is no sample, vector or lock file.
fn is_ours(path: &str) -> bool {
    if path.starts_with("data/") {
        return path.ends_with(".md");
    }
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    path.starts_with(".ci/")
        || matches!(extension, Some("md" | "py" | "rs" | "sh" | "toml" | "txt"))
}

fn packages(root: &Path) -> Result<Vec<Package>, Box<dyn Error>> {
    let output = cargo().args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    parse(&serde_json::from_slice(&output.stdout)?, root)
}

fn parse(metadata: &Value, root: &Path) -> Result<Vec<Package>, Box<dyn Error>> {
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.ok_or("cargo metadata names no packages")?;
    packages.iter().map(|package| parse_package(package, root)).collect()
}

fn parse_package(package: &Value, root: &Path) -> Result<Package, Box<dyn Error>> {
    let name = text(package, "name")?;
    let manifest = text(package, "manifest_path")?;
    let folder = Path::new(&manifest).parent().unwrap_or_else(|| Path::new(""));
    let folder = folder.strip_prefix(root)?.display().to_string().replace('\\', "/");
    Ok(Package {
        name,
        folder,
        library: list(package, "targets").any(is_library),
        rust_version: text(package, "rust_version").ok(),
        dependencies: list(package, "dependencies").map(dependency).collect::<Result<_, _>>()?,
    })
}

fn is_library(target: &Value) -> bool {
    list(target, "kind").any(|kind| kind == "lib")
}

fn dependency(dependency: &Value) -> Result<Dependency, Box<dyn Error>> {
    let kind = dependency.get("kind").and_then(Value::as_str);
    let section =
        kind.map_or_else(|| "dependencies".to_owned(), |kind| format!("{kind}-dependencies"));
    Ok(Dependency { name: text(dependency, "name")?, section })
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(of: &Value, name: &str) -> Result<String, Box<dyn Error>> {
    let text = of.get(name).and_then(Value::as_str);
    Ok(text.ok_or_else(|| format!("cargo metadata has no text named {name}"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_metadata() {
        let metadata = serde_json::json!({ "packages": [{
            "name": "strandline-x",
            "manifest_path": "/house/crates/x/Cargo.toml",
            "rust_version": "1.89",
            "targets": [{ "kind": ["lib"] }, { "kind": ["test"] }],
            "dependencies": [
                { "name": "serde", "kind": null },
                { "name": "strandline-y", "kind": "dev" },
            ],
        }] });
        let packages = parse(&metadata, Path::new("/house")).expect("the metadata are whole");
        let [package] = packages.as_slice() else { panic!("one package: {packages:?}") };
        assert_eq!((package.name.as_str(), package.folder.as_str()), ("strandline-x", "crates/x"));
        assert_eq!((package.library, package.rust_version.as_deref()), (true, Some("1.89")));
        let named: Vec<(&str, &str)> =
            package.dependencies.iter().map(|d| (d.section.as_str(), d.name.as_str())).collect();
        assert_eq!(named, [("dependencies", "serde"), ("dev-dependencies", "strandline-y")]);
    }

    #[test]
    fn metadata_of_another_shape_are_an_error() {
        assert!(parse(&serde_json::json!({}), Path::new("/")).is_err());
        let nameless = serde_json::json!({ "packages": [{}] });
        let error = parse(&nameless, Path::new("/")).expect_err("a package has a name");
        assert_eq!(error.to_string(), "cargo metadata has no text named name");
    }

    #[track_caller]
    fn check_ours(paths: &str, expected: bool) {
        for path in paths.split_whitespace() {
            assert_eq!(is_ours(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_read() {
        check_ours("README.md crates/x/src/lib.rs Cargo.toml .ci/run data/README.md", true);
        check_ours("Cargo.lock data/licences/MPL-2.0.txt data/flights/a.csv LICENSE-MIT", false);
        assert!(is_left_out("target") && is_left_out(".git"));
        assert!(!is_left_out(".ci") && !is_left_out("src"));
    }
}
