use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use yumen_config::node::DnsConfig;

use super::{HostNames, keep_resolved, name_server, query_name};
use crate::endpoints::inputs::{AddressesByName, HostAddresses, RequiredHosts};

/// Answer of the name server for one name.
#[derive(Clone)]
enum Says {
    /// Addresses with a TTL in seconds.
    Addresses(&'static [&'static str], u32),
    /// Addresses, with a failure for AAAA queries.
    OnlyV4(&'static [&'static str]),
    NoSuchName,
    Broken,
}

type Zone = Arc<Mutex<BTreeMap<&'static str, Says>>>;

/// Name server on loopback; queries for unknown names get no answer.
struct Server {
    addr: SocketAddr,
    zone: Zone,
    /// Names queried, with the record type.
    queries: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

fn answer(zone: &Zone, query: &Message) -> Option<Message> {
    let question = query.queries.first()?.clone();
    let name = question.name().to_ascii().trim_end_matches('.').to_owned();
    let answer = zone.lock().unwrap().get(name.as_str())?.clone();
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.add_query(question.clone());
    let v6 = question.query_type() == RecordType::AAAA;
    let (addresses, ttl) = match answer {
        Says::Addresses(addresses, ttl) => (addresses, ttl),
        Says::OnlyV4(addresses) if !v6 => (addresses, 1),
        Says::NoSuchName => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            return Some(reply);
        }
        Says::Broken | Says::OnlyV4(_) => {
            reply.metadata.response_code = ResponseCode::ServFail;
            return Some(reply);
        }
    };
    for address in addresses.iter().map(|address| address.parse::<IpAddr>().unwrap()) {
        if address.is_ipv6() == v6 {
            reply.add_answer(Record::from_rdata(question.name().clone(), ttl, RData::from(address)));
        }
    }
    Some(reply)
}

impl Server {
    async fn start(zone: &[(&'static str, Says)]) -> Server {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let zone: Zone = Arc::new(Mutex::new(zone.iter().cloned().collect()));
        let queries: Arc<Mutex<Vec<String>>> = Arc::default();
        let (served, log) = (zone.clone(), queries.clone());
        let task = tokio::spawn(async move {
            let mut bytes = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut bytes).await {
                let Ok(query) = Message::from_vec(&bytes[..length]) else { continue };
                log.lock().unwrap().extend(query.queries.iter().map(|one| format!("{one}")));
                if let Some(reply) = answer(&served, &query) {
                    let _ = socket.send_to(&reply.to_vec().unwrap(), peer).await;
                }
            }
        });
        Server { addr, zone, queries, task }
    }

    fn answer(&self, name: &'static str, answer: Says) {
        self.zone.lock().unwrap().insert(name, answer);
    }

    fn queries(&self) -> usize {
        self.queries.lock().unwrap().len()
    }
}

/// A running resolver task, with its reports as `name: addresses`.
struct Bench {
    names: watch::Sender<RequiredHosts>,
    reports: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<Result<(), String>>,
}

fn names(required: &[&str]) -> RequiredHosts {
    Arc::new(required.iter().map(|name| (Box::from(*name), 1)).collect())
}

/// Addresses known from an earlier process; no file.
fn known(before: &[(&str, &str)]) -> Arc<HostNames> {
    let known: AddressesByName = before
        .iter()
        .map(|(name, address)| (Box::from(*name), HostAddresses::of(vec![address.parse().unwrap()])))
        .collect();
    Arc::new(HostNames::open(Path::new("/nowhere"), known))
}

impl Bench {
    fn start(server: SocketAddr, required: &[&str]) -> Bench {
        Bench::start_with(server, required, &[])
    }

    /// Starts the task with earlier addresses.
    fn start_with(server: SocketAddr, required: &[&str], before: &[(&str, &str)]) -> Bench {
        let settings = DnsConfig {
            servers: vec![server.to_string()],
            ttl_min_ms: 50,
            refresh_ms: 100,
            timeout_ms: 1500,
            ..DnsConfig::default()
        };
        let (sender, receiver) = watch::channel(names(required));
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = reports.clone();
        let report = move |name: Box<str>, addresses: Vec<IpAddr>| {
            let addresses = addresses.iter().map(|address| format!(" {address}")).collect::<String>();
            log.lock().unwrap().push(format!("{name}:{addresses}"));
        };
        let task = tokio::spawn(keep_resolved(receiver, settings, known(before), report));
        Bench { names: sender, reports, task }
    }

    /// Waits for the expected number of reports, and compares them.
    async fn expect(&self, expected: &[&str]) {
        let enough = async {
            while self.reports.lock().unwrap().len() < expected.len() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let late = timeout(Duration::from_secs(60), enough).await.is_err();
        assert_eq!(*self.reports.lock().unwrap(), expected, "late: {late}");
    }
}

#[tokio::test]
async fn a_name_is_resolved_at_once_and_again_when_its_time_runs_out() {
    let server = Server::start(&[("a.test", Says::Addresses(&["10.0.0.1"], 3))]).await;
    let bench = Bench::start(server.addr, &["a.test"]);
    bench.expect(&["a.test: 10.0.0.1"]).await;
    let queries = server.queries();
    server.answer("a.test", Says::Addresses(&["10.0.0.2"], 0));
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.queries(), queries, "asked again before its time ran out");
    bench.expect(&["a.test: 10.0.0.1", "a.test: 10.0.0.2"]).await;
    // A TTL of 0 is raised to the configured minimum.
    server.answer("a.test", Says::Addresses(&["10.0.0.3"], 600));
    bench.expect(&["a.test: 10.0.0.1", "a.test: 10.0.0.2", "a.test: 10.0.0.3"]).await;
}

#[tokio::test]
async fn addresses_are_sorted_and_reported_only_when_they_change_ipv6_only_without_ipv4() {
    let server = Server::start(&[("a.test", Says::Addresses(&["fd00::1", "10.0.0.2", "10.0.0.1"], 0))]).await;
    let bench = Bench::start(server.addr, &["a.test"]);
    bench.expect(&["a.test: 10.0.0.1 10.0.0.2"]).await;
    let queries = server.queries();
    server.answer("a.test", Says::Addresses(&["10.0.0.1", "fd00::1", "10.0.0.2"], 0));
    while server.queries() < queries + 4 {
        sleep(Duration::from_millis(5)).await;
    }
    bench.expect(&["a.test: 10.0.0.1 10.0.0.2"]).await;
    server.answer("a.test", Says::OnlyV4(&["10.0.0.9"]));
    bench.expect(&["a.test: 10.0.0.1 10.0.0.2", "a.test: 10.0.0.9"]).await;
    server.answer("a.test", Says::Addresses(&["fd00::1"], 0));
    bench.expect(&["a.test: 10.0.0.1 10.0.0.2", "a.test: 10.0.0.9", "a.test: fd00::1"]).await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_has_no_address_until_it_does() {
    for answer in [Says::NoSuchName, Says::Broken, Says::Addresses(&[], 1)] {
        let server = Server::start(&[("a.test", answer)]).await;
        let bench = Bench::start(server.addr, &["a.test"]);
        bench.expect(&["a.test:"]).await;
        sleep(Duration::from_millis(1300)).await;
        bench.expect(&["a.test:"]).await;
        server.answer("a.test", Says::Addresses(&["10.0.0.1"], 600));
        bench.expect(&["a.test:", "a.test: 10.0.0.1"]).await;
    }
}

#[tokio::test]
async fn the_last_addresses_stay_while_the_server_is_gone_or_denies_the_name() {
    for vanishes in [true, false] {
        let server = Server::start(&[("a.test", Says::Addresses(&["10.0.0.1"], 0))]).await;
        let bench = Bench::start(server.addr, &["a.test"]);
        bench.expect(&["a.test: 10.0.0.1"]).await;
        match vanishes {
            true => server.task.abort(),
            false => server.answer("a.test", Says::NoSuchName),
        }
        sleep(Duration::from_millis(2500)).await;
        bench.expect(&["a.test: 10.0.0.1"]).await;
        assert!(!bench.task.is_finished());
    }
}

#[tokio::test]
async fn initial_addresses_serve_until_the_first_response() {
    let before = [("a.test", "10.0.0.1")];
    // A server without an answer exceeds `FIRST_ANSWER`.
    let silent = Server::start(&[]).await;
    let bench = Bench::start_with(silent.addr, &["a.test"], &before);
    bench.expect(&["a.test: 10.0.0.1"]).await;
    silent.answer("a.test", Says::Addresses(&["10.0.0.2"], 600));
    bench.expect(&["a.test: 10.0.0.1", "a.test: 10.0.0.2"]).await;
    for fails in [Says::Broken, Says::NoSuchName] {
        let server = Server::start(&[("a.test", fails)]).await;
        let bench = Bench::start_with(server.addr, &["a.test"], &before);
        bench.expect(&["a.test: 10.0.0.1"]).await;
        server.answer("a.test", Says::Addresses(&["10.0.0.2"], 600));
        bench.expect(&["a.test: 10.0.0.1", "a.test: 10.0.0.2"]).await;
    }
    let server = Server::start(&[("a.test", Says::Addresses(&["10.0.0.2"], 600))]).await;
    let bench = Bench::start_with(server.addr, &["a.test"], &before);
    bench.expect(&["a.test: 10.0.0.2"]).await;
}

#[tokio::test]
async fn names_that_disappear_are_not_asked_for_and_are_new_when_they_return() {
    let server = Server::start(&[
        ("a.test", Says::Addresses(&["10.0.0.1"], 0)),
        ("b.test", Says::Addresses(&["10.0.0.2"], 600)),
    ])
    .await;
    let bench = Bench::start(server.addr, &["a.test"]);
    bench.expect(&["a.test: 10.0.0.1"]).await;
    bench.names.send_replace(names(&["b.test"]));
    bench.expect(&["a.test: 10.0.0.1", "b.test: 10.0.0.2"]).await;
    let queries = server.queries();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.queries(), queries);
    bench.names.send_replace(names(&["a.test", "b.test"]));
    bench.expect(&["a.test: 10.0.0.1", "b.test: 10.0.0.2", "a.test: 10.0.0.1"]).await;
    // The name was removed and required again between two reads of the watch channel.
    bench.names.send_replace(Arc::new(BTreeMap::from([("a.test".into(), 1), ("b.test".into(), 2)])));
    bench.expect(&["a.test: 10.0.0.1", "b.test: 10.0.0.2", "a.test: 10.0.0.1", "b.test: 10.0.0.2"]).await;
}

#[tokio::test]
async fn localhost_needs_no_name_server() {
    let unreachable = SocketAddr::from(([127, 0, 0, 1], 1));
    let bench = Bench::start(unreachable, &["localhost"]);
    let reported = async {
        while bench.reports.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), reported).await.unwrap();
    let report = bench.reports.lock().unwrap()[0].clone();
    assert!(
        ["localhost: 127.0.0.1", "localhost: ::1", "localhost: 127.0.0.1 ::1"].contains(&&*report),
        "{report}"
    );
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_an_error_and_a_gone_sender_is_the_end() {
    let (sender, receiver) = watch::channel(names(&[]));
    let bad = DnsConfig { servers: vec!["dns.example".into()], ..DnsConfig::default() };
    let error = keep_resolved(receiver.clone(), bad, known(&[]), |_, _| {}).await.unwrap_err();
    assert_eq!(error, "dns.servers: `dns.example` is not an address such as `10.0.0.2:53`");
    drop(sender);
    let good = DnsConfig { servers: vec!["127.0.0.1".into()], ..DnsConfig::default() };
    assert_eq!(keep_resolved(receiver, good, known(&[]), |_, _| {}).await, Ok(()));
}

#[test]
fn servers_are_addresses_with_or_without_a_port() {
    for (written, ip, port) in [
        ("10.0.0.2", "10.0.0.2", 53),
        ("10.0.0.2:5353", "10.0.0.2", 5353),
        ("[::1]:54", "::1", 54),
        ("::1", "::1", 53),
    ] {
        let server = name_server(written).unwrap();
        assert_eq!(server.ip, ip.parse::<IpAddr>().unwrap(), "{written}");
        assert!(server.connections.iter().all(|connection| connection.port == port), "{written}");
    }
}

#[tokio::test]
async fn names_with_underscores_are_resolved() {
    const HOSTS: [&str; 4] = ["_api._tcp.a.test", "end_.a.test", "my_service", "my_service.a.test"];
    let zone = HOSTS.map(|name| (name, Says::Addresses(&["10.0.0.1"], 600)));
    let server = Server::start(&zone).await;
    for name in HOSTS {
        let bench = Bench::start(server.addr, &[name]);
        bench.expect(&[&format!("{name}: 10.0.0.1")]).await;
    }
}

#[test]
fn a_query_name_is_parsed_label_by_label() {
    for (host, expected) in [
        ("my_service", Some("my_service")),
        ("My_Service.A.test.", Some("my_service.a.test.")),
        ("_sip._udp.a.test", Some("_sip._udp.a.test")),
        ("a__b_.test", Some("a__b_.test")),
        ("b\u{fc}cher.my_zone.test", Some("xn--bcher-kva.my_zone.test")),
        ("", None),
        (".", None),
        ("a..test", None),
        (".a.test", None),
        ("a b.test", None),
        ("[127.0.0.1]", None),
        ("-a.test", None),
    ] {
        let parsed = query_name(host).map(|name| name.to_ascii()).ok();
        assert_eq!(parsed.as_deref(), expected, "{host:?}");
    }
    assert!(query_name(&"a".repeat(64)).is_err(), "a label has 63 octets at most");
}
