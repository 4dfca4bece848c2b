//! Where the workspace is, and cargo in it.

use std::path::PathBuf;
use std::process::Command;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// The cargo that runs this command, at the root.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    program_at_root(program)
}

/// Another program, at the root.
pub(crate) fn program_at_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The standard output of a program that succeeds, without the line end; `None` where it doesn't.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = program_at_root(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
