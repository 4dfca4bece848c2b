//! A server's process, known by the file with its id.

use std::error::Error;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(2);
const READY_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Process {
    name: &'static str,
    folder: PathBuf,
}

impl Process {
    pub(super) fn new(name: &'static str, folder: &Path) -> Self {
        Self { name, folder: folder.to_owned() }
    }

    /// The id of the process if it runs. Its command line names the folder, so that a process that
    /// has got the same id later is not taken for it.
    pub(super) fn id(&self) -> Option<u32> {
        let id = fs::read_to_string(self.id_file()).ok()?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(&*self.folder.to_string_lossy()).then_some(id)
    }

    /// In a process group of its own, so that it outlives this command and can be stopped whole.
    pub(super) fn start(&self, mut command: Command, ports: &[u16]) -> Result<(), Box<dyn Error>> {
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
                .map_err(|error| format!("port {port} can't be had: {error}"))?;
        }
        let log = File::create(self.folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.current_dir(&self.folder).spawn();
        let child = child.map_err(|error| format!("{program} can't be started: {error}"))?;
        fs::write(self.id_file(), child.id().to_string())?;
        // Its command line is not there from the first moment.
        wait(START_LIMIT, || self.id().is_some());
        Ok(())
    }

    pub(super) fn wait_until_ready(&self, ready: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
        let over = wait(READY_LIMIT, || ready() || self.id().is_none());
        if self.id().is_none() {
            return Err(format!("it has ended; see {}", self.folder.join("log").display()).into());
        }
        if over {
            return Ok(());
        }
        let log = self.folder.join("log");
        Err(format!("not ready within {READY_LIMIT:?}; see {}", log.display()).into())
    }

    /// Whether there was something to stop.
    pub(super) fn stop(&self) -> Result<bool, Box<dyn Error>> {
        let Some(id) = self.id() else { return Ok(false) };
        self.signal("-TERM", id);
        if !wait(STOP_LIMIT, || self.id().is_none()) {
            self.signal("-KILL", id);
        }
        if !wait(STOP_LIMIT, || self.id().is_none()) {
            return Err(format!("{} can't be stopped: pid {id}", self.name).into());
        }
        fs::remove_file(self.id_file())?;
        Ok(true)
    }

    /// One that has just ended can't be signalled, and need not be.
    fn signal(&self, signal: &str, id: u32) {
        let group = format!("-{id}");
        let mut kill = Command::new("kill");
        kill.args([signal, "--", &group]).stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = kill.status() {
            eprintln!("{}: kill can't be run: {error}", self.name);
        }
    }

    fn id_file(&self) -> PathBuf {
        self.folder.join("pid")
    }
}

/// Whether it holds within the limit.
#[expect(clippy::disallowed_methods, reason = "other processes are waited for by the clock")]
fn wait(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}
