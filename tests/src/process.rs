//! Programs of this workspace as processes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A program of this workspace that has been built.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

/// One build at a time, so that messages do not mix.
static BUILDING: Mutex<()> = Mutex::new(());

/// Builds a program (an example or a binary) with the profile of the test, and says where it is.
/// Nothing is done where it is up to date.
///
/// # Panics
/// It doesn't build.
#[must_use]
pub fn build(package: &str, kind: &str, name: &str) -> Program {
    build_with(package, kind, name, &[])
}

/// The same with features of its package, which it keeps until it is built without them.
///
/// # Panics
/// It doesn't build.
#[must_use]
pub fn build_with(package: &str, kind: &str, name: &str, features: &[&str]) -> Program {
    let _one_at_a_time = BUILDING.lock();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", package, kind, name]);
    cargo.args(["--features", &features.join(",")]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(crate::repository()).status().expect("cargo runs");
    assert!(status.success(), "{package} {name} does not build");
    let mut folder = std::env::current_exe().expect("a test has a path");
    folder.pop();
    folder.pop();
    if kind == "--example" {
        folder.push("examples");
    }
    Program { path: folder.join(name) }
}

/// A process that runs, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
}

/// What a process said, and how it ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Program {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts it.
    ///
    /// # Panics
    /// It can't be started.
    pub fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Running {
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        Running {
            child: Some(child.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))),
        }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// It does not end within two minutes.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ended {
        self.start(arguments).wait()
    }
}

impl Running {
    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end within two minutes.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let mut child = self.child.take().expect("a running process has a child");
        let limit = watchdog(child.id());
        // Reads both pipes to their ends, so that a talkative process is never held up.
        let output = child_output(&mut child);
        drop(limit);
        Ended::of(output)
    }

    /// Lets it run for a while, then kills it as `kill -9` does. Its end if it was faster.
    #[must_use]
    pub fn kill_after(mut self, time: Duration) -> Ended {
        pause(time);
        let mut child = self.child.take().expect("a running process has a child");
        // A process that has ended can't be killed, and need not be.
        drop(child.kill());
        Ended::of(child_output(&mut child))
    }

    /// Sends it a signal by number.
    ///
    /// # Panics
    /// There is no `kill` command.
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("a running process has a child").id();
        let kill = Command::new("kill").args([format!("-{name}"), id.to_string()]).status();
        assert!(kill.expect("there is a kill command").success(), "signal {name} to {id}");
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        let child = self.child.as_mut().expect("a running process has a child");
        matches!(child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Ended {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// # Panics
    /// It ended otherwise.
    #[track_caller]
    pub fn expect_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
    }
}

fn child_output(child: &mut Child) -> Output {
    use std::io::Read;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stderr = child.stderr.take();
    let reading = start(move || {
        if let Some(mut pipe) = stderr {
            drop(pipe.read_to_end(&mut err));
        }
        err
    });
    if let Some(mut pipe) = child.stdout.take() {
        drop(pipe.read_to_end(&mut out));
    }
    let stderr = reading.join().unwrap_or_default();
    let status = child.wait().expect("a child can be waited for");
    Output { status, stdout: out, stderr }
}

/// Kills the process after two minutes unless dropped before.
fn watchdog(id: u32) -> std::sync::mpsc::Sender<()> {
    let (stop, stopped) = std::sync::mpsc::channel();
    drop(start(move || {
        let waited = stopped.recv_timeout(Duration::from_secs(120));
        if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            drop(Command::new("kill").args(["-9", &id.to_string()]).status());
        }
    }));
    stop
}

#[expect(clippy::disallowed_methods, reason = "tests start threads of their own")]
fn start<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(body)
}

#[expect(clippy::disallowed_methods, reason = "a kill at a random moment needs a moment")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until something holds, looking every few milliseconds.
///
/// # Panics
/// It does not hold within the limit.
#[expect(clippy::disallowed_methods, reason = "tests wait for other processes by the clock")]
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "waited {limit:?} in vain until {what}");
        pause(Duration::from_millis(3));
    }
}
