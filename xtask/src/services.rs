//! `cargo xtask services`: the servers that some tests need, installed and started by hand of this
//! command, on this machine only.
//!
//! All of it lies in `target/services`: one folder for each server with its files (`installed`), its
//! data, its log and the id of its process, and one file `env` with the variables that the tests
//! need. Each server listens on 127.0.0.1, on ports of its own that are not the usual ones.

mod process;
mod servers;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::Outcome;
use crate::workspace::root;
use process::Process;
use servers::{SERVERS, Server};

/// What `up`, `down` and `status` do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Up,
    Down,
    Status,
}

/// Whether all servers are as they were asked to be; of `status`, whether all of them run.
pub(crate) fn run(action: Action) -> Result<bool, Box<dyn Error>> {
    match action {
        Action::Up => {
            let outcome = up()?;
            print!("\n{}", env_file(&variables()));
            println!("\n. target/services/env sets these variables in a shell");
            Ok(outcome == Outcome::Passed)
        }
        Action::Down => Ok(down()? == Outcome::Passed),
        Action::Status => Ok(status()),
    }
}

/// Installs and starts what doesn't run yet. One that fails doesn't keep the others from starting.
pub(crate) fn up() -> Result<Outcome, Box<dyn Error>> {
    let mut failed = Vec::new();
    for server in &SERVERS {
        match start(server) {
            Ok(how) => println!("{}: {how}", server.name),
            Err(error) => {
                eprintln!("{}: {error}", server.name);
                failed.push(server.name);
            }
        }
    }
    fs::create_dir_all(folder())?;
    fs::write(folder().join("env"), env_file(&variables()))?;
    if failed.is_empty() {
        return Ok(Outcome::Passed);
    }
    eprintln!("not started: {}", failed.join(", "));
    Ok(Outcome::Failed)
}

/// Stops whatever runs, whoever has started it.
pub(crate) fn down() -> Result<Outcome, Box<dyn Error>> {
    let mut outcome = Outcome::Passed;
    for server in &SERVERS {
        match process(server).stop() {
            Ok(true) => println!("{}: stopped", server.name),
            Ok(false) => println!("{}: not running", server.name),
            Err(error) => {
                eprintln!("{}: {error}", server.name);
                outcome = Outcome::Failed;
            }
        }
    }
    Ok(outcome)
}

/// What the tests need to know of the servers that run.
pub(crate) fn variables() -> Vec<(&'static str, &'static str)> {
    let running = SERVERS.iter().filter(|server| process(server).id().is_some());
    running.flat_map(|server| server.variables.iter().copied()).collect()
}

fn status() -> bool {
    let mut all = true;
    for server in &SERVERS {
        let id = process(server).id();
        let state = id.map_or_else(|| "not running".to_owned(), |id| format!("running, pid {id}"));
        println!("{:<10} {state}; {}", server.name, server.about);
        all &= id.is_some();
    }
    all
}

fn start(server: &Server) -> Result<&'static str, Box<dyn Error>> {
    let process = process(server);
    if process.id().is_some() {
        return Ok("runs already");
    }
    let folder = folder().join(server.name);
    install(server, &folder)?;
    // Old data would be in the way of tests that expect none.
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir_all(&data)?;
    process.start((server.command)(&folder), server.ports)?;
    let started = process.wait_until_ready(|| (server.ready)(&folder));
    if let Err(error) = started.and_then(|()| (server.prepare)(&folder)) {
        process.stop()?;
        return Err(error);
    }
    Ok("started")
}

/// Once for each version.
fn install(server: &Server, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mark = folder.join("version");
    if fs::read_to_string(&mark).is_ok_and(|version| version == server.version) {
        return Ok(());
    }
    println!("{}: installing {}", server.name, server.version);
    let files = folder.join("installed");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    (server.install)(&files)?;
    fs::write(mark, server.version)?;
    Ok(())
}

fn process(server: &Server) -> Process {
    Process::new(server.name, &folder().join(server.name))
}

fn folder() -> PathBuf {
    root().join("target/services")
}

fn env_file(variables: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in variables {
        writeln!(text, "export {name}={value}").expect("writing to a string succeeds");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_servers_share_a_port_or_a_name() {
        let ports: Vec<u16> = SERVERS.iter().flat_map(|server| server.ports).copied().collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        let names: BTreeSet<&str> = SERVERS.iter().map(|server| server.name).collect();
        assert_eq!(names.len(), SERVERS.len());
    }

    #[test]
    fn variables_go_to_their_ports() {
        for server in &SERVERS {
            let port = server.ports.first().expect("a server listens somewhere").to_string();
            let named = server.variables.iter().any(|(_, value)| value.contains(&port));
            assert!(named, "{}: no variable has port {port}", server.name);
        }
    }

    #[test]
    fn the_env_file_is_for_a_shell() {
        assert_eq!(env_file(&[("A", "b"), ("C", "d")]), "export A=b\nexport C=d\n");
    }
}
