//! DNS as a source, against a name server on loopback, and the rules that all sources share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use serde_json::json;
use tokio::net::UdpSocket;
use yumen_config::node::{self, DnsDiscovery, DnsRecord};
use yumen_snapshot::compile::DiscoveryQuery;

use super::{DiscoveryArgs, SavedServices, SourceCursor, bracketed, consul, dns, meets, nacos};

/// Records of the name server: name, type and content (an address, or priority, weight, port and target).
type Zone = Arc<Mutex<Vec<(&'static str, RecordType, &'static str)>>>;

fn rdata(kind: RecordType, text: &str) -> RData {
    let words: Vec<&str> = text.split(' ').collect();
    match (kind, &words[..]) {
        (RecordType::SRV, [priority, weight, port, target]) => RData::SRV(SRV::new(
            priority.parse().unwrap(),
            weight.parse().unwrap(),
            port.parse().unwrap(),
            Name::from_ascii(target).unwrap(),
        )),
        _ => RData::from(text.parse::<std::net::IpAddr>().unwrap()),
    }
}

/// Starts a name server. A record with the content `broken` is answered with a failure.
async fn serve(zone: Zone) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut bytes = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut bytes).await {
            let Ok(query) = Message::from_vec(&bytes[..length]) else { continue };
            let question = query.queries[0].clone();
            let name = question.name().to_ascii().trim_end_matches('.').to_owned();
            let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
            reply.add_query(question.clone());
            for (owner, kind, answer) in zone.lock().unwrap().iter() {
                match *answer {
                    _ if *owner != name || *kind != question.query_type() => {}
                    "broken" => reply.metadata.response_code = ResponseCode::ServFail,
                    answer => {
                        reply.add_answer(Record::from_rdata(
                            question.name().clone(),
                            7,
                            rdata(*kind, answer),
                        ));
                    }
                }
            }
            let _ = socket.send_to(&reply.to_vec().unwrap(), peer).await;
        }
    });
    addr
}

fn service(name: &str, args: &str) -> DiscoveryQuery {
    DiscoveryQuery { source: "dns".into(), name: name.into(), args: args.into() }
}

/// Queries the source; returns the nodes sorted, each as `host:port weight priority`.
async fn discover(server: SocketAddr, order: &[DnsRecord], name: &str) -> Result<Vec<String>, String> {
    let settings = DnsDiscovery { servers: vec![server.to_string()], order: order.to_vec() };
    let general = node::DnsConfig { timeout_ms: 10_000, refresh_ms: 3000, ..node::DnsConfig::default() };
    let answer = dns::DnsSource::new(&settings, &general).unwrap().discover(&service(name, "")).await?;
    let expected = if answer.nodes.is_empty() { 3 } else { 7 };
    assert_eq!(answer.pause, Duration::from_secs(expected), "asked again when the answer ends");
    let show = |node: &yumen_config::resource::UpstreamNode| {
        format!("{}:{} {} {}", node.host, node.port, node.weight, node.priority)
    };
    let mut nodes: Vec<String> = answer.nodes.iter().map(show).collect();
    nodes.sort();
    Ok(nodes)
}

#[tokio::test]
async fn records_are_looked_for_in_order_and_become_nodes() {
    use DnsRecord::{A, Aaaa, Cname, Last, Srv};
    let zone: Zone = Arc::new(Mutex::new(vec![
        ("web.test", RecordType::SRV, "1 5 8080 one.test."),
        ("web.test", RecordType::SRV, "2 0 8081 two.test."),
        ("web.test", RecordType::SRV, "2 9 8082 gone.test."),
        ("web.test", RecordType::A, "10.0.0.9"),
        ("one.test", RecordType::A, "10.0.0.1"),
        ("two.test", RecordType::AAAA, "fd00::2"),
        ("lost.test", RecordType::SRV, "1 1 1 gone.test."),
        ("_web._tcp.my_zone.test", RecordType::SRV, "1 5 8080 my_service."),
        ("my_service", RecordType::A, "10.0.0.7"),
        ("half.test", RecordType::SRV, "broken"),
        ("half.test", RecordType::A, "10.0.0.3"),
    ]));
    let server = serve(zone).await;
    let all = [Last, Srv, A, Aaaa, Cname];
    let cases: [(&[DnsRecord], &str, &[&str]); 9] = [
        (&all, "web.test", &["10.0.0.1:8080 5 -1", "[fd00::2]:8081 1 -2"]),
        (&all, "web.test:99", &["10.0.0.1:99 5 -1", "[fd00::2]:99 1 -2"]),
        (&[A, Srv], "web.test", &["10.0.0.9:0 1 0"]),
        (&[A, Srv], "web.test:81", &["10.0.0.9:81 1 0"]),
        (&all, "two.test:81", &["[fd00::2]:81 1 0"]),
        (&[A], "two.test:81", &[]),
        (&all, "_web._tcp.my_zone.test", &["10.0.0.7:8080 5 -1"]),
        (&all, "my_service:81", &["10.0.0.7:81 1 0"]),
        (&all, "nobody.test", &[]),
    ];
    for (order, name, expected) in cases {
        assert_eq!(discover(server, order, name).await.unwrap(), expected, "{name} by {order:?}");
    }
    // A failed SRV lookup is an error, although the name has an address record.
    assert!(discover(server, &all, "half.test").await.is_err());
    assert_eq!(discover(server, &all, "lost.test").await.unwrap_err(), "gone.test. has no address");
}

#[test]
fn arguments_are_those_the_source_knows() {
    let of = |args: &str| {
        let args = DiscoveryArgs::of(&service("a", args), &["group", "metadata"])?;
        Ok::<_, String>(args.text("group")?.map(str::to_owned))
    };
    assert_eq!(of(""), Ok(None));
    assert_eq!(of(r#"{"group":"g"}"#), Ok(Some("g".into())));
    for (args, error) in [
        (r#"{"groups":"g"}"#, "discovery_args.groups is not known; there are group, metadata"),
        (r#"{"group":1}"#, "discovery_args.group: 1 is no text"),
        ("[]", "discovery_args is not an object"),
    ] {
        assert_eq!(of(args), Err(error.into()));
    }
}

#[test]
fn metadata_has_all_that_is_wanted() {
    let required = json!({ "stage": "live", "zone": 1 });
    for (metadata, meant) in [
        (json!({ "stage": "live", "zone": "1", "more": 2 }), true),
        (json!({ "stage": "live" }), false),
        (json!({ "stage": "test", "zone": 1 }), false),
        (json!(null), false),
    ] {
        assert_eq!(meets(&metadata, required.as_object()), meant, "{metadata}");
    }
    assert!(meets(&json!(null), None));
    let args = |text: &str| {
        DiscoveryArgs::of(&service("a", text), &["metadata"])
            .unwrap()
            .metadata()
            .map(|required| required.cloned())
    };
    assert_eq!(args("{}"), Ok(None));
    assert_eq!(args(r#"{"metadata": {"a": 1}}"#), Ok(json!({ "a": 1 }).as_object().cloned()));
    assert!(args(r#"{"metadata": "v1"}"#).unwrap_err().contains("discovery_args.metadata"));
    assert_eq!([bracketed("::1"), bracketed("[::1]"), bracketed("a")], ["[::1]", "[::1]", "a"]);
}

#[test]
fn saved_services_are_read_and_a_damaged_file_is_empty() {
    let directory = std::env::temp_dir().join(format!("yumen-kept-{}", std::process::id()));
    let node = |host: &str| {
        serde_json::from_value(json!({ "host": host, "port": 80, "weight": 2, "metadata": { "a": "b" } }))
            .unwrap()
    };
    let known = vec![(service("a", "{}"), vec![node("10.0.0.1"), node("[::1]")])];
    let own = SavedServices::open(&directory, HashMap::new());
    own.save(&known);
    assert_eq!(own.nodes(&known[0].0).as_ref(), Some(&known[0].1), "of this run as well");
    let read = SavedServices::open(&directory, HashMap::new());
    assert_eq!(read.nodes(&known[0].0).as_ref(), Some(&known[0].1));
    assert_eq!(read.nodes(&service("a", "")), None);
    let saved = [(known[0].0.clone(), vec![node("10.0.0.2")])];
    assert_eq!(
        SavedServices::open(&directory, saved.clone().into()).nodes(&known[0].0),
        Some(saved[0].1.clone())
    );
    std::fs::write(directory.join("discovery.json"), "{\"services\": [1]}").unwrap();
    assert_eq!(SavedServices::open(&directory, HashMap::new()).nodes(&known[0].0), None);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn consul_is_asked_again_soon_only_where_it_can_be_waited_for() {
    let mut cursor = SourceCursor { server: 0, index: 0 };
    for (index_header, index, pause_ms) in [
        (Some("7"), 7, 100),
        (Some("9"), 9, 100),
        // A lower index resets the count.
        (Some("3"), 0, 100),
        (Some("3"), 3, 100),
        (Some("0"), 0, 2000),
        (Some("x"), 0, 2000),
        (None, 0, 2000),
    ] {
        let pause = consul::follow(index_header, &mut cursor);
        assert_eq!((cursor.index, pause), (index, Duration::from_millis(pause_ms)), "{index_header:?}");
    }
}

#[test]
fn the_least_weight_nacos_tells_still_gets_requests() {
    for (weight, usual, expected) in [
        (None, 100, 100),
        (Some(1.0), 100, 100),
        (Some(0.5), 100, 50),
        (Some(0.004), 100, 1),
        (Some(0.0), 100, 0),
        (Some(-1.0), 100, 0),
        (Some(f64::NAN), 100, 0),
        (Some(10_000.0), 100, 1_000_000),
    ] {
        assert_eq!(nacos::weight(weight, usual), expected, "{weight:?}");
    }
}

#[tokio::test]
async fn addresses_resolve_to_themselves_and_invalid_names_fail() {
    let unreachable = DnsDiscovery { servers: vec!["127.0.0.1:1".to_owned()], order: vec![DnsRecord::A] };
    let source = dns::DnsSource::new(&unreachable, &node::DnsConfig::default()).unwrap();
    for (name, expected) in [
        ("127.0.0.1:22601", "127.0.0.1:22601"),
        ("127.0.0.1", "127.0.0.1:0"),
        ("[::1]:22606", "[::1]:22606"),
        ("[::1]", "[::1]:0"),
        ("::1", "[::1]:0"),
    ] {
        let nodes = source.discover(&service(name, "")).await.unwrap().nodes;
        let found: Vec<String> = nodes.iter().map(|node| format!("{}:{}", node.host, node.port)).collect();
        assert_eq!(found, [expected], "{name}");
    }
    let error = source.discover(&service("[127.0.0.1]:80", "")).await.map(drop).unwrap_err();
    assert_eq!(error, "`[127.0.0.1]` is no host name");
}
