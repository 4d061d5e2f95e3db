//! A worker, a scripted upstream and a scripted client over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use yumen_actions::SessionTicket;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_proxy::run::{self, WorkerListeners};
use yumen_proxy::settings::{DotSegmentPolicy, SESSION_KEY_BYTES, SessionKeys};
use yumen_proxy::{
    Listener, ListenerSettings, WorkerCounters, WorkerDuty, WorkerParts, WorkerSettings, listener,
};
use yumen_snapshot::{Compiler, CompilerEnv, Publisher, UpstreamDefaults};

use crate::case::{Case, Step};

/// The key of sessions.
const SESSION_KEY: [u8; SESSION_KEY_BYTES] = [7; SESSION_KEY_BYTES];
/// Timeout for expected bytes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a chunk to be read before the next one is sent.
const PAUSE: Duration = Duration::from_micros(400);

/// The segmentation of the bytes in a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cut {
    Whole,
    Bytes,
    Client(usize),
    Upstream(usize),
}

/// A worker that serves one case, and the listening socket of its upstream.
pub(crate) struct Gateway {
    address: SocketAddr,
    upstream: TcpListener,
    duty: watch::Sender<WorkerDuty>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.duty.send(WorkerDuty::End { within_ms: 100 });
        let _ = self.thread.take().expect("it is taken once").join();
    }
}

impl Gateway {
    pub(crate) fn start(case: &Case) -> Gateway {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        upstream.set_nonblocking(true).unwrap();
        let publisher = Arc::new(Publisher::default());
        let names = Names::new(upstream.local_addr().unwrap().port(), 0);
        publisher.publish(compile(&String::from_utf8(names.put(case.config.as_bytes())).unwrap()));
        let address = "127.0.0.1:0".parse().unwrap();
        let listening = ListenerSettings::plain(address);
        let socket = listener::bind(&listening, 1).unwrap().pop().unwrap();
        let address = socket.local_addr().unwrap();
        let (duty, duty_rx) = watch::channel(WorkerDuty::Serve);
        let settings = settings(case);
        let thread = std::thread::spawn(move || {
            let parts = WorkerParts {
                id: 0,
                settings: Arc::new(settings),
                publisher,
                counters: Arc::new(WorkerCounters::default()),
                applied: Arc::default(),
                log: None,
                otlp_log: None,
                duty: duty_rx,
                seed: 1,
            };
            let listeners = vec![Listener::plain(socket)];
            run::worker(parts, WorkerListeners { listeners, ..WorkerListeners::default() }).unwrap();
        });
        Gateway { address, upstream, duty, thread: Some(thread) }
    }

    /// Replays the case once; returns the first deviation.
    pub(crate) fn replay(&self, case: &Case, cut: Cut) -> Result<(), String> {
        // Connections that an earlier replay left in the queue.
        while self.upstream.accept().is_ok() {}
        let names = Names::new(self.upstream.local_addr().unwrap().port(), self.address.port());
        std::thread::scope(|scope| {
            let side = scope.spawn(|| self.play_upstream(case, cut, &names));
            let mut stream = TcpStream::connect(self.address).unwrap();
            let client = Side::new(&names, cut, |cut, at| cut == Cut::Client(at)).play(
                &case.client,
                &mut stream,
                |_| Ok(()),
            );
            // The upstream's connection lives until here.
            match (client, side.join().unwrap()) {
                (Ok(()), Ok(_)) => Ok(()),
                (client, upstream) => {
                    let text = |side: Result<(), String>| side.err().unwrap_or_else(|| "was content".into());
                    Err(format!("client {}\n  upstream {}", text(client), text(upstream.map(drop))))
                }
            }
        })?;
        match self.upstream.accept() {
            Ok(_) => Err("the upstream was asked once too often".into()),
            Err(_) => Ok(()),
        }
    }

    fn play_upstream(&self, case: &Case, cut: Cut, names: &Names) -> Result<Option<TcpStream>, String> {
        if case.upstream.is_empty() {
            return Ok(None);
        }
        let mut stream = self.accept()?;
        Side::new(names, cut, |cut, at| cut == Cut::Upstream(at)).play(
            &case.upstream,
            &mut stream,
            |stream| {
                *stream = self.accept()?;
                Ok(())
            },
        )?;
        Ok(Some(stream))
    }

    fn accept(&self) -> Result<TcpStream, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.upstream.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    return Ok(stream);
                }
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(100)),
                Err(_) => return Err("was not asked".into()),
            }
        }
    }
}

fn compile(document: &str) -> Arc<yumen_snapshot::Snapshot> {
    let (resources, problems) = yumen_config::document::parse(document, &|_| None);
    assert!(problems.is_empty(), "{document}\n{problems:?}");
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts { workers: 1, ..NodeFacts::default() },
        defaults: UpstreamDefaults::default(),
        path_parameters: false,
        workers: 1,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(
            |_: &str,
             _: &str|
             -> Result<yumen_snapshot::compile::Loaded, yumen_snapshot::compile::KeyPairError> {
                Err(yumen_snapshot::compile::KeyPairError::Certificate("there is no TLS here".into()))
            },
        ),
    };
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let compiled = Compiler::new(registry, Arc::new(Carry::default()), env).replace_all(resources, 1);
    assert!(compiled.problems.is_empty(), "{document}\n{:?}", compiled.problems);
    compiled.snapshot
}

fn settings(case: &Case) -> WorkerSettings {
    let session_keys = Arc::new(SessionKeys::new(&[SESSION_KEY]));
    let mut settings = WorkerSettings { session_keys, ..WorkerSettings::default() };
    for (name, value) in &case.settings {
        match name.as_str() {
            "head_bytes_max" => settings.limits.request_head.head_bytes_max = *value as usize,
            "target_bytes_max" => settings.limits.request_head.target_bytes_max = *value as usize,
            "fields_max" => settings.limits.request_head.fields_max = *value as usize,
            "trace_requests" => settings.forwarding.trace_requests = *value != 0,
            "dot_segments" => {
                settings.limits.request_head.paths.dot_segments = match *value {
                    0 => DotSegmentPolicy::Resolve,
                    1 => DotSegmentPolicy::Refuse,
                    _ => DotSegmentPolicy::AsReceived,
                }
            }
            "body_bytes_max" => settings.limits.body_bytes_max = *value,
            "head_timeout_ms" => settings.timeouts.head_ms = *value,
            "body_timeout_ms" => settings.timeouts.body_ms = *value,
            "idle_timeout_ms" => settings.timeouts.idle_ms = *value,
            other => panic!("unknown setting {other}"),
        }
    }
    settings
}

/// Addresses that differ from run to run.
struct Names {
    upstream: u16,
    gateway: u16,
    /// Sealed values of sessions at this upstream, at an endpoint that is gone, and of the backend `a`. The sides share
    /// them, as each sealing gives other bytes.
    sessions: [String; 3],
}

impl Names {
    fn new(upstream: u16, gateway: u16) -> Names {
        let sessions = [session(upstream, 0), session(1, 0), session(upstream, 0xaf63_dc4c_8601_ec8c)];
        Names { upstream, gateway, sessions }
    }

    /// Replaces the names of addresses with the addresses of this run.
    fn put(&self, bytes: &[u8]) -> Vec<u8> {
        let [here, gone, of_a] = &self.sessions;
        let pairs = [
            ("SESSION_GONE", gone.clone()),
            ("SESSION_OF_A", of_a.clone()),
            ("SESSION", here.clone()),
            ("UPSTREAM_PORT", self.upstream.to_string()),
            ("UPSTREAM", format!("127.0.0.1:{}", self.upstream)),
            ("GATEWAY_PORT", self.gateway.to_string()),
        ];
        pairs
            .iter()
            .fold(bytes.to_vec(), |bytes, (name, value)| replace(&bytes, name.as_bytes(), value.as_bytes()))
    }
}

/// The sealed value of a session that began now.
fn session(port: u16, backend: u64) -> String {
    let issued_s = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let ticket = SessionTicket { backend, address: SocketAddr::from(([127, 0, 0, 1], port)), issued_s };
    SessionKeys::new(&[SESSION_KEY]).seal("sid", &ticket).unwrap()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn replace(bytes: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Runs the steps of one side of the gateway.
struct Side<'a> {
    names: &'a Names,
    cut: Cut,
    own: fn(Cut, usize) -> bool,
    sent: usize,
    /// Received bytes that no step has expected yet.
    received: Vec<u8>,
}

impl<'a> Side<'a> {
    fn new(names: &'a Names, cut: Cut, own: fn(Cut, usize) -> bool) -> Side<'a> {
        Side { names, cut, own, sent: 0, received: Vec::new() }
    }

    fn play(
        &mut self,
        steps: &[Step],
        stream: &mut TcpStream,
        mut next: impl FnMut(&mut TcpStream) -> Result<(), String>,
    ) -> Result<(), String> {
        stream.set_nodelay(true).unwrap();
        for step in steps {
            match step {
                Step::Sends(bytes) => self.send(stream, &self.names.put(bytes)),
                Step::Gets(expected) => self.get(stream, &self.names.put(expected))?,
                // The other side may have closed the connection already.
                Step::Shuts => drop(stream.shutdown(Shutdown::Write)),
                Step::Closes => drop(stream.shutdown(Shutdown::Both)),
                Step::Ends => self.ends(stream)?,
                Step::Accepts => {
                    next(stream)?;
                    stream.set_nodelay(true).unwrap();
                }
                Step::Waits(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            }
        }
        match self.received.is_empty() {
            true => Ok(()),
            false => Err(format!("got more than expected: {}", self.received.escape_ascii())),
        }
    }

    fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) {
        let mut start = 0;
        for at in 1..bytes.len() {
            if self.cut == Cut::Bytes || (self.own)(self.cut, self.sent + at) {
                // An early refusal may have closed the connection; the next read shows that.
                let _ = stream.write_all(&bytes[start..at]);
                std::thread::sleep(PAUSE / if self.cut == Cut::Bytes { 8 } else { 1 });
                start = at;
            }
        }
        let _ = stream.write_all(&bytes[start..]);
        self.sent += bytes.len();
    }

    fn get(&mut self, stream: &mut TcpStream, expected: &[u8]) -> Result<(), String> {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut ended = "";
        loop {
            self.received = canonical(&self.received);
            if self.received.starts_with(expected) {
                self.received.drain(..expected.len());
                return Ok(());
            }
            if !ended.is_empty() || Instant::now() > deadline {
                let show = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\n", "\\n\n    ");
                let (found, expected) = (show(&self.received), show(expected));
                return Err(format!("got{ended}\n    {found}\n  instead of\n    {expected}"));
            }
            let mut buffer = [0; 16 * 1024];
            match stream.read(&mut buffer) {
                Ok(0) => ended = " (and then the end)",
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => ended = " (and then a reset)",
            }
        }
    }

    fn ends(&mut self, stream: &mut TcpStream) -> Result<(), String> {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match stream.read_to_end(&mut self.received) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("saw no end but: {error}")),
        }
    }
}

/// The bytes with a fixed date and fixed new sessions, and a chunked body as one chunk, because these may differ.
fn canonical(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, b"\r\nDate: ") {
        let (before, date) = rest.split_at(at + 8);
        out.extend_from_slice(before);
        let end = find(date, b"\r\n").unwrap_or(date.len());
        out.extend_from_slice(if date[..end].ends_with(b"GMT") { b"DATE" } else { &date[..end] });
        rest = &date[end..];
    }
    out.extend_from_slice(rest);
    for mark in [&b"\r\nSet-Cookie: sid="[..], b"\r\nsid: "] {
        out = new_session(&out, mark);
    }
    one_chunk(&out)
}

/// The bytes with `TICKET` for the sealed value behind each `mark`, whose nonce is random.
fn new_session(bytes: &[u8], mark: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, mark) {
        let (before, value) = rest.split_at(at + mark.len());
        out.extend_from_slice(before);
        let is_sealed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let end = value.iter().position(|byte| !is_sealed(byte)).unwrap_or(value.len());
        out.extend_from_slice(if end == 84 && end < value.len() { b"TICKET" } else { &value[..end] });
        rest = &value[end..];
    }
    out.extend_from_slice(rest);
    out
}

fn one_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, b"\r\nTransfer-Encoding: chunked\r\n") {
        let Some(end) = find(&rest[at..], b"\r\n\r\n") else { break };
        let (head, body) = rest.split_at(at + end + 4);
        out.extend_from_slice(head);
        let (data, after) = chunks(body);
        if !data.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
            out.extend_from_slice(&data);
            out.extend_from_slice(b"\r\n");
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The data of all complete chunks but the last, and the rest.
fn chunks(mut body: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut data = Vec::new();
    loop {
        let Some(line) = find(body, b"\r\n") else { return (data, body) };
        let size =
            std::str::from_utf8(&body[..line]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        match size {
            Some(size @ 1..) if body.len() >= line + 4 + size => {
                data.extend_from_slice(&body[line + 2..line + 2 + size]);
                body = &body[line + 4 + size..];
            }
            _ => return (data, body),
        }
    }
}
