//! Endpoints by name survive an upgrade, even if their source is unavailable.

use serde_json::{Value, json};

use super::{Line, start};
use crate::harness::name_server::{Mood, NameServer};
use crate::harness::registry::{Registry, consul_instance};
use crate::harness::{Gateway, Options, Scratch, Upstream, eventually};

/// A route to an endpoint by its name.
fn by_name(upstream: &Upstream) -> Value {
    let nodes = json!({ format!("svc.test:{}", upstream.address.port()): 1 });
    json!({"routes": [{"id": "a", "uri": "/*", "upstream": {"nodes": nodes}}]})
}

/// Upgrades twice, the second time before any source could have responded.
fn upgrades_lose_nothing(line: &mut Line, what: &str) {
    for _ in 0..2 {
        line.upgrade();
        let statuses: Vec<u16> = (0..20).map(|_| line.gateway.get("/").status).collect();
        assert_eq!(statuses, [200; 20], "{what}\n{}", line.gateway.log());
    }
}

#[test]
fn addresses_of_host_names_are_handed_over_whatever_name_servers_do() {
    let (names, upstream) = (NameServer::start(), Upstream::text("a"));
    let node = format!("dns: {{servers: ['{}']}}\n", names.address);
    for mood in [Mood::Silent, Mood::Fails, Mood::Slow] {
        names.is_in(Mood::Answers);
        let mut line = start(&by_name(&upstream), &node);
        assert_eq!(line.gateway.get("/").status, 200);
        names.is_in(mood);
        let file = line.gateway.scratch.file("data/names.json");
        upgrades_lose_nothing(&mut line, &format!("{mood:?}"));
        eventually("they are kept, too", 10, || std::fs::exists(&file).is_ok_and(|exists| exists));
    }
}

#[test]
fn a_node_that_starts_while_its_name_servers_are_away_uses_the_addresses_it_knew() {
    let (names, upstream) = (NameServer::start(), Upstream::text("a"));
    let node = format!("dns: {{servers: ['{}']}}\n", names.address);
    let (scratch, options) = (Scratch::new(), Options { node: &node, ..Options::default() });
    let routes = scratch.write("routes.yaml", by_name(&upstream).to_string());
    let data = scratch.file("data");
    std::fs::create_dir(&data).unwrap();
    let launch = || {
        let data = data.display().to_string();
        Gateway::launch(Scratch::new(), &options, &["--file", &routes, "--data-dir", &data])
    };
    let gateway = launch();
    assert_eq!(gateway.get("/").status, 200);
    let file_text = || std::fs::read_to_string(data.join("names.json")).unwrap_or_default();
    eventually("they are kept", 10, || file_text() == r#"{"names":{"svc.test":["127.0.0.1"]}}"#);
    drop(gateway);
    for mood in [Mood::Silent, Mood::Fails] {
        names.is_in(mood);
        let gateway = launch();
        assert_eq!(gateway.get("/").status, 200, "{mood:?}: {}", gateway.log());
    }
}

#[test]
fn nodes_of_services_are_handed_over_where_nothing_is_kept_on_disk() {
    let (consul, upstream) = (Registry::consul(), Upstream::text("a"));
    consul.set_answer("web", Some(json!([consul_instance(upstream.address, 1, Value::Null)])));
    let node = format!("discovery: {{consul: {{servers: ['{}']}}}}\n", consul.url());
    let upstream_settings = json!({"service_name": "web", "discovery_type": "consul"});
    let mut line =
        start(&json!({"routes": [{"id": "a", "uri": "/*", "upstream": upstream_settings}]}), &node);
    eventually("it is discovered", 10, || line.gateway.get("/").status == 200);
    let file = line.gateway.scratch.file("data/discovery.json");
    eventually("it is kept", 10, || std::fs::exists(&file).is_ok_and(|exists| exists));
    std::fs::remove_file(&file).unwrap();
    // The path is a directory, so that no file can be moved there.
    std::fs::create_dir(&file).unwrap();
    consul.breaks(Some(500));
    upgrades_lose_nothing(&mut line, "consul is away");
}
