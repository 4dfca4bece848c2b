//! A Python with the wheels that the snapshot reader and its tests need.

use std::error::Error;
use std::path::{Path, PathBuf};

use crate::steps::{Outcome, run_cargo};
use crate::workspace::{output, program_at_root, root};

const WHEELS: [&str; 4] = ["blake3>=1", "lz4>=4", "msgpack>=1", "zstandard>=0.22"];
const IMPORTS: &str = "import blake3, lz4.block, msgpack, zstandard";

/// Tests the Python reader and the reference reader with what a job writes.
pub(crate) fn test() -> Result<Outcome, Box<dyn Error>> {
    if output("python3", &["-c", "import ensurepip, venv"]).is_none() {
        return Ok(Outcome::Skipped("there is no python3 with venv and pip".to_owned()));
    }
    let python = prepare()?.display().to_string();
    run_cargo(
        &["test", "-p", "strandline-tests", "--test", "python_reader"],
        &[("STRANDLINE_PYTHON", &python)],
    )
}

/// The interpreter of an environment of its own in `target/services`; it is made where it isn't
/// there yet.
pub(crate) fn prepare() -> Result<PathBuf, Box<dyn Error>> {
    let folder = root().join("target/services/python");
    let python = interpreter(&folder);
    if has_wheels(&python) {
        return Ok(python);
    }
    run(Path::new("python3"), &["-m", "venv", &folder.display().to_string()])?;
    let mut install = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    install.extend(WHEELS);
    run(&python, &install)?;
    if has_wheels(&python) { Ok(python) } else { Err("wheels don't do what they should".into()) }
}

fn interpreter(folder: &Path) -> PathBuf {
    folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

fn has_wheels(python: &Path) -> bool {
    output(&python.display().to_string(), &["-c", IMPORTS]).is_some()
}

fn run(program: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    println!("{} {}", program.display(), arguments.join(" "));
    let status = program_at_root(program).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("{} failed", program.display()).into()) }
}
