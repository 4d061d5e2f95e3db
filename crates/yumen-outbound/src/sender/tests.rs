//! Senders against servers of these tests: programmed replies, hanging, closing, slow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use yumen_plugin::sink::SinkResult;
use yumen_plugin::{
    BatchPolicy, SinkAddress, SinkBatch, SinkChunk, SinkEncoder, SinkFraming, SinkHandle, SinkHeartbeat,
    SinkRegistry, SinkReply, SinkRequest, SinkSpec, SinkTls, SinkVerdict,
};

use super::{SenderTools, run_sender};
use crate::standing::SinkStanding;

struct ListEncoder;

impl SinkEncoder for ListEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        vec![SinkRequest {
            method: "POST",
            target: "/logs".to_owned(),
            fields: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body: batch.framed(self.framing()),
            entries: batch.entries,
        }]
    }
}

/// Finds more results in each response than there were entries.
struct LavishEncoder;

impl SinkEncoder for LavishEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        ListEncoder.requests(batch)
    }

    fn verdict(&self, _: &SinkReply) -> SinkVerdict {
        SinkVerdict::Partial { retry: vec![0, 7], dropped: 9, reason: "refused".to_owned() }
    }
}

/// Announces itself until a server has taken that, then stays alive.
struct LivelyEncoder;

impl SinkEncoder for LivelyEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming::JSON_LIST
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        ListEncoder.requests(batch)
    }

    fn heartbeat(&self, taken: u64) -> Option<SinkHeartbeat> {
        let text: &'static [u8] = if taken == 0 { b"announce" } else { b"alive" };
        let body = vec![bytes::Bytes::from_static(text)];
        let request =
            SinkRequest { method: "POST", target: "/beat".to_owned(), body, ..SinkRequest::default() };
        Some(SinkHeartbeat { request, interval_ms: 20 })
    }
}

/// The behaviour of a server towards one request.
#[derive(Debug, Clone, Copy)]
enum StubReply {
    Status(u16),
    /// 429 with `Retry-After: 0`.
    Busy,
    /// 200, and the connection is closed although it was kept.
    ThenClose,
    /// The connection is closed without a response.
    Close,
    /// No response.
    Hang,
}

/// An HTTP server that records bodies and replies as programmed, then with 200.
struct StubServer {
    address: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl StubServer {
    async fn start(replies: &[StubReply]) -> StubServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::<Mutex<Vec<String>>>::default();
        let replies = Arc::new(Mutex::new(replies.iter().rev().copied().collect::<Vec<_>>()));
        let seen = bodies.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, replies) = (seen.clone(), replies.clone());
                tokio::spawn(async move {
                    while let Some(body) = read_request(&mut stream).await {
                        seen.lock().unwrap().push(body);
                        let reply = replies.lock().unwrap().pop().unwrap_or(StubReply::Status(200));
                        let text = match reply {
                            StubReply::Status(status) => {
                                format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n")
                            }
                            StubReply::Busy => {
                                "HTTP/1.1 429 x\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".to_owned()
                            }
                            StubReply::ThenClose => "HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n".to_owned(),
                            StubReply::Close => return,
                            StubReply::Hang => return std::future::pending().await,
                        };
                        stream.write_all(text.as_bytes()).await.unwrap();
                        if matches!(reply, StubReply::ThenClose) {
                            return;
                        }
                    }
                });
            }
        });
        StubServer { address, bodies }
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

/// Reads one request and returns its body; `None` at the end of the connection.
async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length: usize = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
            while bytes.len() < end + 4 + length {
                let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
                bytes.extend_from_slice(&buffer[..count]);
            }
            return Some(String::from_utf8_lossy(&bytes[end + 4..end + 4 + length]).into_owned());
        }
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn policy(batch_max_size: u32, max_retry_count: u32) -> BatchPolicy {
    BatchPolicy {
        batch_max_size,
        inactive_timeout_ms: 30,
        buffer_duration_ms: 60_000,
        max_retry_count,
        retry_delay_ms: 1,
        pending_entries_max: 100,
        pending_bytes_max: 1 << 20,
    }
}

fn http(address: &str) -> SinkAddress {
    SinkAddress::Http {
        endpoints: vec![address.to_owned()],
        tls: SinkTls::default(),
        timeout_ms: 300,
        idle_ms: 60_000,
    }
}

struct RunningSender {
    handle: SinkHandle,
    standing: Arc<SinkStanding>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(address: SinkAddress, policy: BatchPolicy) -> RunningSender {
    start_with(Arc::new(ListEncoder), address, policy)
}

fn start_with(encoder: Arc<dyn SinkEncoder>, address: SinkAddress, policy: BatchPolicy) -> RunningSender {
    let spec = SinkSpec {
        plugin: "http-logger",
        name: "http logger".into(),
        address,
        policy,
        encoder: String::new(),
    };
    let handle = SinkRegistry::default().open(spec, encoder);
    let (stop, stopped) = watch::channel(false);
    let standing = Arc::<SinkStanding>::default();
    let receiver = handle.queue().take_receiver().unwrap();
    let task = tokio::spawn(run_sender(receiver, SenderTools::new(stopped), standing.clone()));
    RunningSender { handle, standing, stop, task }
}

impl RunningSender {
    /// Waits until all entries have left the queue, or the sender has ended. Returns those sent and failed.
    async fn settled(self) -> (u64, u64) {
        let queue = self.handle.queue().clone();
        drop(self.handle);
        tokio::time::timeout(Duration::from_secs(20), self.task).await.expect("the sender ends").unwrap();
        assert_eq!(queue.waiting(), (0, 0));
        (queue.ended(SinkResult::Sent), queue.ended(SinkResult::DroppedFailed))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Three entries to an HTTP server: the bodies that it received, and the numbers of entries sent and dropped.
fn check(replies: &[StubReply], policy: BatchPolicy, bodies: &[&str], expected: (u64, u64)) {
    runtime().block_on(async {
        let server = StubServer::start(replies).await;
        let sender = start(http(&server.address), policy.clone());
        for entry in ["1", "2", "3"] {
            assert!(sender.handle.push(entry.into()));
        }
        assert_eq!(sender.settled().await, expected, "{replies:?} {policy:?}");
        assert_eq!(server.bodies(), bodies, "{replies:?} {policy:?}");
    });
}

#[test]
fn batches_have_their_size() {
    check(&[], policy(1000, 0), &["[1,2,3]"], (3, 0));
    check(&[], policy(2, 0), &["[1,2]", "[3]"], (3, 0));
    check(&[], policy(1, 0), &["[1]", "[2]", "[3]"], (3, 0));
}

#[test]
fn batches_that_cut_a_chunk_leave_no_bytes_behind() {
    runtime().block_on(async {
        let server = StubServer::start(&[]).await;
        let sender = start(http(&server.address), policy(2, 0));
        let chunk =
            SinkChunk { bytes: bytes::Bytes::from_static(b"1,2,3,4,5"), ends: Box::new([1, 3, 5, 7, 9]) };
        sender.handle.push_chunk(chunk);
        // Waiting bytes at the end are checked with the results.
        assert_eq!(sender.settled().await, (5, 0));
        assert_eq!(server.bodies(), ["[1,2]", "[3,4]", "[5]"]);
    });
}

#[test]
fn failed_batches_are_repeated_then_dropped() {
    let all = "[1,2,3]";
    check(&[StubReply::Status(500)], policy(1000, 0), &[all], (0, 3));
    check(&[StubReply::Status(500)], policy(1000, 1), &[all, all], (3, 0));
    check(&[StubReply::Status(500); 3], policy(1000, 2), &[all, all, all], (0, 3));
    check(&[StubReply::Busy], policy(1000, 1), &[all, all], (3, 0));
    check(&[StubReply::Close], policy(1000, 1), &[all, all], (3, 0));
    check(&[StubReply::Hang], policy(1000, 1), &[all, all], (3, 0));
    check(&[StubReply::Status(500)], policy(2, 0), &["[1,2]", "[3]"], (1, 2));
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced() {
    check(&[StubReply::ThenClose], policy(2, 0), &["[1,2]", "[3]"], (3, 0));
}

#[test]
fn a_server_that_refuses_connections_loses_entries_and_is_reported() {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let sender = start(http(&address), policy(1000, 1));
        assert!(sender.handle.push(b"1".to_vec()));
        let standing = sender.standing.clone();
        assert_eq!(sender.settled().await, (0, 1));
        let (_, error) = standing.failing().expect("failing");
        assert!(error.starts_with("failed to connect to 127.0.0.1:"), "{error}");
    });
}

#[test]
fn one_entry_is_sent_after_the_inactive_timeout() {
    runtime().block_on(async {
        let server = StubServer::start(&[]).await;
        let sender = start(http(&server.address), policy(1000, 0));
        assert!(sender.handle.push(b"1".to_vec()));
        for _ in 0..1000 {
            if !server.bodies().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.bodies(), ["[1]"]);
        assert_eq!(sender.settled().await, (1, 0));
    });
}

#[test]
fn the_end_of_the_process_sends_waiting_entries_without_pauses() {
    runtime().block_on(async {
        let server = StubServer::start(&[StubReply::Status(500)]).await;
        let mut slow = policy(1000, 1);
        (slow.inactive_timeout_ms, slow.retry_delay_ms) = (600_000, 600_000);
        let sender = start(http(&server.address), slow);
        assert!(sender.handle.push(b"1".to_vec()));
        sender.stop.send(true).unwrap();
        tokio::time::timeout(Duration::from_secs(10), sender.task).await.expect("the sender ends").unwrap();
        assert_eq!(server.bodies(), ["[1]", "[1]"]);
        assert_eq!(sender.handle.queue().ended(SinkResult::Sent), 1);
    });
}

#[test]
fn tcp_servers_get_a_connection_per_batch_unless_it_is_kept() {
    async fn received(idle_ms: u64) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address =
            SinkAddress::Tcp { host: "127.0.0.1".into(), port, tls: None, timeout_ms: 1000, idle_ms };
        let sender = start(address, policy(2, 0));
        for entry in ["1", "2", "3", "4"] {
            assert!(sender.handle.push(entry.into()));
        }
        let accepting = tokio::spawn(async move {
            let mut all = Vec::new();
            let mut length = 0;
            while length < "[1,2][3,4]".len() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                length += text.len();
                all.push(text);
            }
            all
        });
        assert_eq!(sender.settled().await, (4, 0));
        accepting.await.unwrap()
    }
    runtime().block_on(async {
        assert_eq!(received(0).await, ["[1,2]", "[3,4]"]);
        assert_eq!(received(60_000).await, ["[1,2][3,4]"]);
    });
}

#[test]
fn udp_servers_get_datagrams_and_too_long_ones_are_refused() {
    runtime().block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let sender = start(SinkAddress::Udp { host: "127.0.0.1".into(), port }, policy(1, 0));
        assert!(sender.handle.push(vec![b'x'; 70_000]));
        assert!(sender.handle.push(b"2".to_vec()));
        let mut buffer = [0; 100];
        let count = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"[2]");
        assert_eq!(sender.settled().await, (1, 1));
    });
}

#[test]
fn files_are_opened_again_after_rotation() {
    runtime().block_on(async {
        let folder = std::env::temp_dir().join(format!("yumen-file-sink-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("access.log");
        let address = SinkAddress::File { path: path.to_str().unwrap().to_owned() };
        let sender = start(address, policy(1, 0));
        let written = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let wait_for = async |name: &str, text: &str| {
            for _ in 0..1000 {
                if written(name) == text {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(written(name), text);
        };
        assert!(sender.handle.push(b"1".to_vec()));
        wait_for("access.log", "[1]").await;
        std::fs::rename(&path, folder.join("old.log")).unwrap();
        assert!(sender.handle.push(b"2".to_vec()));
        wait_for("access.log", "[2]").await;
        assert_eq!(written("old.log"), "[1]");
        assert_eq!(sender.settled().await, (2, 0));
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn a_certificate_for_another_name_is_refused_if_it_is_verified() {
    use std::sync::Arc;
    let key = rcgen::generate_simple_self_signed(vec!["other.test".to_owned()]).unwrap();
    let certificate = key.cert.der().clone();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut text = Vec::new();
                    let _ = stream.read_to_end(&mut text).await;
                });
            }
        });
        let outcome = async |tls: SinkTls| {
            let address = SinkAddress::Tcp {
                host: "127.0.0.1".into(),
                port,
                tls: Some(tls),
                timeout_ms: 1000,
                idle_ms: 0,
            };
            let sender = start(address, policy(1, 0));
            assert!(sender.handle.push(b"1".to_vec()));
            sender.settled().await
        };
        let trusted = |server_name: &str| SinkTls {
            verify: true,
            server_name: Some(server_name.to_owned()),
            ca_pem: Some(key.cert.pem()),
            client: None,
        };
        assert_eq!(outcome(trusted("other.test")).await, (1, 0));
        assert_eq!(outcome(trusted("sink.test")).await, (0, 1));
        assert_eq!(outcome(SinkTls::default()).await, (1, 0), "verification is off");
    });
}

#[test]
fn a_server_that_lists_too_many_results_ends_each_entry_once() {
    runtime().block_on(async {
        let server = StubServer::start(&[]).await;
        let sender = start_with(Arc::new(LavishEncoder), http(&server.address), policy(2, 1));
        for entry in ["1", "2"] {
            assert!(sender.handle.push(entry.into()));
        }
        assert_eq!(sender.settled().await, (0, 2));
        assert_eq!(server.bodies(), ["[1,2]", "[1]"]);
    });
}

#[test]
fn heartbeats_go_on_between_entries() {
    runtime().block_on(async {
        let server = StubServer::start(&[StubReply::Status(500), StubReply::Close]).await;
        let sender = start_with(Arc::new(LivelyEncoder), http(&server.address), policy(1, 0));
        let seen = |wanted: &'static str| {
            let bodies = server.bodies.clone();
            async move {
                let waiting = async {
                    while !bodies.lock().unwrap().iter().any(|body| body == wanted) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(wanted);
            }
        };
        seen("alive").await;
        assert!(sender.handle.push(b"1".to_vec()));
        seen("[1]").await;
        let bodies = server.bodies();
        // The announcement is repeated until a server has taken it.
        assert_eq!(bodies[..3], ["announce"; 3], "{bodies:?}");
        assert_eq!(sender.settled().await, (1, 0));
    });
}
