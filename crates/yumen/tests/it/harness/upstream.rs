//! A scripted upstream: a thread per connection, a closure per request.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use super::client::field;
use super::free_port;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Request line and fields as received.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.0.0.lock().unwrap() = false;
    }

    /// Returns when the gate is open.
    pub(crate) fn pass(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Responds to one request on its connection; returns whether the connection continues.
type Script = dyn Fn(&Request, &mut TcpStream) -> bool + Send + Sync;

/// A listening upstream; ends on drop.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    stopped: AtomicBool,
}

impl Upstream {
    pub(crate) fn start(
        script: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Upstream {
        Upstream::at(Ipv4Addr::LOCALHOST.into(), script)
    }

    /// A scripted upstream on an address that other namespaces reach.
    pub(crate) fn at(
        host: IpAddr,
        script: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Upstream {
        // A gateway still connects to an upstream that has ended: the system must not assign its port to another test.
        let listener = loop {
            match TcpListener::bind((host, free_port().port())) {
                // Another process took the port meanwhile, or has it on this host only.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => break bound.expect("an address of this machine"),
            }
        };
        Upstream::accepting(listener, script)
    }

    /// A scripted upstream on this address.
    pub(crate) fn on(
        address: SocketAddr,
        script: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Upstream {
        Upstream::accepting(TcpListener::bind(address).expect("a free port"), script)
    }

    fn accepting(
        listener: TcpListener,
        script: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Upstream {
        let address = listener.local_addr().expect("an address");
        let counts = Arc::<Counts>::default();
        let (script, counters): (Arc<Script>, _) = (Arc::new(script), counts.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if counters.stopped.load(Ordering::Acquire) {
                    return;
                }
                counters.connections.fetch_add(1, Ordering::AcqRel);
                let (script, counts) = (script.clone(), counters.clone());
                // Small stacks, because some tests open thousands of connections.
                let small = std::thread::Builder::new().stack_size(128 * 1024);
                let _ = small.spawn(move || serve(stream, &*script, &counts));
            }
        });
        Upstream { address, counts }
    }

    /// Responds with a JSON description of the request and its own name.
    pub(crate) fn echo(name: &'static str) -> Upstream {
        Upstream::start(move |request, stream| {
            let body = describe(name, request).to_string();
            respond(stream, 200, "Content-Type: application/json\r\n", body.as_bytes())
        })
    }

    pub(crate) fn text(text: &'static str) -> Upstream {
        Upstream::start(move |_, stream| respond(stream, 200, "", text.as_bytes()))
    }

    /// Responds when the gate is open.
    pub(crate) fn gated(gate: &Gate, text: &'static str) -> Upstream {
        let gate = gate.clone();
        Upstream::start(move |_, stream| {
            gate.pass();
            respond(stream, 200, "", text.as_bytes())
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Acquire)
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Acquire)
    }

    /// `nodes` with this endpoint.
    pub(crate) fn nodes(&self) -> Value {
        json!({ self.address.to_string(): 1 })
    }

    /// An upstream with this endpoint.
    pub(crate) fn alone(&self) -> Value {
        json!({ "nodes": self.nodes() })
    }

    /// A document with a route for all requests to this endpoint.
    pub(crate) fn everything(&self) -> Value {
        json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": self.alone() }] })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.counts.stopped.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// Writes a complete response that keeps the connection.
pub(crate) fn respond(stream: &mut TcpStream, status: u16, fields: &str, body: &[u8]) -> bool {
    let head = format!("HTTP/1.1 {status} Whatever\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes).is_ok()
}

fn describe(name: &str, request: &Request) -> Value {
    let fields = request.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let mut map = serde_json::Map::new();
    for (name, value) in fields {
        map.insert(name.to_ascii_lowercase(), value.into());
    }
    json!({
        "name": name,
        "method": request.method,
        "target": request.target,
        "fields": map,
        "body": String::from_utf8_lossy(&request.body),
    })
}

fn serve(stream: TcpStream, script: &Script, counts: &Counts) {
    let _ = stream.set_nodelay(true);
    let mut writer = stream.try_clone().expect("a second handle");
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader, &mut writer) {
        counts.requests.fetch_add(1, Ordering::AcqRel);
        if counts.stopped.load(Ordering::Acquire) || !script(&request, &mut writer) {
            break;
        }
    }
    let _ = writer.shutdown(std::net::Shutdown::Both);
}

fn read_request(reader: &mut BufReader<TcpStream>, writer: &mut TcpStream) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = Request { method, target, head, body: Vec::new() };
    if request.field("expect").is_some() {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if request.field("transfer-encoding").is_some() {
        let mut body = Vec::new();
        while read_chunk(reader, &mut body)? {}
        request.body = body;
    } else if let Some(length) = request.field("content-length") {
        let length: u64 = length.parse().ok()?;
        reader.take(length).read_to_end(&mut request.body).ok()?;
    }
    Some(request)
}

fn read_chunk(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<bool> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let size = u64::from_str_radix(line.trim(), 16).ok()?;
    reader.take(size).read_to_end(body).ok()?;
    let mut end = String::new();
    reader.read_line(&mut end).ok()?;
    Some(size > 0)
}
