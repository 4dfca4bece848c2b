//! The client of S3 over a proxy that does what it is asked and loses the reply.
//!
//! Needs the server of `STRANDLINE_TEST_S3`; without it the test says so and does nothing.
#![cfg(feature = "s3")]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use strandline_snapshot::{ErrorKind, Store};
use strandline_store_object::{CloudStore, Options};

/// Passes requests on, one a connection, one after the other.
struct Proxy {
    listener: TcpListener,
    /// Host and port of the server.
    server: String,
    /// The reply to the first request that begins like this is lost.
    loses: Mutex<Option<&'static str>>,
    over: AtomicBool,
}

impl Proxy {
    fn new(endpoint: &str) -> io::Result<Self> {
        let server = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self { listener, server, loses: Mutex::new(None), over: AtomicBool::new(false) })
    }

    fn run(&self) {
        while !self.over.load(Ordering::SeqCst) {
            // A client that gives up is no concern of the proxy.
            let passed = self.listener.accept().and_then(|(client, _)| self.pass(client));
            drop(passed);
        }
    }

    fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        drop(self.listener.local_addr().and_then(TcpStream::connect));
    }

    fn lose(&self, beginning: &'static str) {
        *self.loses.lock().expect("no panic") = Some(beginning);
    }

    /// Whether what was to be lost has been.
    fn has_lost(&self) -> bool {
        self.loses.lock().expect("no panic").is_none()
    }

    fn pass(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = read_request(&mut client)?;
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(&one_only(&request))?;
        let mut reply = Vec::new();
        server.read_to_end(&mut reply)?;
        let lost =
            self.loses.lock().expect("no panic").take_if(|l| request.starts_with(l.as_bytes()));
        if lost.is_none() {
            client.write_all(&one_only(&reply))?;
        }
        Ok(())
    }
}

/// With a header that makes the other side close after it.
fn one_only(message: &[u8]) -> Vec<u8> {
    let line = message.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (line, rest) = message.split_at(line);
    [line, b"Connection: close\r\n", rest].concat()
}

fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut request, mut buffer) = (Vec::new(), [0; 65_536]);
    loop {
        let read = client.read(&mut buffer)?;
        request.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if read == 0 || is_whole(&request) {
            return Ok(request);
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(request.split_at(end).0).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    request.len() >= end + 4 + length
}

#[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
fn skipped() {
    println!("skipped: STRANDLINE_TEST_S3 is not set; `cargo xtask services up` starts servers");
}

/// A store over the proxy, in a folder that no other run has used.
fn open(proxy: &Proxy, uri: &str) -> CloudStore {
    let bucket = uri.trim_start_matches("s3://").split('/').next().expect("a bucket");
    let address = proxy.listener.local_addr().expect("the proxy listens");
    let client = AmazonS3Builder::from_env()
        .with_endpoint(format!("http://{address}"))
        .with_allow_http(true)
        .with_disable_bulk_delete(true)
        .with_bucket_name(bucket)
        .build()
        .expect("the variables are there");
    let folder = format!("lost-{:016x}", RandomState::new().hash_one(std::process::id()));
    let options = Options { part_bytes: 5 << 20, ..Options::default() };
    CloudStore::new(Arc::new(client), &format!("s3://{bucket}"), &folder, options)
        .expect("fine settings")
}

fn check(proxy: &Proxy, store: &dyn Store) {
    proxy.lose("PUT ");
    store.create("lost", b"ours").expect("it was written");
    assert!(proxy.has_lost());
    assert_eq!(store.read("lost", 0, 4).expect("it is there"), b"ours");

    proxy.lose("PUT ");
    let error = store.create("lost", b"else").expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert!(proxy.has_lost());

    let bytes: Vec<u8> = (0..=250).cycle().take(11 << 20).collect();
    let mut upload = store.put("parts").expect("it begins");
    upload.write(&bytes).expect("it is written");
    // Of the parts one is sent at the end; then the upload is completed.
    proxy.lose("POST ");
    assert_eq!(upload.finish().expect("it was completed"), bytes.len() as u64);
    assert!(proxy.has_lost());
    assert!(store.read("parts", 0, bytes.len()).expect("it is there") == bytes);

    proxy.lose("DELETE ");
    store.delete("parts").expect("it is deleted");
    assert!(proxy.has_lost());
    assert_eq!(store.list("").expect("a list").len(), 1);
}

#[test]
fn of_a_server() {
    let Ok(uri) = std::env::var("STRANDLINE_TEST_S3") else { return skipped() };
    let endpoint = std::env::var("AWS_ENDPOINT_URL").expect("the server has an endpoint");
    let proxy = Proxy::new(&endpoint).expect("a port");
    let store = open(&proxy, &uri);
    std::thread::scope(|scope| {
        scope.spawn(|| proxy.run());
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&proxy, &store)));
        proxy.stop();
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
}
