//! Connection setup: address, TLS, authentication, database, and a PING.
//!
//! Independent of pipelining or retries.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use yumen_plugin::background::{RedisAddress, RedisFault, RedisLogin, RedisReply, RedisTarget};

use crate::RedisRuntime;
use crate::resp::{self, ReplyResult};

/// A byte stream in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A connection without pending commands.
pub(crate) type Stream = Box<dyn ByteStream>;

/// Connects to the server of the target and prepares it for commands. The caller enforces the timeout.
pub(crate) async fn server(
    tools: &RedisRuntime,
    target: &RedisTarget,
    address: &RedisAddress,
) -> Result<Stream, RedisFault> {
    let mut stream = open(tools, target, address).await?;
    let mut words = login(&target.login);
    let database = target.database.to_string();
    if target.database > 0 {
        // Database 0 is the default of a connection.
        words.push(vec!["SELECT", &database]);
    }
    // A server that is loading or requires authentication fails here and not at the first request.
    words.push(vec!["PING"]);
    exchange(&mut stream, &words).await?;
    Ok(stream)
}

/// Connects to a server and verifies that it is a master.
pub(crate) async fn master(
    tools: &RedisRuntime,
    target: &RedisTarget,
    address: &RedisAddress,
) -> Result<Stream, RedisFault> {
    let mut stream = server(tools, target, address).await?;
    // Shortly after a failover, sentinels may still name the former master.
    let role = exchange(&mut stream, &[vec!["ROLE"]]).await?.pop();
    let is_master = match &role {
        Some(RedisReply::Array(items)) => items.first() == Some(&RedisReply::Text(b"master".to_vec())),
        _ => false,
    };
    match is_master {
        true => Ok(stream),
        false => Err(RedisFault::Connect(format!("{address} is not a master"))),
    }
}

/// The commands that authenticate.
pub(crate) fn login(login: &RedisLogin) -> Vec<Vec<&str>> {
    match (login.username.as_str(), login.password.as_str()) {
        // Without a password there is no authentication, whatever the user.
        (_, "") => Vec::new(),
        ("", password) => vec![vec!["AUTH", password]],
        (username, password) => vec![vec!["AUTH", username, password]],
    }
}

/// Opens a connection, with TLS if the target requires it.
pub(crate) async fn open(
    tools: &RedisRuntime,
    target: &RedisTarget,
    address: &RedisAddress,
) -> Result<Stream, RedisFault> {
    let fault = |error: String| RedisFault::Connect(format!("{address}: {error}"));
    let config = target.tls.map(|tls| (tools.tls)(tls.verify)).transpose().map_err(fault)?;
    // tokio resolves names on a blocking thread.
    let tcp = TcpStream::connect((address.host.as_str(), address.port));
    let tcp = tcp.await.map_err(|error| fault(error.to_string()))?;
    // Commands are small and waited for; Nagle's algorithm would delay them.
    tcp.set_nodelay(true).map_err(|error| fault(error.to_string()))?;
    let Some(config) = config else { return Ok(Box::new(tcp)) };
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| fault(format!("{} is not a valid name in a certificate", address.host)))?;
    let connector = TlsConnector::from(Arc::clone(&config));
    let tls = connector.connect(name, tcp).await.map_err(|error| fault(format!("TLS: {error}")))?;
    Ok(Box::new(tls))
}

/// Sends commands on a connection without pending ones, and reads their replies.
pub(crate) async fn exchange(
    stream: &mut Stream,
    words: &[Vec<&str>],
) -> Result<Vec<RedisReply>, RedisFault> {
    let mut bytes = Vec::new();
    words.iter().for_each(|words| resp::text_command(&mut bytes, words));
    let lost = |error: std::io::Error| RedisFault::Connect(error.to_string());
    stream.write_all(&bytes).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    // Read to the last reply and no further: no command is pending, so no bytes are left over.
    let mut inbox = Vec::new();
    let mut replies = Vec::new();
    while replies.len() < words.len() {
        let Some(reply) = take(&mut inbox)? else {
            if stream.read_buf(&mut inbox).await.map_err(lost)? == 0 {
                return Err(RedisFault::Connect("closed by the server".to_owned()));
            }
            continue;
        };
        let command = words[replies.len()][0];
        let explain = |error: String| match command {
            // Redis quotes the arguments of an unknown command: only the error code is reported, never the
            // password.
            "AUTH" => format!("AUTH: {}", error.split([' ', '\r', '\n']).next().unwrap_or_default()),
            _ => format!("{command}: {error}"),
        };
        replies.push(reply.map_err(|error| RedisFault::Connect(explain(error)))?);
    }
    Ok(replies)
}

/// Removes the first reply from the inbox.
fn take(inbox: &mut Vec<u8>) -> Result<Option<ReplyResult>, RedisFault> {
    match resp::reply(inbox) {
        Ok(None) => Ok(None),
        Ok(Some((reply, length))) => {
            inbox.drain(..length);
            Ok(Some(reply))
        }
        Err(resp::MalformedReply) => Err(RedisFault::Connect("the server is not Redis".to_owned())),
    }
}
