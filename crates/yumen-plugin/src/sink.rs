//! Sinks: servers and files that receive the entries of logger and tracing plugins.
//!
//! Workers render entries and push chunks of them into a [`SinkQueue`]; one sender per queue, beside the workers, makes
//! batches. This file owns the types that both sides share. It must not know entries or transports.

mod queue;
mod registry;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use yumen_base::Now;

pub use queue::{SinkHandle, SinkQueue, SinkReceiver, SinkResult};
pub use registry::{NodeLogLevel, NodeLogSink, RenderLine, SINK_BYTES_MAX, SinkRegistry};

/// A sink: the place of the entries and the rules for batches. Equal specs share one queue and one sender, over all
/// objects.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SinkSpec {
    /// The plugin.
    pub plugin: &'static str,
    /// `name` of the batch settings, for messages.
    pub name: String,
    /// The address.
    pub address: SinkAddress,
    /// The rules for batches.
    pub policy: BatchPolicy,
    /// Settings of the encoder, so that sinks with different payloads stay apart. May have credentials.
    pub encoder: String,
}

/// The address of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SinkAddress {
    /// HTTP servers, one of which is chosen at random per batch.
    Http {
        /// Origins: `https://host:port`.
        endpoints: Vec<String>,
        /// TLS settings for https.
        tls: SinkTls,
        /// Time limit of one request in milliseconds.
        timeout_ms: u64,
        /// Idle timeout of a connection in milliseconds; 0 closes after each request.
        idle_ms: u64,
    },
    /// A TCP or TLS server.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// Port.
        port: u16,
        /// TLS settings; `None` for plain TCP.
        tls: Option<SinkTls>,
        /// Time limit of connecting and of each write in milliseconds.
        timeout_ms: u64,
        /// Idle time in milliseconds for which the connection is kept between batches; 0 closes after each batch.
        idle_ms: u64,
    },
    /// A UDP server.
    Udp {
        /// Host name or IP address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A gRPC server, whose method receives each batch as one message.
    Grpc {
        /// Origin: `https://host:port`.
        endpoint: String,
        /// TLS settings for https.
        tls: SinkTls,
        /// Time limit of one call in milliseconds.
        timeout_ms: u64,
        /// Idle timeout of the connection in milliseconds.
        idle_ms: u64,
    },
    /// A file that entries are appended to.
    File {
        /// The path.
        path: String,
    },
    /// A topic of Apache Kafka.
    Kafka(Box<KafkaSettings>),
    /// An HTTP server of Google, with the access tokens of a service account.
    Google(Box<GoogleAccount>),
}

/// A service account of Google and the servers that it is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GoogleAccount {
    /// Origin of the server.
    pub endpoint: String,
    /// Origin of the server for access tokens.
    pub token_endpoint: String,
    /// Path and query of access tokens.
    pub token_target: String,
    /// The whole URL of access tokens, which is the audience of signed requests.
    pub token_url: String,
    /// Address of the account.
    pub client_email: String,
    /// RSA key in PEM.
    pub private_key: String,
    /// Scopes, separated by spaces.
    pub scope: String,
    /// TLS settings for https.
    pub tls: SinkTls,
    /// Time limit of one request in milliseconds.
    pub timeout_ms: u64,
}

impl std::fmt::Debug for GoogleAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not appear in logs.
        f.debug_struct("GoogleAccount").field("client_email", &self.client_email).finish_non_exhaustive()
    }
}

/// A topic of Apache Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KafkaSettings {
    /// Hosts and ports of brokers by which the cluster is found.
    pub brokers: Vec<(String, u16)>,
    /// The topic.
    pub topic: String,
    /// Key of the records, which decides about their partition.
    pub key: Option<String>,
    /// Whether all replicas in sync must acknowledge a record, and not only the leader.
    pub awaits_replicas: bool,
    /// Time limit of a request in milliseconds.
    pub timeout_ms: u64,
    /// Interval of metadata refreshes in milliseconds.
    pub refresh_ms: u64,
    /// Credentials.
    pub login: Option<KafkaLogin>,
    /// TLS settings; `None` for plain TCP.
    pub tls: Option<SinkTls>,
}

/// Credentials for Apache Kafka.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KafkaLogin {
    /// The mechanism.
    pub mechanism: KafkaMechanism,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl std::fmt::Debug for KafkaLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password must not appear in logs.
        f.debug_struct("KafkaLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

/// SASL mechanisms (RFC 4616, RFC 5802).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KafkaMechanism {
    /// The password itself.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

impl KafkaMechanism {
    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            KafkaMechanism::Plain => "PLAIN",
            KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
            KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl std::fmt::Display for SinkAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SinkAddress::Http { endpoints, .. } => f.write_str(&endpoints.join(",")),
            SinkAddress::Tcp { host, port, tls: None, .. } => write!(f, "tcp://{host}:{port}"),
            SinkAddress::Tcp { host, port, .. } => write!(f, "tls://{host}:{port}"),
            SinkAddress::Udp { host, port } => write!(f, "udp://{host}:{port}"),
            SinkAddress::Grpc { endpoint, .. } => f.write_str(endpoint),
            SinkAddress::File { path } => f.write_str(path),
            SinkAddress::Google(account) => f.write_str(&account.endpoint),
            SinkAddress::Kafka(kafka) => {
                f.write_str("kafka://")?;
                for (index, (host, port)) in kafka.brokers.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{host}:{port}")?;
                }
                write!(f, "/{}", kafka.topic)
            }
        }
    }
}

/// TLS settings of connections to servers other than upstreams: sinks, directories, fetched documents.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SinkTls {
    /// Whether the certificate of the server is verified.
    pub verify: bool,
    /// Name for SNI and verification, instead of the host of the address.
    pub server_name: Option<String>,
    /// Trust anchors in PEM instead of those of the system.
    pub ca_pem: Option<String>,
    /// The client certificate.
    pub client: Option<ClientPair>,
}

/// A client certificate with its private key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientPair {
    /// The chain in PEM, the own certificate first.
    pub chain_pem: String,
    /// The private key in PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for ClientPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Settings are formatted for comparison and in logs.
        f.write_str("ClientPair")
    }
}

/// The rules by which a sender makes, repeats and drops batches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchPolicy {
    /// Entries of a full batch.
    pub batch_max_size: u32,
    /// Time without a new entry after which a batch is sent, in milliseconds.
    pub inactive_timeout_ms: u64,
    /// Maximum age of the first entry of a batch in milliseconds; checked each `inactive_timeout_ms`.
    pub buffer_duration_ms: u64,
    /// Repetitions of a failed batch before it is dropped.
    pub max_retry_count: u32,
    /// Pause before a repetition in milliseconds.
    pub retry_delay_ms: u64,
    /// Maximum number of waiting entries; later ones are dropped.
    pub pending_entries_max: u64,
    /// Maximum size of waiting entries in bytes; later ones are dropped.
    pub pending_bytes_max: u64,
}

/// Entries that a worker has rendered, one behind the other.
#[derive(Debug, Clone, Default)]
pub struct SinkChunk {
    /// The entries. All but the first have the separator of the sink in front.
    pub bytes: Bytes,
    /// The offset behind each entry.
    pub ends: Box<[u32]>,
}

impl SinkChunk {
    /// A chunk of one entry.
    pub fn single(entry: Vec<u8>) -> SinkChunk {
        let end = entry.len() as u32;
        SinkChunk { bytes: entry.into(), ends: Box::new([end]) }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the chunk has no entry.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The entries without separators of `separator` bytes.
    pub fn entries(&self, separator: usize) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let entry = &self.bytes[start..*end as usize];
            start = (*end as usize + separator).min(self.bytes.len());
            entry
        })
    }

    /// Removes and returns the first `count` entries; `separator` is the length of the separator in bytes.
    pub fn split_to(&mut self, count: usize, separator: usize) -> SinkChunk {
        if count >= self.ends.len() {
            return std::mem::take(self);
        }
        let Some(last) = count.checked_sub(1) else { return SinkChunk::default() };
        let end = self.ends[last] as usize;
        let begin = (end + separator).min(self.bytes.len());
        let first = SinkChunk { bytes: self.bytes.slice(..end), ends: self.ends[..count].into() };
        self.ends = self.ends[count..].iter().map(|end| end - begin as u32).collect();
        self.bytes = self.bytes.slice(begin..);
        first
    }
}

/// The bytes around and between the entries of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkFraming {
    /// In front of the first entry.
    pub open: &'static [u8],
    /// Between two entries.
    pub separator: &'static [u8],
    /// Behind the last entry.
    pub close: &'static [u8],
}

impl SinkFraming {
    /// A JSON list.
    pub const JSON_LIST: SinkFraming = SinkFraming { open: b"[", separator: b",", close: b"]" };
    /// Lines without an end of the last one.
    pub const LINES: SinkFraming = SinkFraming { open: b"", separator: b"\n", close: b"" };
    /// Entries that have their own ends.
    pub const PLAIN: SinkFraming = SinkFraming { open: b"", separator: b"", close: b"" };
}

/// A batch as an encoder sees it.
#[derive(Debug)]
pub struct SinkBatch<'b> {
    /// The entries.
    pub chunks: &'b [SinkChunk],
    /// Their number.
    pub entries: usize,
    /// The time of sending.
    pub now: Now,
}

impl SinkBatch<'_> {
    /// All entries; `separator` is the length of the separator in bytes.
    pub fn entries(&self, separator: usize) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().flat_map(move |chunk| chunk.entries(separator))
    }

    /// The entries within `framing`. The bytes of the entries are not copied.
    pub fn framed(&self, framing: SinkFraming) -> Vec<Bytes> {
        let mut parts = Vec::with_capacity(self.chunks.len() * 2 + 2);
        if !framing.open.is_empty() {
            parts.push(Bytes::from_static(framing.open));
        }
        for (index, chunk) in self.chunks.iter().enumerate() {
            if index > 0 && !framing.separator.is_empty() {
                parts.push(Bytes::from_static(framing.separator));
            }
            parts.push(chunk.bytes.clone());
        }
        if !framing.close.is_empty() {
            parts.push(Bytes::from_static(framing.close));
        }
        parts
    }
}

/// One request to a sink. Transports without requests send the body only.
#[derive(Debug, Clone, Default)]
pub struct SinkRequest {
    /// HTTP method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// HTTP fields.
    pub fields: Vec<(String, String)>,
    /// The body, part by part. A UDP sink sends one datagram per request.
    pub body: Vec<Bytes>,
    /// Number of entries in the body.
    pub entries: usize,
}

/// A request that is due without entries.
#[derive(Debug, Clone)]
pub struct SinkHeartbeat {
    /// The request.
    pub request: SinkRequest,
    /// Pause before the next one in milliseconds.
    pub interval_ms: u64,
}

/// The response of an HTTP sink.
#[derive(Debug, Clone, Default)]
pub struct SinkReply {
    /// Status.
    pub status: u16,
    /// `Retry-After` in seconds.
    pub retry_after_s: Option<u32>,
    /// The body, at most 64 KiB.
    pub body: Vec<u8>,
}

/// Bytes of a response body in the text of a failure.
const EXCERPT_BYTES_MAX: usize = 512;

impl SinkReply {
    /// The begin of the body for a line of the node log. Servers quote entries, whose bytes clients choose, so control
    /// characters are escaped.
    pub fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(EXCERPT_BYTES_MAX)]);
        let mut out = String::with_capacity(text.len());
        for c in text.trim().chars() {
            match c.is_control() {
                true => out.extend(c.escape_default()),
                false => out.push(c),
            }
        }
        out
    }
}

/// The meaning of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkVerdict {
    /// The sink has taken the entries.
    Sent,
    /// The request failed for this reason and may be repeated.
    Retry(String),
    /// Entries by index that may be repeated; `dropped` others were refused for good. The reason is for the log.
    Partial {
        /// Indexes of entries to repeat.
        retry: Vec<usize>,
        /// Number of entries that were refused for good.
        dropped: usize,
        /// The reason.
        reason: String,
    },
}

/// The payload form of a sink. Pure; called by the sender only, except for `framing`.
pub trait SinkEncoder: Send + Sync + 'static {
    /// The framing of entries. Constant.
    fn framing(&self) -> SinkFraming;

    /// The requests that carry the batch, in order.
    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest>;

    /// The meaning of a response; by default a status from 400 on is a failure.
    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            ..400 => SinkVerdict::Sent,
            status if reply.body.is_empty() => {
                SinkVerdict::Retry(format!("server returned status code[{status}]"))
            }
            status => SinkVerdict::Retry(format!(
                "server returned status code[{status}], body: {}",
                reply.excerpt()
            )),
        }
    }

    /// A request ahead of the first batch, such as one for the version of the server.
    fn preflight(&self) -> Option<SinkRequest> {
        None
    }

    /// Reads the response to the preflight request.
    fn learn(&self, _reply: &SinkReply) {}

    /// A request that is sent at intervals, whether there are entries or not; `taken` is the number of those that the
    /// server has taken.
    fn heartbeat(&self, _taken: u64) -> Option<SinkHeartbeat> {
        None
    }
}
