//! A small API server over TLS: objects in memory by path, and scripted responses with exact bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use yumen_kubernetes_client::{ApiClient, ApiServerConfig};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct SeenRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// The end of a scripted response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    /// The connection stays open: the response has its length, or its last chunk.
    Keep,
    /// The connection closes.
    Close,
    /// Nothing more comes until the test ends.
    Hang,
}

/// Bytes in pieces, each written and flushed alone.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedResponse {
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) end: ScriptEnd,
}

#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) requests: Vec<SeenRequest>,
    /// Responses by the start of `METHOD target`, each used once, in order.
    pub(crate) scripts: Vec<(String, VecDeque<ScriptedResponse>)>,
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) version: u64,
}

pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) ca_pem: String,
    state: Arc<Mutex<ServerState>>,
    changed: Arc<Notify>,
    _task: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<ServerState>> = Arc::default();
        let changed = Arc::new(Notify::new());
        let mut task = JoinSet::new();
        task.spawn(serve(listener, acceptor, Arc::clone(&state), Arc::clone(&changed)));
        TestServer { url, ca_pem: certificate.pem(), state, changed, _task: task }
    }

    pub(crate) fn config(&self) -> ApiServerConfig {
        ApiServerConfig::from_url(&self.url, Some(&self.ca_pem), Some("secret".to_owned())).unwrap()
    }

    pub(crate) fn client(&self) -> ApiClient {
        ApiClient::new(&self.config()).unwrap()
    }

    /// Answers the next request whose `METHOD target` starts with `prefix`.
    pub(crate) fn script(&self, prefix: &str, pieces: &[&[u8]], end: ScriptEnd) {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        let mut state = self.state.lock().unwrap();
        let response = ScriptedResponse { pieces, end };
        match state.scripts.iter_mut().find(|(known, _)| known == prefix) {
            Some((_, responses)) => responses.push_back(response),
            None => state.scripts.push((prefix.to_owned(), VecDeque::from([response]))),
        }
    }

    pub(crate) fn script_status(&self, prefix: &str, code: u16, body: &str) {
        self.script(prefix, &[&response(code, body)], ScriptEnd::Keep);
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&mut ServerState) -> T) -> T {
        read(&mut self.state.lock().unwrap())
    }

    /// Puts an object with a new version.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        self.with(|state| {
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            state.objects.insert(path.to_owned(), object);
        });
    }

    /// Waits until the state of the server satisfies a condition after some request.
    pub(crate) async fn until<T>(&self, mut find: impl FnMut(&mut ServerState) -> Option<T>) -> T {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = self.with(&mut find) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(std::time::Duration::from_secs(30), wait).await {
            Ok(found) => found,
            Err(_) => panic!("not within 30 s; requests: {:#?}", self.with(|state| state.requests.clone())),
        }
    }
}

pub(crate) fn response(code: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into()
}

/// The head of a chunked response.
pub(crate) const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// The end of a chunked response.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub(crate) fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into()
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    state: Arc<Mutex<ServerState>>,
    changed: Arc<Notify>,
) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, state, changed) = (acceptor.clone(), Arc::clone(&state), Arc::clone(&changed));
        connections.spawn(async move {
            // A failed handshake is the client's to report.
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let mut stream = BufReader::new(stream);
            while let Some(request) = read_request(&mut stream).await {
                let response = state.lock().unwrap().respond(request);
                changed.notify_waiters();
                for piece in &response.pieces {
                    if stream.write_all(piece).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                    // Lets the client read this piece alone.
                    tokio::task::yield_now().await;
                }
                match response.end {
                    ScriptEnd::Keep => {}
                    ScriptEnd::Close => return,
                    ScriptEnd::Hang => std::future::pending().await,
                }
            }
        });
    }
}

async fn read_request(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<SeenRequest> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|&count| count > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|&count| count > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(SeenRequest { method, target, headers, body: String::from_utf8(body).unwrap() })
}

impl ServerState {
    fn respond(&mut self, request: SeenRequest) -> ScriptedResponse {
        let line = format!("{} {}", request.method, request.target);
        self.requests.push(request.clone());
        let scripted = self
            .scripts
            .iter_mut()
            .find(|(prefix, responses)| line.starts_with(prefix) && !responses.is_empty());
        if let Some((_, responses)) = scripted {
            return responses.pop_front().unwrap();
        }
        let (code, body) = self.perform(&request);
        ScriptedResponse { pieces: vec![response(code, &body.to_string())], end: ScriptEnd::Keep }
    }

    fn perform(&mut self, request: &SeenRequest) -> (u16, Value) {
        let path = request.target.split('?').next().unwrap();
        let object_path = path.trim_end_matches("/status").to_owned();
        let status =
            |code: u16, message: &str| (code, json!({"kind": "Status", "code": code, "message": message}));
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        if request.method == "POST" {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            if self.objects.contains_key(&path) {
                return status(409, "exists");
            }
            return (201, self.store(path, body));
        }
        let Some(mut object) = self.objects.get(&object_path).cloned() else {
            return status(404, "not found");
        };
        match request.method.as_str() {
            "GET" => (200, object),
            "DELETE" => {
                self.objects.remove(&object_path);
                status(200, "deleted")
            }
            _ => {
                let wanted = &body["metadata"]["resourceVersion"];
                if !wanted.is_null() && *wanted != object["metadata"]["resourceVersion"] {
                    return status(409, "the object has been modified");
                }
                for member in ["spec", "status"] {
                    for (key, value) in body[member].as_object().into_iter().flatten() {
                        object[member][key] = value.clone();
                    }
                }
                (200, self.store(object_path, object))
            }
        }
    }

    fn store(&mut self, path: String, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path, object.clone());
        object
    }
}
