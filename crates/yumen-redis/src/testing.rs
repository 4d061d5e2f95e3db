//! Test support: a clock, a runtime, and scripted servers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use yumen_base::Now;
use yumen_plugin::background::{RedisAddress, RedisLogin, RedisReply, RedisTarget, RedisTopology};

use crate::{RedisRuntime, resp};

fn now() -> Now {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // The clock of a worker is never at zero.
    let since = BEGUN.get_or_init(Instant::now).elapsed() + Duration::from_secs(1000);
    Now { mono_us: since.as_micros() as u64, unix_ms: since.as_millis() as u64 }
}

pub(crate) fn tools() -> RedisRuntime {
    RedisRuntime {
        now,
        sleep: Rc::new(|delay| Box::pin(tokio::time::sleep(delay))),
        tls: |_| Err("no TLS here".to_owned()),
        counters: Arc::default(),
    }
}

/// Runs a test on a local runtime, as in a worker.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime");
    runtime.block_on(test);
}

pub(crate) fn address(host: &str, port: u16) -> RedisAddress {
    RedisAddress { host: host.to_owned(), port }
}

/// Settings with a timeout of one second.
pub(crate) fn target(topology: RedisTopology) -> RedisTarget {
    let login = RedisLogin::default();
    RedisTarget { topology, login, database: 0, tls: None, timeout_ms: 1000, idle_ms: 60_000 }
}

/// A listener on a free port, with its address.
pub(crate) async fn listen(host: &str) -> (TcpListener, RedisAddress) {
    let listener = TcpListener::bind((host, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, address(host, port))
}

/// Responds to each command, its words joined by spaces, with the encoded reply that `answer` returns.
pub(crate) fn serve(listener: TcpListener, answer: impl Fn(&str) -> String + 'static) {
    let answer = Rc::new(answer);
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(talk(stream, answer.clone()));
        }
    });
}

async fn talk(mut stream: TcpStream, answer: Rc<impl Fn(&str) -> String>) {
    let mut inbox = Vec::new();
    while stream.read_buf(&mut inbox).await.is_ok_and(|bytes| bytes > 0) {
        // A command has the encoding of an array.
        while let Ok(Some((Ok(RedisReply::Array(words)), length))) = resp::reply(&inbox) {
            inbox.drain(..length);
            let text = |word: &RedisReply| match word {
                RedisReply::Text(text) => String::from_utf8_lossy(text).into_owned(),
                _ => panic!("a command of texts"),
            };
            let command = words.iter().map(text).collect::<Vec<_>>().join(" ");
            if stream.write_all(answer(&command).as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Encodes a bulk string.
pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Encodes an array of encoded replies.
pub(crate) fn array(items: &[String]) -> String {
    format!("*{}\r\n{}", items.len(), items.concat())
}
