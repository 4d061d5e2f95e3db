//! A scripted server, connection by connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use yumen_load::{LoadPlan, LoadSummary, RequestPlan};

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A scripted server: its address, and the request heads that it read.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
}

/// A connection of the server.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// Index of the connection in the order of acceptance.
    pub(crate) number: usize,
    heads: Arc<Mutex<Vec<String>>>,
}

/// Serves every connection on its own thread with the script, until the test process exits.
pub(crate) fn serve(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let (script, recorded) = (Arc::new(script), heads.clone());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut peer = Peer { stream, number, heads: recorded.clone() };
            let script = script.clone();
            std::thread::spawn(move || script(&mut peer));
        }
    });
    Scripted { address, heads }
}

impl Peer {
    /// Reads one request without a body; returns false at the end of the connection.
    pub(crate) fn read(&mut self) -> bool {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match self.stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return false,
            }
        }
        self.heads.lock().unwrap().push(String::from_utf8(head).unwrap());
        true
    }

    /// Writes bytes. A client that has closed is no failure of the script.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Keeps the connection open without traffic until the client closes it.
    pub(crate) fn stay(&mut self) {
        let mut bytes = [0; 4096];
        while matches!(self.stream.read(&mut bytes), Ok(count) if count > 0) {}
    }
}

impl Scripted {
    pub(crate) fn plan(&self) -> LoadPlan {
        plan(format!("http://{}/", self.address))
    }
}

/// A plan for one connection, without count or duration. Timeouts are disabled by default.
pub(crate) fn plan(url: String) -> LoadPlan {
    LoadPlan {
        request: RequestPlan::get(url),
        connections: 1,
        connect_timeout_ms: 60_000,
        response_timeout_ms: 60_000,
        ..LoadPlan::default()
    }
}

/// Runs the plan and checks the invariants of every result.
pub(crate) fn run(plan: &LoadPlan) -> LoadSummary {
    let summary = yumen_load::run(plan, |_| {}).unwrap();
    let text = serde_json::to_string(&summary).unwrap();
    let back: LoadSummary = serde_json::from_str(&text).unwrap();
    // Fractions may differ in their last bit.
    assert!(
        (
            &back.plan,
            &back.errors,
            &back.timeline,
            &back.latencies.response.percentiles,
            &back.latencies.response.histogram
        ) == (
            &summary.plan,
            &summary.errors,
            &summary.timeline,
            &summary.latencies.response.percentiles,
            &summary.latencies.response.histogram
        ),
        "the JSON form is read back whole"
    );
    let seconds: u64 = summary.timeline.iter().map(|second| second.responses).sum();
    assert_eq!(seconds, summary.totals.responses, "the timeline has every response");
    assert_eq!(
        summary.statuses.values().sum::<u64>(),
        summary.totals.responses,
        "every response has a status"
    );
    assert_eq!(summary.latencies.response.count, summary.totals.responses, "every response has a latency");
    summary
}

/// The error classes with a count.
pub(crate) fn errors(summary: &LoadSummary) -> Vec<(&'static str, u64)> {
    summary.errors.by_class().into_iter().filter(|(_, count)| *count > 0).collect()
}
