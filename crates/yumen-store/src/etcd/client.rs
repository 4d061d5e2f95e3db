//! A client of an etcd cluster with one connection at a time, to the first member that answers.
//!
//! Owns the choice of the member and authentication; does not interpret the keys.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::proto::{
    AuthenticateRequest, AuthenticateResponse, DeleteRangeRequest, KeyEvent, KeyValue, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest, PutRequest, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchRequestKind,
    WatchResponse, WriteResponse,
};
use super::settings::{EtcdClientSettings, RetryPauses};
use super::tls::EtcdTlsConnector;
use super::wire::{EtcdConnection, GrpcCode, RpcError, RpcStream};

/// Keys per page of a range request, so that responses stay bounded.
const PAGE: i64 = 1000;

/// Cluster id and revision of one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterHead {
    /// Id of the cluster.
    pub cluster_id: u64,
    /// Newest revision of the cluster.
    pub revision: u64,
}

/// Keys as of one revision.
#[derive(Debug, Clone, Default)]
pub struct KeyListing {
    /// Cluster and revision of the listing.
    pub head: ClusterHead,
    /// Key-value pairs, ascending by key.
    pub kvs: Vec<KeyValue>,
}

/// A client; clones share the connection.
#[derive(Clone)]
pub struct EtcdClient(Arc<EtcdClientInner>);

struct EtcdClientInner {
    settings: EtcdClientSettings,
    endpoints: Vec<EtcdEndpoint>,
    secure: Option<EtcdTlsConnector>,
    live: Mutex<Option<Arc<EtcdConnection>>>,
    /// Index of the member for the next connection.
    next: AtomicUsize,
    /// URL of the connected member, readable without waiting for `live`.
    endpoint: RwLock<Option<Arc<str>>>,
}

struct EtcdEndpoint {
    url: Arc<str>,
    host: String,
    port: u16,
    is_secure: bool,
}

impl EtcdClient {
    /// Creates a client that connects on first use. Fails on an invalid endpoint or an unreadable file.
    pub fn new(settings: EtcdClientSettings) -> Result<EtcdClient, String> {
        let endpoints: Vec<EtcdEndpoint> =
            settings.endpoints.iter().map(|url| EtcdEndpoint::parse(url)).collect::<Result<_, _>>()?;
        if endpoints.is_empty() {
            return Err("no endpoint of etcd is given".into());
        }
        let is_secure = endpoints.iter().any(|endpoint| endpoint.is_secure);
        // Without HTTPS no certificate files are read.
        let secure = is_secure.then(|| EtcdTlsConnector::new(&settings.tls)).transpose()?;
        // A random first member spreads nodes that start together.
        let next = AtomicUsize::new(super::random_below(endpoints.len()));
        let (live, endpoint) = (Mutex::default(), RwLock::default());
        Ok(EtcdClient(Arc::new(EtcdClientInner { settings, endpoints, secure, live, next, endpoint })))
    }

    /// URL of the connected member.
    pub fn endpoint(&self) -> Option<Arc<str>> {
        self.0.endpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the keys with `prefix`, as of `revision` or the newest one.
    pub async fn get_prefix(&self, prefix: &str, revision: Option<u64>) -> Result<KeyListing, RpcError> {
        let mut listing = KeyListing::default();
        let mut question = RangeRequest {
            key: Bytes::copy_from_slice(prefix.as_bytes()),
            range_end: range_end(prefix),
            limit: PAGE,
            revision: revision.map_or(0, |revision| revision as i64),
            ..RangeRequest::default()
        };
        loop {
            let page: RangeResponse = self.call("/etcdserverpb.KV/Range", &question).await?;
            let head = ClusterHead::of(page.header.as_ref());
            if question.revision == 0 {
                // Later pages must be of the same revision as the first.
                question.revision = head.revision as i64;
            }
            listing.head = ClusterHead { revision: question.revision as u64, ..head };
            if let Some(last) = page.kvs.last().filter(|_| page.more) {
                question.key = after(&last.key);
            }
            listing.kvs.extend(page.kvs);
            if !page.more {
                return Ok(listing);
            }
        }
    }

    /// Writes one key, bound to `lease` unless that is 0; returns the revision.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>, lease: i64) -> Result<u64, RpcError> {
        let question = PutRequest { key: key.to_owned().into(), value: value.into(), lease };
        let answer: WriteResponse = self.call("/etcdserverpb.KV/Put", &question).await?;
        Ok(ClusterHead::of(answer.header.as_ref()).revision)
    }

    /// Deletes one key; returns the revision.
    pub async fn delete(&self, key: &str) -> Result<u64, RpcError> {
        let question = DeleteRangeRequest { key: key.to_owned().into(), range_end: Bytes::new() };
        let answer: WriteResponse = self.call("/etcdserverpb.KV/DeleteRange", &question).await?;
        Ok(ClusterHead::of(answer.header.as_ref()).revision)
    }

    /// Executes a transaction. If its comparisons fail, the response holds the failure steps.
    pub(super) async fn txn(&self, question: &TxnRequest) -> Result<TxnResponse, RpcError> {
        self.call("/etcdserverpb.KV/Txn", question).await
    }

    /// Grants a lease of `ttl_s` seconds. Keys bound to it are deleted on expiry.
    pub async fn grant_lease(&self, ttl_s: u64) -> Result<i64, RpcError> {
        let question = LeaseGrantRequest { ttl_s: ttl_s as i64, id: 0 };
        let answer: LeaseGrantResponse = self.call("/etcdserverpb.Lease/LeaseGrant", &question).await?;
        match answer.error.is_empty() {
            true => Ok(answer.id),
            // etcd reports a refused lease in the response instead of the status.
            false => Err(RpcError::Transport(answer.error)),
        }
    }

    /// Renews a lease; returns its remaining seconds, 0 if it has expired.
    pub async fn keep_lease(&self, id: i64) -> Result<u64, RpcError> {
        self.bounded(async {
            let mut stream: RpcStream<LeaseKeepAliveResponse> =
                self.connection().await?.open("/etcdserverpb.Lease/LeaseKeepAlive").await?;
            stream.send(&LeaseRequest { id })?;
            let answer = stream.next().await?;
            // A stream that ends without a response leaves the lease unknown; 0 leads to a new one.
            Ok(answer.map_or(0, |answer| answer.ttl_s.max(0) as u64))
        })
        .await
    }

    /// Revokes a lease and deletes the keys bound to it.
    pub async fn revoke_lease(&self, id: i64) -> Result<(), RpcError> {
        let _: WriteResponse = self.call("/etcdserverpb.Lease/LeaseRevoke", &LeaseRequest { id }).await?;
        Ok(())
    }

    /// Watches the keys with `prefix` from the revision `from` on.
    pub async fn watch_prefix(&self, prefix: &str, from: u64) -> Result<EtcdWatch, RpcError> {
        let connection = self.connection().await?;
        let mut stream = connection.open("/etcdserverpb.Watch/Watch").await?;
        let create = WatchCreateRequest {
            key: Bytes::copy_from_slice(prefix.as_bytes()),
            range_end: range_end(prefix),
            start_revision: from as i64,
            // etcd then sends progress even without a request, on long silences.
            progress_notify: true,
        };
        stream.send(&WatchRequest { ask: Some(WatchRequestKind::Create(create)) })?;
        Ok(EtcdWatch { stream, connection })
    }

    /// Reads the cluster's revision with a linearizable read, which needs a quorum.
    pub async fn head(&self) -> Result<ClusterHead, RpcError> {
        let connection = self.connection().await?;
        self.bounded(self.head_by(&connection)).await
    }

    /// Closes the connection for all users. The next call connects to the next member.
    pub async fn drop_connection(&self, why: &str) {
        if let Some(connection) = self.0.live.lock().await.take() {
            connection.fail(why);
        }
        self.note_endpoint(None);
    }

    async fn call<Q, A>(&self, path: &str, question: &Q) -> Result<A, RpcError>
    where
        Q: prost::Message,
        A: prost::Message + Default,
    {
        let connection = self.connection().await?;
        let first = self.bounded(connection.call(path, question)).await;
        match &first {
            // The token has expired or the users changed. etcd has done nothing, so the call is repeated once
            // with a new token.
            Err(RpcError::Status { code, message })
                if is_stale_token(*code, message) || self.is_taken_for_another(&connection, *code) =>
            {
                self.drop_connection("its token has ended").await;
                // Once: a second refusal is not due to the token.
                self.call_once(path, question).await
            }
            _ => first,
        }
    }

    /// Whether a refusal may concern the identity of the client certificate: the connection was opened while
    /// authentication was disabled, so calls carry no token.
    fn is_taken_for_another(&self, connection: &EtcdConnection, code: GrpcCode) -> bool {
        code == GrpcCode::PermissionDenied && self.0.settings.user.is_some() && !connection.has_token()
    }

    async fn call_once<Q, A>(&self, path: &str, question: &Q) -> Result<A, RpcError>
    where
        Q: prost::Message,
        A: prost::Message + Default,
    {
        let connection = self.connection().await?;
        self.bounded(connection.call(path, question)).await
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T, RpcError>>) -> Result<T, RpcError> {
        let limit = self.0.settings.call_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or(Err(RpcError::Late(limit.as_millis())))
    }

    /// Returns the open connection, or connects to the first member that proves its quorum.
    pub(super) async fn connection(&self) -> Result<Arc<EtcdConnection>, RpcError> {
        // The lock is held while connecting, so concurrent callers share one new connection.
        let mut live = self.0.live.lock().await;
        if let Some(connection) = live.as_ref().filter(|connection| !connection.is_ended()) {
            return Ok(connection.clone());
        }
        self.note_endpoint(None);
        let mut reasons = Vec::new();
        for _ in 0..self.0.endpoints.len() {
            // The counter only spreads the attempts; no other memory depends on it.
            let at = self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.endpoints.len();
            let endpoint = &self.0.endpoints[at];
            let limit = self.0.settings.connect_timeout;
            let late = Err(RpcError::Late(limit.as_millis()));
            // Per member, so that one that hangs leaves time for the others.
            match tokio::time::timeout(limit, self.connect(endpoint)).await.unwrap_or(late) {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *live = Some(connection.clone());
                    self.note_endpoint(Some(endpoint.url.clone()));
                    return Ok(connection);
                }
                // All reasons are reported, since each member may fail for another one.
                Err(error) => reasons.push(format!("{}: {error}", endpoint.url)),
            }
        }
        Err(RpcError::Unconnected(reasons.join("; ")))
    }

    fn note_endpoint(&self, endpoint: Option<Arc<str>>) {
        *self.0.endpoint.write().unwrap_or_else(PoisonError::into_inner) = endpoint;
    }

    /// Connects, authenticates, and checks by a linearizable read that the member has a quorum.
    async fn connect(&self, endpoint: &EtcdEndpoint) -> Result<EtcdConnection, RpcError> {
        let stream =
            TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(RpcError::transport)?;
        // Requests are small; Nagle's algorithm would delay them.
        stream.set_nodelay(true).map_err(RpcError::transport)?;
        let mut connection = match &self.0.secure {
            Some(secure) if endpoint.is_secure => {
                let stream = secure.handshake(&endpoint.host, stream).await?;
                EtcdConnection::begin(stream, endpoint.url.to_string()).await?
            }
            _ => EtcdConnection::begin(stream, endpoint.url.to_string()).await?,
        };
        if let Some((name, password)) = &self.0.settings.user {
            let question = AuthenticateRequest { name: name.clone(), password: password.clone() };
            let answer: Result<AuthenticateResponse, RpcError> =
                // On the raw connection: `self.call` would wait for the connection that is being made.
                connection.call("/etcdserverpb.Auth/Authenticate", &question).await;
            match answer {
                Ok(answer) => connection.authorize(&answer.token)?,
                // Nodes may have a user configured before enabling authentication in etcd.
                Err(RpcError::Status { message, .. }) if message.contains(NO_USERS) => {}
                Err(error) => return Err(error),
            }
        }
        // A partitioned member accepts connections but fails this linearizable read.
        self.head_by(&connection).await?;
        Ok(connection)
    }

    async fn head_by(&self, connection: &EtcdConnection) -> Result<ClusterHead, RpcError> {
        let key = Bytes::copy_from_slice(self.0.settings.probe_key.as_bytes());
        // The value of the key does not matter; the read proves the quorum (decision 28).
        let question = RangeRequest { key, limit: 1, keys_only: true, ..RangeRequest::default() };
        let answer: RangeResponse = connection.call("/etcdserverpb.KV/Range", &question).await?;
        Ok(ClusterHead::of(answer.header.as_ref()))
    }
}

/// etcd's message while authentication is disabled.
const NO_USERS: &str = "authentication is not enabled";
/// etcd's message for calls without a user once authentication is enabled.
const NOBODY: &str = "user name is empty";

/// etcd uses one code for several causes, so the message is matched too.
fn is_stale_token(code: GrpcCode, message: &str) -> bool {
    code == GrpcCode::Unauthenticated
        || message.contains(NOBODY)
        || (code == GrpcCode::InvalidArgument && message.contains("revision of auth"))
        || message.contains("auth: revision in header is old")
}

impl EtcdEndpoint {
    fn parse(url: &str) -> Result<EtcdEndpoint, String> {
        // The message omits the text, which may contain a password.
        let wrong = || "not an etcd endpoint such as http://127.0.0.1:2379".to_owned();
        let uri: http::Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        // The client port that IANA registers for etcd.
        let port = uri.port_u16().unwrap_or(2379);
        Ok(EtcdEndpoint { url: url.trim_end_matches('/').into(), host, port, is_secure })
    }
}

impl ClusterHead {
    pub(super) fn of(header: Option<&super::proto::ResponseHeader>) -> ClusterHead {
        header.map_or(ClusterHead::default(), |header| ClusterHead {
            cluster_id: header.cluster_id,
            revision: header.revision.max(0) as u64,
        })
    }
}

/// First key after all keys with `prefix`.
pub(super) fn range_end(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        // A byte of 255 has no successor, so it is cut off and the byte before it is incremented.
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    // etcd's notation for "all keys from the start on".
    Bytes::from_static(b"\0")
}

/// The smallest key greater than `key`.
fn after(key: &Bytes) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

/// A message of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchMessage {
    /// Events of whole revisions, ascending, and the cluster's revision.
    Events(ClusterHead, Vec<KeyEvent>),
    /// All events up to this revision have been delivered.
    Progress(ClusterHead),
    /// The start revision is compacted: the keys must be listed again.
    Compacted,
}

/// A watch on a prefix. Ends with its connection.
pub struct EtcdWatch {
    stream: RpcStream<WatchResponse>,
    connection: Arc<EtcdConnection>,
}

impl EtcdWatch {
    /// Returns the next message. Cancel safe.
    pub async fn next(&mut self) -> Result<WatchMessage, RpcError> {
        loop {
            let ended = || RpcError::Transport("the member ended the watch".into());
            let answer = self.stream.next().await?.ok_or_else(ended)?;
            let head = ClusterHead::of(answer.header.as_ref());
            if answer.compact_revision > 0 {
                // Checked before `canceled`: etcd cancels such a watch, but the remedy is a listing and not another member.
                return Ok(WatchMessage::Compacted);
            }
            if answer.canceled {
                // The refusal may be local to the member. Closing the connection leads to the next member
                // with a new token.
                self.connection.fail(&answer.cancel_reason);
                return Err(RpcError::Transport(format!("the watch was refused: {}", answer.cancel_reason)));
            }
            if !answer.events.is_empty() {
                return Ok(WatchMessage::Events(head, answer.events));
            }
            // The first message only confirms the watch.
            if !answer.created {
                return Ok(WatchMessage::Progress(head));
            }
        }
    }

    /// Requests a [`WatchMessage::Progress`] as a probe of the member.
    pub fn ask_progress(&mut self) -> Result<(), RpcError> {
        self.stream.send(&WatchRequest { ask: Some(WatchRequestKind::Progress(WatchProgressRequest {})) })
    }

    /// Closes the underlying connection.
    pub fn fail(&self, why: &str) {
        self.connection.fail(why);
    }
}

/// Exponential backoff with jitter, so that the nodes of a cluster do not reconnect together.
#[derive(Debug)]
pub(super) struct RetryBackoff {
    pauses: RetryPauses,
    next: Duration,
    since: Instant,
}

impl RetryBackoff {
    pub(super) fn new(pauses: RetryPauses) -> RetryBackoff {
        RetryBackoff { pauses, next: pauses.min, since: Instant::now() }
    }

    /// Records a success. The next pause is the shortest if the success lasted longer than the longest pause.
    pub(super) fn reset_after_success(&mut self) {
        self.since = Instant::now();
    }

    /// Returns the next pause: random, between half of the current delay and all of it.
    pub(super) fn pause(&mut self) -> Duration {
        // A short success keeps the delay: a member that accepts and fails at once must not be hammered.
        if self.since.elapsed() > self.pauses.max {
            self.next = self.pauses.min;
        }
        let due = self.next;
        self.next = (due * 2).min(self.pauses.max);
        self.since = Instant::now();
        // At least half of the delay, so that random values near zero do not undo the backoff.
        due / 2 + Duration::from_micros(super::random_below((due.as_micros() / 2).max(1) as usize) as u64)
    }
}
