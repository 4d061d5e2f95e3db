//! Directories: binds and searches over LDAP for plugins that authenticate users.
//!
//! Queries of all workers are bounded by server, so a server that hangs delays no query to another one. Idle connections
//! are kept per target; every query begins with a bind, which ends the identity of the query before (RFC 4511 §4.2.1).

pub(crate) mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use yumen_plugin::{
    DirectoryFault, DirectoryFuture, DirectoryLogin, DirectoryQuery, DirectoryReply, DirectoryResult,
    DirectorySearch, DirectorySecurity, DirectoryService, DirectoryTarget, SinkTls,
};

use crate::connector::{OutboundConnector, OutboundStream, SendFault};
use wire::{LdapOperation, LdapOutcome, SearchRequest};

/// Queries of a process to one server that are in flight.
const QUERIES_MAX: usize = 256;
/// Servers whose bounds are kept while no query uses them.
const SERVERS_KEPT: usize = 64;
/// Entries and references that one search reads: a server may send more than the size limit allows.
const SEARCH_MESSAGES_MAX: usize = 1000;

/// The directory service of a process.
pub struct DirectoryClient {
    runtime: Handle,
    connector: OutboundConnector,
    connections: Arc<DirectoryConnections>,
    servers: Mutex<HashMap<(String, u16), Arc<DirectoryServer>>>,
}

impl DirectoryClient {
    /// A client whose queries run on `runtime`.
    pub fn new(runtime: Handle) -> DirectoryClient {
        DirectoryClient {
            runtime,
            connector: OutboundConnector::default(),
            connections: Arc::default(),
            servers: Mutex::default(),
        }
    }

    /// The server of a target.
    fn server(&self, target: &DirectoryTarget) -> Arc<DirectoryServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() > SERVERS_KEPT {
            // Servers of former configurations end here; those with queries are counted on.
            servers.retain(|_, server| Arc::strong_count(server) > 1);
        }
        servers.entry((target.host.clone(), target.port)).or_insert_with(|| self.new_server()).clone()
    }

    fn new_server(&self) -> Arc<DirectoryServer> {
        let connector = self.connector.with_own_bound();
        Arc::new(DirectoryServer { connector, queries: Arc::new(Semaphore::new(QUERIES_MAX)) })
    }
}

impl DirectoryService for DirectoryClient {
    fn ask(&self, target: Arc<DirectoryTarget>, query: DirectoryQuery) -> DirectoryFuture {
        let server = self.server(&target);
        let Ok(permit) = server.queries.clone().try_acquire_owned() else {
            return Box::pin(async { Err(DirectoryFault::Busy) });
        };
        let connections = self.connections.clone();
        let task = self.runtime.spawn(async move {
            let _permit = permit;
            let limit = Duration::from_millis(target.timeout_ms);
            let result = tokio::time::timeout(limit, connections.answer(&server, &target, &query)).await;
            result.unwrap_or(Err(DirectoryFault::Timeout))
        });
        Box::pin(async { task.await.unwrap_or_else(|error| Err(DirectoryFault::Failed(error.to_string()))) })
    }
}

/// Bounds of one server.
struct DirectoryServer {
    connector: OutboundConnector,
    queries: Arc<Semaphore>,
}

/// Idle connections by target.
#[derive(Default)]
struct DirectoryConnections {
    idle: Mutex<HashMap<DirectoryTarget, Vec<(DirectoryConnection, Instant)>>>,
}

impl DirectoryConnections {
    async fn answer(
        &self,
        server: &DirectoryServer,
        target: &DirectoryTarget,
        query: &DirectoryQuery,
    ) -> DirectoryResult {
        if let Some(mut kept) = self.take_idle(target) {
            match kept.answer(query).await {
                // The server may have closed an idle connection. A query changes nothing, so it is sent again.
                Err(DirectoryFault::Unreachable(_)) => {}
                result => {
                    self.keep(target, kept, &result);
                    return result;
                }
            }
        }
        let mut connection = server.open(target).await?;
        let result = connection.answer(query).await;
        self.keep(target, connection, &result);
        result
    }

    fn take_idle(&self, target: &DirectoryTarget) -> Option<DirectoryConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Targets of former configurations end here as well.
        idle.retain(|target, connections| {
            connections.retain(|(_, since)| since.elapsed() < Duration::from_millis(target.idle_ms));
            !connections.is_empty()
        });
        idle.get_mut(target)?.pop().map(|(connection, _)| connection)
    }

    /// Keeps a connection for the next query, unless its state is unknown.
    fn keep(&self, target: &DirectoryTarget, connection: DirectoryConnection, result: &DirectoryResult) {
        if result.is_err() || !connection.received.is_empty() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_target = idle.entry(target.clone()).or_default();
        if of_target.len() < target.idle_max {
            of_target.push((connection, Instant::now()));
        }
    }
}

impl DirectoryServer {
    async fn open(&self, target: &DirectoryTarget) -> Result<DirectoryConnection, DirectoryFault> {
        let tls = SinkTls { verify: target.verify, ..SinkTls::default() };
        let first = (target.security == DirectorySecurity::Tls).then_some(&tls);
        let limit = Duration::from_millis(target.timeout_ms);
        let stream = self.connector.connect(&target.host, target.port, first, limit).await;
        let failed = |(SendFault::Failed(why) | SendFault::Refused(why))| DirectoryFault::Unreachable(why);
        let stream = stream.map_err(failed)?;
        let mut connection = DirectoryConnection::new(stream);
        if target.security == DirectorySecurity::StartTls {
            connection.start_tls().await?;
            // Bytes before the handshake may come from anyone on the way.
            if !connection.received.is_empty() {
                return Err(DirectoryFault::Failed(
                    "the server sent bytes between StartTLS and TLS".to_owned(),
                ));
            }
            let secured = self.connector.secure(&target.host, connection.stream, &tls, None).await;
            let failed = |why| DirectoryFault::Unreachable(format!("StartTLS with {target}: {why}"));
            connection = DirectoryConnection::new(secured.map_err(failed)?);
        }
        Ok(connection)
    }
}

/// A connection to a directory.
struct DirectoryConnection {
    stream: Box<dyn OutboundStream>,
    /// Bytes behind the last message.
    received: Vec<u8>,
    last_id: u32,
}

impl DirectoryConnection {
    fn new(stream: Box<dyn OutboundStream>) -> DirectoryConnection {
        DirectoryConnection { stream, received: Vec::new(), last_id: 0 }
    }

    async fn answer(&mut self, query: &DirectoryQuery) -> DirectoryResult {
        match query {
            DirectoryQuery::Bind(login) => self.log_in(login).await,
            DirectoryQuery::Search(search) => self.find_and_log_in(search).await,
        }
    }

    async fn log_in(&mut self, login: &DirectoryLogin) -> DirectoryResult {
        let outcome = self.bind(&login.dn, &login.password).await?;
        match outcome.code {
            0 => Ok(DirectoryReply::Accepted { dn: login.dn.clone() }),
            code if is_refusal(code) => Ok(DirectoryReply::Refused),
            _ => Err(failed("bind", &outcome)),
        }
    }

    async fn find_and_log_in(&mut self, search: &DirectorySearch) -> DirectoryResult {
        // The bind of a searcher without a name is anonymous (RFC 4513 §5.1.1).
        let (dn, password) = match &search.searcher {
            Some(DirectoryLogin { dn, password }) => (dn.as_str(), password.as_str()),
            None => ("", ""),
        };
        let outcome = self.bind(dn, password).await?;
        if outcome.code != 0 {
            return Err(failed("bind of the searching account", &outcome));
        }
        match self.find(search).await? {
            Some(dn) => self.log_in(&DirectoryLogin { dn, password: search.password.clone() }).await,
            None => Ok(DirectoryReply::NotUnique),
        }
    }

    /// The name of the only entry of the user.
    async fn find(&mut self, search: &DirectorySearch) -> Result<Option<String>, DirectoryFault> {
        const SIZE_LIMIT_EXCEEDED: u32 = 4;
        let id = self.next_id();
        let request = SearchRequest {
            base: &search.base_dn,
            attribute: &search.attribute,
            value: &search.name,
            size_limit: search.size_limit,
            time_limit_s: search.time_limit_s,
        };
        self.send(&wire::search(id, &request)).await?;
        let (mut entries, mut found) = (0, None);
        for _ in 0..SEARCH_MESSAGES_MAX {
            match self.receive(id).await? {
                LdapOperation::Entry { dn } => {
                    entries += 1;
                    found = Some(dn);
                }
                // The user may be in another directory, whose answer would be unknown: it does not count.
                LdapOperation::Reference => {}
                LdapOperation::SearchDone(outcome) => {
                    // More entries than the limit, which is at least two: the name is not unique.
                    let is_complete = outcome.code == 0 || outcome.code == SIZE_LIMIT_EXCEEDED;
                    if !is_complete {
                        return Err(failed("search", &outcome));
                    }
                    // An entry without a name would bind anonymously.
                    return Ok(found.filter(|dn| outcome.code == 0 && entries == 1 && !dn.is_empty()));
                }
                _ => return Err(unexpected()),
            }
        }
        Err(DirectoryFault::Failed("the server sends more entries than requested".to_owned()))
    }

    async fn bind(&mut self, dn: &str, password: &str) -> Result<LdapOutcome, DirectoryFault> {
        let id = self.next_id();
        self.send(&wire::bind(id, dn, password)).await?;
        match self.receive(id).await? {
            LdapOperation::Bind(outcome) => Ok(outcome),
            _ => Err(unexpected()),
        }
    }

    async fn start_tls(&mut self) -> Result<(), DirectoryFault> {
        let id = self.next_id();
        self.send(&wire::start_tls(id)).await?;
        match self.receive(id).await? {
            LdapOperation::Extended(LdapOutcome { code: 0, .. }) => Ok(()),
            LdapOperation::Extended(outcome) => Err(failed("StartTLS", &outcome)),
            _ => Err(unexpected()),
        }
    }

    fn next_id(&mut self) -> u32 {
        // Ids are positive and have 31 bits (RFC 4511 §4.1.1.1).
        self.last_id = self.last_id % 0x7fff_ffff + 1;
        self.last_id
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), DirectoryFault> {
        let lost = |error: std::io::Error| DirectoryFault::Unreachable(error.to_string());
        self.stream.write_all(message).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)
    }

    /// The next message for the request `id`.
    async fn receive(&mut self, id: u32) -> Result<LdapOperation, DirectoryFault> {
        let malformed = |why: &str| DirectoryFault::Failed(why.to_owned());
        loop {
            if let Some(length) = wire::message_length(&self.received).map_err(malformed)? {
                let message = wire::read_message(&self.received[..length]);
                let message = message.ok_or_else(|| malformed("the server sent a malformed message"))?;
                self.received.drain(..length);
                return match message.id == id {
                    true => Ok(message.operation),
                    // Id 0 is the notice that the server closes the connection (RFC 4511 §4.4.1).
                    false if message.id == 0 => {
                        Err(DirectoryFault::Unreachable("the server ended the connection".to_owned()))
                    }
                    false => Err(unexpected()),
                };
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).await;
            match read.map_err(|error| DirectoryFault::Unreachable(error.to_string()))? {
                0 => return Err(DirectoryFault::Unreachable("the server closed the connection".to_owned())),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

/// Result codes that refuse this user and are no trouble of the directory (RFC 4511 §A.2): constraint violation (as for
/// locked accounts), no such object, invalid name, inappropriate authentication, invalid credentials, insufficient
/// access rights, unwilling to perform.
fn is_refusal(code: u32) -> bool {
    matches!(code, 19 | 32 | 34 | 48 | 49 | 50 | 53)
}

fn failed(step: &str, outcome: &LdapOutcome) -> DirectoryFault {
    let LdapOutcome { code, text } = outcome;
    DirectoryFault::Failed(format!("{step}: the server returned result code {code}: {text}"))
}

fn unexpected() -> DirectoryFault {
    DirectoryFault::Failed("the server sent an unexpected response".to_owned())
}

#[cfg(test)]
mod tests;
