use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use yumen_plugin::background::{RedisLogin, RedisReply, RedisTopology};

use super::*;
use crate::testing::{listen, run, serve, target, tools};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A connection to a server that answers the setup and then this number of commands per connection.
async fn link(answers: usize, timeout_ms: u64) -> (Rc<RedisConnection>, RedisRuntime) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::task::spawn_local(async move {
                let (mut inbox, mut left) = (Vec::new(), answers + 1);
                while stream.read_buf(&mut inbox).await.is_ok_and(|bytes| bytes > 0) {
                    let requests = inbox.len() / PING.len();
                    inbox.drain(..requests * PING.len());
                    let requests = requests.min(left);
                    left -= requests;
                    if stream.write_all(&b"+PONG\r\n".repeat(requests)).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let address = RedisAddress { host: "127.0.0.1".to_owned(), port };
    let target = Rc::new(RedisTarget {
        topology: RedisTopology::Server(address.clone()),
        login: RedisLogin::default(),
        database: 0,
        tls: None,
        timeout_ms,
        idle_ms: 60_000,
    });
    let tools = tools();
    (RedisConnection::new(&tools, &target, RedisPeer::Server(address)), tools)
}

fn ping(link: &Rc<RedisConnection>) -> LocalFuture<'static, RedisResult> {
    link.send(|out| out.extend_from_slice(PING))
}

#[test]
fn many_questions_travel_on_one_connection_and_are_answered_in_order() {
    run(async {
        let (link, tools) = link(1000, 30_000).await;
        let requests: Vec<_> = (0..1000).map(|_| ping(&link)).collect();
        for answer in requests {
            assert_eq!(answer.await, Ok(RedisReply::Text(b"PONG".to_vec())));
        }
        assert_eq!((tools.counters.connects.get(), tools.counters.round_trips.get()), (1, 1000));
    });
}

#[test]
fn those_who_wait_are_bounded() {
    run(async {
        let (link, _) = link(0, 30_000).await;
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| ping(&link)).collect();
        assert_eq!(ping(&link).await, Err(RedisFault::Busy));
        assert_eq!(link.waiting(), waiting.len());
    });
}

#[test]
fn stalled_server_costs_one_timeout() {
    run(async {
        let (link, _) = link(1, 200).await;
        assert!(ping(&link).await.is_ok());
        let late = [ping(&link), ping(&link)];
        for answer in late {
            assert_eq!(answer.await, Err(RedisFault::Timeout));
        }
        // The server counts as down at once, and is retried in the background, where it responds.
        assert_eq!(ping(&link).await, Err(RedisFault::Down));
        while link.is_down() {
            tokio::task::yield_now().await;
        }
        assert!(ping(&link).await.is_ok());
    });
}

#[test]
fn unreachable_server_is_reported() {
    run(async {
        let (other, tools) = link(0, 30_000).await;
        let peer = RedisPeer::Server(RedisAddress { host: "127.0.0.1".to_owned(), port: 1 });
        let link = RedisConnection::new(&tools, &other.target, peer);
        assert!(matches!(ping(&link).await, Err(RedisFault::Connect(why)) if why.contains("refused")));
        assert_eq!(ping(&link).await, Err(RedisFault::Down));
    });
}

#[test]
fn one_that_has_become_a_replica_is_connected_to_again() {
    for (refusal, connects) in [("READONLY", 2), ("MASTERDOWN", 2), ("OOM", 1)] {
        run(async {
            let (listener, server) = listen("127.0.0.1").await;
            serve(listener, move |command| match command {
                "PING" => "+PONG\r\n".to_owned(),
                _ => format!("-{refusal} for a reason\r\n"),
            });
            let (tools, target) = (tools(), Rc::new(target(RedisTopology::Server(server.clone()))));
            let link = RedisConnection::new(&tools, &target, RedisPeer::Server(server));
            let refused = link.send(|out| resp::text_command(out, &["INCR", "x"])).await;
            assert_eq!(refused, Err(RedisFault::Refused(format!("{refusal} for a reason"))));
            assert_eq!(ping(&link).await, Ok(RedisReply::Text(b"PONG".to_vec())));
            assert_eq!(tools.counters.connects.get(), connects, "{refusal}");
        });
    }
}
