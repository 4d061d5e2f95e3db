//! The client against a server that answers by a script. A real directory is in the integration tests.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use yumen_plugin::{
    DirectoryFault, DirectoryLogin, DirectoryQuery, DirectoryReply, DirectoryResult, DirectorySearch,
    DirectorySecurity, DirectoryService, DirectoryTarget,
};

use super::{DirectoryClient, QUERIES_MAX};

/// A response without its id.
#[derive(Clone)]
enum Scripted {
    /// Tag and result code of a result.
    Result(u8, u8),
    /// A search entry with this name.
    Entry(&'static str),
    /// A search reference.
    Reference,
    /// These bytes as they are.
    Bytes(&'static [u8]),
    /// The end of the connection.
    Close,
}

use Scripted::{Bytes, Close, Entry, Reference, Result as Outcome};

const BIND: u8 = 0x61;
const DONE: u8 = 0x65;
const EXTENDED: u8 = 0x78;

fn encode(id: u8, response: &Scripted) -> Vec<u8> {
    let operation = match response {
        Outcome(tag, code) => vec![*tag, 7, 0x0a, 1, *code, 4, 0, 4, 0],
        Entry(dn) => {
            let name = [&[4, dn.len() as u8], dn.as_bytes(), &[0x30, 0]].concat();
            [&[0x64, name.len() as u8], &name[..]].concat()
        }
        Reference => vec![0x73, 2, 4, 0],
        Bytes(bytes) => return bytes.to_vec(),
        Close => return Vec::new(),
    };
    [&[0x30, operation.len() as u8 + 3, 2, 1, id], &operation[..]].concat()
}

/// Serves connections one after the other. Each request gets the next responses of the script of its connection.
async fn serve(listener: TcpListener, connections: Vec<Vec<Vec<Scripted>>>) {
    for script in connections {
        let (mut stream, _) = listener.accept().await.unwrap();
        for responses in script {
            let Some(id) = read_id(&mut stream).await else { break };
            for response in &responses {
                stream.write_all(&encode(id, response)).await.unwrap();
            }
            if matches!(responses.last(), Some(Close)) {
                break;
            }
        }
    }
}

/// The id of the next request, all of which are short.
async fn read_id(stream: &mut TcpStream) -> Option<u8> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!((head[0], head[2], head[3]), (0x30, 2, 1), "a short message with a short id");
    let mut rest = vec![0; usize::from(head[1]) - 3];
    stream.read_exact(&mut rest).await.ok()?;
    Some(head[4])
}

struct DirectoryBench {
    client: DirectoryClient,
    target: DirectoryTarget,
}

impl DirectoryBench {
    async fn new(connections: Vec<Vec<Vec<Scripted>>>) -> DirectoryBench {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, connections));
        let target = DirectoryTarget {
            host: "127.0.0.1".to_owned(),
            port,
            security: DirectorySecurity::Plain,
            verify: false,
            timeout_ms: 20_000,
            idle_max: 5,
            idle_ms: 60_000,
            pool: None,
        };
        DirectoryBench { client: DirectoryClient::new(Handle::current()), target }
    }

    async fn ask(&self, query: DirectoryQuery) -> DirectoryResult {
        self.client.ask(Arc::new(self.target.clone()), query).await
    }
}

fn bind() -> DirectoryQuery {
    DirectoryQuery::Bind(DirectoryLogin { dn: "cn=a".to_owned(), password: "p".to_owned() })
}

fn search() -> DirectoryQuery {
    DirectoryQuery::Search(Box::new(DirectorySearch {
        searcher: None,
        base_dn: "dc=a".to_owned(),
        attribute: "cn".to_owned(),
        name: "a".to_owned(),
        password: "p".to_owned(),
        size_limit: 2,
        time_limit_s: 1,
    }))
}

async fn answer(query: DirectoryQuery, script: Vec<Vec<Scripted>>) -> DirectoryResult {
    DirectoryBench::new(vec![script]).await.ask(query).await
}

fn accepted(dn: &str) -> DirectoryResult {
    Ok(DirectoryReply::Accepted { dn: dn.to_owned() })
}

#[tokio::test]
async fn result_codes_of_a_bind_accept_refuse_or_fail() {
    assert_eq!(answer(bind(), vec![vec![Outcome(BIND, 0)]]).await, accepted("cn=a"));
    for code in [19, 32, 34, 48, 49, 50, 53] {
        let found = answer(bind(), vec![vec![Outcome(BIND, code)]]).await;
        assert_eq!(found, Ok(DirectoryReply::Refused), "{code}");
    }
    for code in [1, 2, 8, 10, 13, 51, 52, 80] {
        let found = answer(bind(), vec![vec![Outcome(BIND, code)]]).await;
        let Err(DirectoryFault::Failed(why)) = found else { panic!("{code}: {found:?}") };
        assert!(why.contains(&format!("result code {code}:")), "{why}");
    }
}

#[tokio::test]
async fn only_one_entry_is_a_match() {
    let anonymous = || vec![Outcome(BIND, 0)];
    let one = vec![Reference, Entry("cn=a,dc=a"), Outcome(DONE, 0)];
    let found = answer(search(), vec![anonymous(), one.clone(), vec![Outcome(BIND, 0)]]).await;
    assert_eq!(found, accepted("cn=a,dc=a"));
    let found = answer(search(), vec![anonymous(), one, vec![Outcome(BIND, 49)]]).await;
    assert_eq!(found, Ok(DirectoryReply::Refused));
    for entries in [
        vec![Outcome(DONE, 0)],
        vec![Entry("cn=a"), Entry("cn=b"), Outcome(DONE, 0)],
        vec![Entry("cn=a"), Entry("cn=b"), Outcome(DONE, 4)],
        // A truncated result: another entry may have the name.
        vec![Entry("cn=a"), Outcome(DONE, 4)],
        // A bind without a name would be anonymous.
        vec![Entry(""), Outcome(DONE, 0)],
        vec![Reference, Outcome(DONE, 0)],
    ] {
        let found = answer(search(), vec![anonymous(), entries]).await;
        assert_eq!(found, Ok(DirectoryReply::NotUnique));
    }
    for failed in [vec![Outcome(DONE, 32)], vec![Entry("cn=a"), Outcome(DONE, 3)], vec![Outcome(BIND, 0)]] {
        let found = answer(search(), vec![anonymous(), failed]).await;
        assert!(matches!(found, Err(DirectoryFault::Failed(_))), "{found:?}");
    }
    let found = answer(search(), vec![vec![Outcome(BIND, 49)]]).await;
    assert!(matches!(found, Err(DirectoryFault::Failed(_))), "the searching account is refused: {found:?}");
}

#[tokio::test]
async fn foreign_bytes_are_a_fault() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x03\x02\x01\x01",
        // The response to another request.
        b"\x30\x0c\x02\x01\x09\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
    ] {
        let found = answer(bind(), vec![vec![Bytes(bytes)]]).await;
        assert!(matches!(found, Err(DirectoryFault::Failed(_))), "{found:?}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_replaced() {
    let script = vec![vec![vec![Outcome(BIND, 0)], vec![Close]], vec![vec![Outcome(BIND, 49)]]];
    let bench = DirectoryBench::new(script).await;
    assert_eq!(bench.ask(bind()).await, accepted("cn=a"));
    assert_eq!(bench.ask(bind()).await, Ok(DirectoryReply::Refused));
}

#[tokio::test]
async fn bytes_between_starttls_and_tls_are_a_fault() {
    let injected = vec![vec![Outcome(EXTENDED, 0), Outcome(BIND, 0)]];
    let mut bench = DirectoryBench::new(vec![injected]).await;
    bench.target.security = DirectorySecurity::StartTls;
    let found = bench.ask(bind()).await;
    assert!(matches!(found, Err(DirectoryFault::Failed(_) | DirectoryFault::Unreachable(_))), "{found:?}");
    let mut bench = DirectoryBench::new(vec![vec![vec![Outcome(EXTENDED, 2)]]]).await;
    bench.target.security = DirectorySecurity::StartTls;
    assert!(matches!(bench.ask(bind()).await, Err(DirectoryFault::Failed(_))));
}

#[tokio::test]
async fn a_directory_that_hangs_costs_a_bounded_number_of_queries() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut bench = DirectoryBench::new(Vec::new()).await;
    (bench.target.port, bench.target.timeout_ms) = (listener.local_addr().unwrap().port(), 300);
    let target = Arc::new(bench.target.clone());
    let waiting: Vec<_> = (0..QUERIES_MAX).map(|_| bench.client.ask(target.clone(), bind())).collect();
    assert_eq!(bench.ask(bind()).await, Err(DirectoryFault::Busy));
    for query in waiting {
        let found = query.await;
        assert!(matches!(found, Err(DirectoryFault::Timeout | DirectoryFault::Unreachable(_))), "{found:?}");
    }
    assert_ne!(bench.ask(bind()).await, Err(DirectoryFault::Busy), "their slots are free again");
}

#[tokio::test]
async fn a_directory_that_hangs_delays_no_query_to_another_one() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bench = DirectoryBench::new(vec![vec![vec![Outcome(BIND, 0)]]]).await;
    let mut target = bench.target.clone();
    // Its handshakes take all places for connecting.
    (target.port, target.security) = (hanging.local_addr().unwrap().port(), DirectorySecurity::Tls);
    let target = Arc::new(target);
    let waiting: Vec<_> = (0..=QUERIES_MAX).map(|_| bench.client.ask(target.clone(), bind())).collect();
    assert_eq!(bench.ask(bind()).await, accepted("cn=a"));
    drop(waiting);
}
