//! Resources to problems and routes; that order does not matter; quarantine, healing, carry.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_base::ProblemLevel;
use yumen_config::schema::InvalidSettings;
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::plugin::PhaseSet;
use yumen_plugin::{
    AccessRole, Carry, ConsumerAuth, MissingPlugin, MissingPlugins, MissingRole, Plugin, PluginBuildContext,
    PluginFactory, PluginRegistry, ServedTraffic,
};

use super::{CompileOutput, Compiler, CompilerEnv, ConfigChange, UpstreamDefaults};
use crate::testing::{SeededRandom, TestWorker};
use crate::upstream::TriedEndpoints;
use crate::{RouteTarget, Snapshot};

#[derive(Deserialize, JsonSchema)]
struct Tag {
    text: String,
}

/// Two plugins that do nothing but stand in a chain; the text shows which settings won.
struct First(#[allow(dead_code)] Arc<AtomicU32>);
struct Second;
struct Key;

impl Plugin for First {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }
}

impl Plugin for Second {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }
}

impl Plugin for Key {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }
}

impl PluginFactory for First {
    const NAME: &'static str = "first";
    const PRIORITY: i32 = 100;
    type Config = Tag;

    fn build(config: Tag, setup: &PluginBuildContext<'_>) -> Result<First, InvalidSettings> {
        let needs = config.text == "needs metadata";
        if config.text == "bad" || (needs && setup.metadata.is_none()) {
            return Err(InvalidSettings::at("text", "bad text"));
        }
        let counter = setup.carry.keep(&format!("first {}", setup.owner), || AtomicU32::new(0));
        counter.fetch_add(1, Relaxed);
        Ok(First(counter))
    }
}

impl PluginFactory for Second {
    const NAME: &'static str = "second";
    const PRIORITY: i32 = 50;
    type Config = Tag;

    fn build(_config: Tag, _setup: &PluginBuildContext<'_>) -> Result<Second, InvalidSettings> {
        Ok(Second)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct KeyOf {
    key: String,
}

impl PluginFactory for Key {
    const NAME: &'static str = "key-auth";
    const PRIORITY: i32 = 2500;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = Nothing;

    fn build(_config: Nothing, _setup: &PluginBuildContext<'_>) -> Result<Key, InvalidSettings> {
        Ok(Key)
    }
}

impl ConsumerAuth for Key {
    type Consumer = KeyOf;
    const KEY_FIELD: &'static str = "key";

    fn key(consumer: &KeyOf) -> &str {
        &consumer.key
    }
}

/// The environment the tests compile in.
fn variable(name: &str) -> Option<String> {
    let value = match name {
        "ALICE_KEY" => "open sesame",
        "EMPTY" => "",
        "KEYS" => r#"{"bob":"of bob","port":80,"nothing":null}"#,
        "PEM" => "good",
        "BAD_PEM" => "bad",
        _ => return None,
    };
    Some(value.to_owned())
}

const fn missing(name: &'static str, role: MissingRole) -> MissingPlugin {
    MissingPlugin { name, priority: 5, role, serves: ServedTraffic::Both, metadata: &[], consumer: &[] }
}

/// Plugins that the tests' compiler does not run.
const MISSING: &[MissingPlugin] = &[
    missing("later", MissingRole::Harmless),
    missing("gate", MissingRole::Guard),
    missing("login", MissingRole::Authentication),
    MissingPlugin { serves: ServedTraffic::Streams, ..missing("second", MissingRole::Guard) },
];

fn compiler_with(carry: Arc<Carry>) -> Compiler {
    let kinds = [
        yumen_plugin::PluginKind::of::<First>().with_metadata::<Value>(),
        yumen_plugin::PluginKind::of::<Second>(),
        yumen_plugin::PluginKind::of_auth::<Key>(),
    ];
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 2,
        closes_broken: false,
        missing: MissingPlugins::of(MISSING),
        fetched: Arc::default(),
        variables: Arc::new(variable),
        load_certificate: Arc::new(
            |cert: &str, _: &str| -> Result<crate::compile::Loaded, crate::compile::KeyPairError> {
                match cert.starts_with("bad") {
                    true => Err(crate::compile::KeyPairError::Certificate("not a certificate".into())),
                    false => Ok(Arc::new(cert.to_owned())),
                }
            },
        ),
    };
    Compiler::new(Arc::new(PluginRegistry::new(&kinds)), carry, env)
}

/// A compiler for objects whose owners have different rights.
pub(super) fn closing_compiler() -> Compiler {
    let mut compiler = compiler();
    compiler.context.env.closes_broken = true;
    compiler
}

pub(super) fn compiler() -> Compiler {
    compiler_with(Arc::default())
}

pub(super) fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

pub(super) fn nodes(address: &str) -> Value {
    json!({ "nodes": { address: 1 } })
}

pub(super) fn route(id: &str, mut value: Value) -> ConfigChange {
    if value.get("uri").is_none() {
        value["uri"] = json!(format!("/{id}"));
    }
    put(Kind::Routes, id, value)
}

/// What a request comes to: the route, where it goes, and its plugins with their origins.
pub(super) fn answer(snapshot: &Snapshot, request: &str) -> String {
    let bench = TestWorker::default();
    let mut ex = bench.exchange(request);
    let Some(route) = snapshot.router.find(&mut ex, &mut ()) else { return "-".into() };
    let goes = match &route.target {
        RouteTarget::None => "none".into(),
        RouteTarget::Weighted(of) => format!("{} backends", of.targets.len()),
        RouteTarget::Refuse { status, .. } => status.to_string(),
        RouteTarget::Upstream(slot) => {
            let upstream = snapshot.upstream(*slot).expect("a slot in use is filled");
            // What stands in for endpoints that are not known yet tells of what was before.
            let picked =
                upstream.pick(&ex, &TriedEndpoints::default()).filter(|_| upstream.unresolved.is_empty());
            picked.map_or("empty".into(), |index| upstream.endpoints[index].addr.to_string())
        }
    };
    let plugins: Vec<String> =
        route.chain.all().iter().map(|one| format!("{}@{}", one.name, one.origin)).collect();
    format!("{} {goes} {}", route.info.id, plugins.join(" ")).trim_end().to_owned()
}

pub(super) fn get(compiled: &CompileOutput, path: &str) -> String {
    answer(&compiled.snapshot, &format!("GET {path}"))
}

/// Problems as `level object at path`.
pub(super) fn found(problems: &[yumen_base::Problem]) -> Vec<String> {
    let level = |level| if level == ProblemLevel::Error { "error" } else { "warning" };
    problems.iter().map(|one| format!("{} {} at {}", level(one.level), one.object, one.path)).collect()
}

#[test]
fn plugins_merge_by_name_route_over_config_over_service() {
    let tag = json!({ "text": "x" });
    let compiled = compiler().apply(
        vec![
            put(Kind::Services, "s", json!({ "plugins": { "first": tag, "second": tag }, "upstream": nodes("10.0.0.1:80") })),
            put(Kind::PluginConfigs, "c", json!({ "plugins": { "second": tag } })),
            route("plain", json!({ "service_id": "s" })),
            route("config", json!({ "service_id": "s", "plugin_config_id": "c" })),
            route("own", json!({ "service_id": "s", "plugin_config_id": "c", "plugins": { "first": tag } })),
            route("off", json!({ "service_id": "s", "plugins": { "first": { "_meta": { "disable": true }, "text": 5 } } })),
            route("turned", json!({ "service_id": "s", "plugins": { "second": { "text": "", "_meta": { "priority": 900 } } } })),
        ],
        1,
    );
    assert_eq!(found(&compiled.problems), [""; 0]);
    for (path, plugins) in [
        ("plain", "first@services/s second@services/s"),
        ("config", "first@services/s second@plugin_configs/c"),
        ("own", "first@routes/own second@plugin_configs/c"),
        ("off", "second@services/s"),
        ("turned", "second@routes/turned first@services/s"),
    ] {
        assert_eq!(get(&compiled, &format!("/{path}")), format!("{path} 10.0.0.1:80 {plugins}"));
    }
}

#[test]
fn routes_without_plugins_of_their_own_share_a_chain() {
    let service = json!({ "plugins": { "first": { "text": "" } } });
    let one = |id| route(id, json!({ "service_id": "s" }));
    let compiled = compiler().apply(vec![put(Kind::Services, "s", service), one("a"), one("b")], 1);
    let bench = TestWorker::default();
    let chain = |path: &str| {
        let mut ex = bench.exchange(&format!("GET {path}"));
        Arc::as_ptr(&compiled.snapshot.router.find(&mut ex, &mut ()).unwrap().chain)
    };
    assert_eq!(chain("/a"), chain("/b"));
}

#[test]
fn a_route_takes_from_its_service_only_what_it_does_not_say() {
    let service = json!({ "hosts": ["S.com"], "upstream": nodes("10.0.0.1:80"), "enable_websocket": true });
    let compiled = compiler().apply(
        vec![
            put(Kind::Services, "s", service),
            route("a", json!({ "uri": "/", "service_id": "s" })),
            route(
                "b",
                json!({ "uri": "/", "service_id": "s", "host": "b.com", "upstream": nodes("10.0.0.2") }),
            ),
            route("c", json!({ "uri": "/", "host": "off.com", "service_id": "s", "status": 0 })),
        ],
        1,
    );
    for (host, expected) in
        [("s.com", "a 10.0.0.1:80"), ("b.com", "b 10.0.0.2:80"), ("c.com", "-"), ("off.com", "-")]
    {
        assert_eq!(answer(&compiled.snapshot, &format!("GET /\nHost: {host}")), expected);
    }
}

#[test]
fn what_is_missing_refuses_and_heals_by_itself() {
    let mut compiler = compiler();
    let compiled = compiler.apply(
        vec![
            route("s", json!({ "service_id": "x" })),
            route("u", json!({ "upstream_id": "x" })),
            route("c", json!({ "plugin_config_id": "x", "upstream": nodes("10.0.0.1") })),
            put(Kind::Services, "by-name", json!({ "upstream_id": "x" })),
            route("su", json!({ "service_id": "by-name" })),
        ],
        1,
    );
    let all = |compiled: &CompileOutput| ["/s", "/u", "/c", "/su"].map(|path| get(compiled, path));
    assert_eq!(all(&compiled), ["s 404", "u 503", "c 503", "su 503"]);
    let missing = [
        "error routes/c at plugin_config_id",
        "error routes/s at service_id",
        "error routes/su at upstream_id",
        "error routes/u at upstream_id",
    ];
    assert_eq!(found(&compiler.problems()), missing);
    let healed = compiler.apply(
        vec![
            put(Kind::Services, "x", nodes_in("10.0.0.3")),
            put(Kind::Upstreams, "x", nodes("10.0.0.4")),
            put(Kind::PluginConfigs, "x", json!({ "plugins": {} })),
        ],
        2,
    );
    assert_eq!(all(&healed), ["s 10.0.0.3:80", "u 10.0.0.4:80", "c 10.0.0.1:80", "su 10.0.0.4:80"]);
    assert_eq!(found(&compiler.problems()), [""; 0]);
    let deletions = [Kind::Services, Kind::Upstreams, Kind::PluginConfigs]
        .map(|kind| ConfigChange::Delete(kind, "x".into()));
    let compiled = compiler.apply(deletions.into(), 3);
    assert_eq!(all(&compiled), ["s 404", "u 503", "c 503", "su 503"]);
    assert_eq!(found(&compiler.problems()), missing);
}

pub(super) fn nodes_in(address: &str) -> Value {
    json!({ "upstream": nodes(address) })
}

#[test]
fn a_broken_object_keeps_its_last_good_version_and_a_new_one_refuses() {
    let mut compiler = compiler();
    compiler.apply(vec![route("a", nodes_in("10.0.0.1")), put(Kind::Upstreams, "u", nodes("10.0.0.5"))], 1);
    let bad =
        |id| route(id, json!({ "plugins": { "first": { "text": "bad" } }, "upstream": nodes("10.0.0.2") }));
    let compiled = compiler.apply(
        vec![
            bad("a"),
            bad("new"),
            put(Kind::Upstreams, "u", json!({ "nodes": { "10.0.0.6": 1 }, "scheme": "tcp" })),
            route("named", json!({ "upstream_id": "u" })),
            route("nowhere", json!({ "uri": "/nowhere", "remote_addr": "x", "upstream": nodes("10.0.0.2") })),
            route("unknown", json!({ "plugins": { "nobody": {} } })),
            route("later", json!({ "plugins": { "later": {} } })),
        ],
        2,
    );
    for (path, expected) in [
        ("/a", "a 10.0.0.1:80"),
        ("/new", "new 503"),
        ("/named", "named 10.0.0.5:80"),
        ("/nowhere", "-"),
        ("/unknown", "unknown 503"),
        ("/later", "later none"),
    ] {
        assert_eq!(get(&compiled, path), expected);
    }
    let expected = [
        "error routes/a at plugins.first.text",
        "warning routes/later at plugins.later",
        "error routes/new at plugins.first.text",
        "error routes/nowhere at remote_addr",
        "error routes/unknown at plugins.nobody",
        "error upstreams/u at nodes[0].port",
    ];
    let problems = compiler.problems();
    assert_eq!(found(&problems), expected);
    let last_good: Vec<&str> = problems.iter().filter(|one| one.last_good).map(|one| &*one.object).collect();
    assert_eq!(last_good, ["routes/a", "upstreams/u"]);
    let fixed = compiler.apply(vec![route("a", nodes_in("10.0.0.9")), route("new", nodes_in("10.0.0.8"))], 3);
    assert_eq!([get(&fixed, "/a"), get(&fixed, "/new")], ["a 10.0.0.9:80", "new 10.0.0.8:80"]);
    assert!(!found(&compiler.problems()).iter().any(|one| one.contains("routes/a") || one.contains("new")));
}

#[test]
fn a_plugin_that_wants_metadata_heals_when_that_appears() {
    let mut compiler = compiler();
    let needs_metadata = route("a", json!({ "plugins": { "first": { "text": "needs metadata" } } }));
    assert_eq!(get(&compiler.apply(vec![needs_metadata], 1), "/a"), "a 503");
    let metadata = put(Kind::PluginMetadata, "first", json!({ "anything": 1 }));
    assert_eq!(get(&compiler.apply(vec![metadata], 2), "/a"), "a none first@routes/a");
    assert_eq!(found(&compiler.problems()), [""; 0]);
}

#[test]
fn metadata_nobody_reads_is_told_with_what_was_meant() {
    let mut compiler = compiler();
    let metadata = |id: &str| put(Kind::PluginMetadata, id, json!({ "anything": 1 }));
    compiler.apply(vec![metadata("first"), metadata("later"), metadata("fisrt"), metadata("http")], 1);
    let hints: Vec<_> = compiler.problems().iter().map(|one| one.hint.clone()).collect();
    assert_eq!(
        found(&compiler.problems()),
        ["warning plugin_metadata/fisrt at ", "warning plugin_metadata/http at "]
    );
    assert_eq!(hints, [Some("did you mean \"first\"?".to_owned()), None]);
    compiler.apply(vec![ConfigChange::Delete(Kind::PluginMetadata, "fisrt".into())], 2);
    assert_eq!(found(&compiler.problems()), ["warning plugin_metadata/http at "]);
}

#[test]
fn an_upstream_of_kafka_is_kept_and_not_served() {
    let kafka = json!({ "nodes": { "10.0.0.6": 1 }, "scheme": "kafka" });
    let own = route("own", json!({ "upstream": kafka.clone() }));
    let named = route("named", json!({ "upstream_id": "u" }));
    let mut compiler = compiler();
    let compiled = compiler.apply(vec![put(Kind::Upstreams, "u", kafka), own, named], 1);
    let expected = ["warning routes/own at upstream.scheme", "warning upstreams/u at scheme"];
    assert_eq!(found(&compiler.problems()), expected);
    for id in ["own", "named"] {
        assert_eq!(get(&compiled, &format!("/{id}")), format!("{id} empty"));
    }
}

#[test]
fn keys_lead_to_consumers_and_the_later_of_two_is_a_problem() {
    let mut compiler = compiler();
    let keyed = |key: &str| json!({ "key-auth": { "key": key } });
    let consumer = |name: &str, key: &str| {
        put(Kind::Consumers, name, json!({ "username": name, "plugins": keyed(key), "group_id": "g" }))
    };
    let compiled = compiler.apply(
        vec![
            consumer("bob", "k"),
            consumer("alice", "k"),
            put(Kind::Credentials, "bob/credentials/c", json!({ "plugins": keyed("c") })),
            put(Kind::Credentials, "eve/credentials/c", json!({ "plugins": keyed("e") })),
            put(Kind::ConsumerGroups, "g", json!({ "plugins": { "first": { "text": "" } } })),
        ],
        1,
    );
    let consumer_of = |compiled: &CompileOutput, key: &str| {
        let identity = compiled.snapshot.consumers.find("key-auth", key.as_bytes())?;
        let plugins: Vec<_> = identity.consumer.plugins.iter().map(|one| &*one.origin).collect();
        Some(format!("{} {:?} {plugins:?}", identity.consumer.username, identity.credential_id.as_deref()))
    };
    assert_eq!(consumer_of(&compiled, "k").as_deref(), Some(r#"alice None ["consumer_groups/g"]"#));
    assert_eq!(consumer_of(&compiled, "c").as_deref(), Some(r#"bob Some("c") ["consumer_groups/g"]"#));
    assert_eq!(consumer_of(&compiled, "e"), None);
    let expected = ["error consumers/bob at plugins.key-auth", "error credentials/eve/credentials/c at "];
    assert_eq!(found(&compiler.problems()), expected);
    let deletions = [
        ConfigChange::Delete(Kind::Consumers, "alice".into()),
        ConfigChange::Delete(Kind::ConsumerGroups, "g".into()),
    ];
    let compiled = compiler.apply(deletions.into(), 2);
    assert_eq!(consumer_of(&compiled, "k").as_deref(), Some(r#"bob None ["consumers/bob"]"#), "its refusal");
    assert_eq!(consumer_of(&compiled, "c").as_deref(), Some(r#"bob Some("c") ["consumers/bob"]"#));
}

#[test]
fn certificates_are_found_by_exact_name_then_one_label_then_default() {
    let mut compiler = compiler();
    let pem = |text: &str| format!("{text:x<200}");
    let ssl = |id: &str, cert: &str, snis: Value| {
        put(Kind::Ssls, id, json!({ "cert": pem(cert), "key": pem("key"), "snis": snis }))
    };
    let compiled = compiler.apply(
        vec![
            ssl("1", "one", json!(["a.x.com", "*.x.com"])),
            ssl("2", "two", json!(["*.x.com"])),
            ssl("3", "three", json!(["*"])),
            ssl("4", "bad", json!(["bad.com"])),
        ],
        1,
    );
    let id = |compiled: &CompileOutput, sni: &str| {
        compiled.snapshot.certificate(sni).map(|one| one.id.to_string())
    };
    for (sni, expected) in
        [("A.x.com", "1"), ("b.x.com", "2"), ("c.b.x.com", "3"), ("", "3"), ("bad.com", "3")]
    {
        assert_eq!(id(&compiled, sni).as_deref(), Some(expected), "{sni}");
    }
    assert_eq!(found(&compiler.problems()), ["warning ssls/1 at snis", "error ssls/4 at cert"]);
    let compiled = compiler.apply(vec![ConfigChange::Delete(Kind::Ssls, "2".into())], 2);
    assert_eq!(id(&compiled, "b.x.com").as_deref(), Some("1"));
    assert_eq!(found(&compiler.problems()), ["error ssls/4 at cert"]);
}

#[test]
fn carried_state_survives_a_change_and_goes_with_its_last_user() {
    let carry = Arc::new(Carry::default());
    let mut compiler = compiler_with(carry.clone());
    let with = |text: &str| route("a", json!({ "plugins": { "first": { "text": text } } }));
    let first = compiler.apply(vec![with("1")], 1);
    let second = compiler.apply(vec![with("2")], 2);
    let counter = || carry.keep("first routes/a", || AtomicU32::new(100)).load(Relaxed);
    assert_eq!(counter(), 2);
    drop((first, second));
    drop(compiler.apply(vec![ConfigChange::Delete(Kind::Routes, "a".into())], 3));
    carry.sweep();
    assert_eq!((carry.len(), counter()), (0, 100));
}

#[test]
fn an_old_snapshot_answers_as_before() {
    let mut compiler = compiler();
    let old = compiler
        .apply(vec![route("a", nodes_in("10.0.0.1")), put(Kind::Upstreams, "u", nodes("10.0.0.5"))], 1);
    let changes = vec![route("a", nodes_in("10.0.0.2")), ConfigChange::Delete(Kind::Upstreams, "u".into())];
    let new = compiler.apply(changes, 2);
    assert_eq!([get(&old, "/a"), get(&new, "/a")], ["a 10.0.0.1:80", "a 10.0.0.2:80"]);
    assert_eq!((old.snapshot.upstreams().count(), new.snapshot.upstreams().count()), (2, 1));
}

#[test]
fn a_change_of_an_upstream_touches_no_route() {
    let mut compiler = compiler();
    let old = compiler.apply(
        vec![put(Kind::Upstreams, "u", nodes("10.0.0.5")), route("a", json!({ "upstream_id": "u" }))],
        1,
    );
    let new = compiler.apply(vec![put(Kind::Upstreams, "u", nodes("10.0.0.6"))], 2);
    let bench = TestWorker::default();
    let at = |compiled: &CompileOutput| {
        let mut ex = bench.exchange("GET /a");
        std::ptr::from_ref(compiled.snapshot.router.find(&mut ex, &mut ()).unwrap())
    };
    assert_eq!(at(&old), at(&new));
    assert_eq!(get(&new, "/a"), "a 10.0.0.6:80");
}

#[test]
fn chains_are_new_only_where_something_else_than_endpoints_changes() {
    let mut compiler = compiler();
    let upstream = |address: &str| put(Kind::Upstreams, "u", nodes(address));
    let service = json!({ "service_name": "s", "discovery_type": "dns" });
    let mut before = compiler.apply(vec![upstream("a.test"), route("a", json!({ "upstream_id": "u" }))], 1);
    let address: IpAddr = "10.0.0.9".parse().unwrap();
    for (change, is_new) in [
        (upstream("10.0.0.6"), false),
        (upstream("a.test"), false),
        (ConfigChange::Resolved { host: "a.test".into(), addrs: vec![address] }, false),
        (route("a", json!({ "upstream_id": "u", "name": "other" })), true),
        (put(Kind::Upstreams, "u", service), false),
        (ConfigChange::Delete(Kind::Upstreams, "u".into()), true),
        (put(Kind::Consumers, "c", json!({ "username": "c" })), true),
    ] {
        let what = format!("{change:?}");
        let after = compiler.apply(vec![change], 2);
        assert_eq!(after.snapshot.chains() != before.snapshot.chains(), is_new, "{what}");
        before = after;
    }
}

/// A random resource of a small world in which ids meet.
fn some_change(random: &SeededRandom) -> ConfigChange {
    let id = random.one(&["1", "2", "3"]);
    let kinds = [
        Kind::Routes,
        Kind::Routes,
        Kind::Services,
        Kind::Upstreams,
        Kind::PluginConfigs,
        Kind::GlobalRules,
        Kind::Consumers,
        Kind::ConsumerGroups,
    ];
    let kind = random.one(&kinds);
    if random.below(4) == 0 {
        return ConfigChange::Delete(kind, id.into());
    }
    let other = random.one(&["1", "2", "3"]);
    let tag = json!({ random.one(&["first", "second"]): { "text": id } });
    let address = random.one(&["10.0.0.1", "10.0.0.2:90", "name.local"]);
    let mut value = match kind {
        Kind::Upstreams => return put(kind, id, nodes(address)),
        Kind::Consumers => json!({ "username": id, "plugins": { "key-auth": { "key": other } } }),
        _ => json!({ "plugins": tag }),
    };
    if matches!(kind, Kind::Routes | Kind::Services) {
        match random.below(4) {
            0 => value["upstream"] = nodes(address),
            1 => value["upstream_id"] = json!(other),
            _ => {}
        }
    }
    if kind == Kind::Routes {
        value["uri"] = json!(random.one(&["/a", "/b/*", "/:p"]));
        if random.below(2) == 0 {
            value["service_id"] = json!(other);
        }
        if random.below(3) == 0 {
            value["plugin_config_id"] = json!(other);
        }
    }
    if kind == Kind::Services && random.below(2) == 0 {
        value["hosts"] = json!(["h.com"]);
    }
    if kind == Kind::Consumers && random.below(2) == 0 {
        value["group_id"] = json!(other);
    }
    put(kind, id, value)
}

/// All that can be seen of a state from outside.
fn view(compiler: &Compiler, snapshot: &Snapshot) -> Vec<String> {
    let mut view: Vec<String> = Vec::new();
    for path in ["/a", "/b/c", "/x"] {
        for host in ["h.com", "i.com"] {
            view.push(answer(snapshot, &format!("GET {path}\nHost: {host}")));
        }
    }
    let global: Vec<&str> = snapshot.global.all().iter().map(|one| &*one.origin).collect();
    view.push(global.join(" "));
    for key in ["1", "2", "3"] {
        let identity = snapshot.consumers.find("key-auth", key.as_bytes());
        let plugins =
            identity.map(|one| one.consumer.plugins.iter().map(|plugin| &*plugin.origin).collect::<Vec<_>>());
        view.push(format!("{:?} {plugins:?}", identity.map(|one| &*one.consumer.username)));
    }
    view.extend(compiler.problems().iter().map(ToString::to_string));
    view.push(compiler.hosts().map(|(host, _)| host).collect::<Vec<_>>().join(" "));
    view.push(snapshot.upstreams().count().to_string());
    view
}

#[test]
fn one_by_one_in_batches_shuffled_or_from_scratch_gives_the_same() {
    for seed in 0..300 {
        let random = SeededRandom::new(seed);
        let changes: Vec<ConfigChange> = (0..30).map(|_| some_change(&random)).collect();
        let mut one_by_one = compiler();
        let mut last = None;
        let mut values = std::collections::BTreeMap::new();
        for change in &changes {
            match change {
                ConfigChange::Put(one) => drop(values.insert((one.kind, one.id.to_string()), one.clone())),
                ConfigChange::Delete(kind, id) => drop(values.remove(&(*kind, id.to_string()))),
                ConfigChange::Resolved { .. } | ConfigChange::Discovered(..) | ConfigChange::Fetched(..) => {}
            }
            last = Some(one_by_one.apply(vec![change.clone()], 1));
        }
        let expected = view(&one_by_one, &last.unwrap().snapshot);
        let mut resources: Vec<Resource> = values.into_values().collect();
        let mut scratch = compiler();
        let compiled = scratch.replace_all(resources.clone(), 1);
        assert_eq!(view(&scratch, &compiled.snapshot), expected, "seed {seed}: from scratch");
        for at in (1..resources.len()).rev() {
            resources.swap(at, random.below(at + 1));
        }
        let mut shuffled = compiler();
        let mut compiled = shuffled.apply(Vec::new(), 1);
        for resource in &resources {
            compiled = shuffled.apply(vec![ConfigChange::Put(resource.clone())], 1);
        }
        assert_eq!(view(&shuffled, &compiled.snapshot), expected, "seed {seed}: shuffled");
        let mut replaced = compiler();
        replaced.apply(changes[..15].to_vec(), 1);
        let compiled = replaced.replace_all(resources, 2);
        assert_eq!(view(&replaced, &compiled.snapshot), expected, "seed {seed}: replaced");
    }
}

#[test]
fn a_broken_certificate_that_asks_clients_does_not_leave_its_names_open() {
    let mut compiler = compiler();
    let long = |text: &str| format!("{text:x<128}");
    let ssl = |cert: &str, client: bool| {
        let mut value = json!({ "cert": long(cert), "key": long("key"), "snis": ["a.test", "B.test"] });
        if client {
            value["client"] = json!({ "ca": long("ca") });
        }
        put(Kind::Ssls, "1", value)
    };
    let requests_client_certificate = |snapshot: &Snapshot, name| {
        snapshot.certificate(name).is_some_and(|certificate| certificate.client.is_some())
    };
    let broken = compiler.apply(vec![ssl("bad", true)], 1);
    assert_eq!(found(&broken.problems), ["error ssls/1 at cert"]);
    let hint = broken.problems[0].hint.as_deref().unwrap();
    assert!(hint.contains("answered 400"), "{hint}");
    assert!(
        broken.snapshot.requests_client_certificates()
            && requests_client_certificate(&broken.snapshot, "a.test")
    );
    assert!(requests_client_certificate(&broken.snapshot, "b.test"));
    assert!(broken.snapshot.certificate("a.test").unwrap().keys.is_empty());
    let fixed = compiler.apply(vec![ssl("good", false)], 2).snapshot;
    assert!(!fixed.requests_client_certificates() && !fixed.certificate("a.test").unwrap().keys.is_empty());
    // what was good stays, whatever the broken text asks for
    let still_fixed = compiler.apply(vec![ssl("bad", true)], 3).snapshot;
    assert!(
        !still_fixed.requests_client_certificates()
            && !still_fixed.certificate("a.test").unwrap().keys.is_empty()
    );
    let deleted = compiler.apply(vec![ConfigChange::Delete(Kind::Ssls, "1".into())], 4).snapshot;
    assert!(deleted.certificate("a.test").is_none());
    // one that asks nothing claims nothing
    assert!(compiler.apply(vec![ssl("bad", false)], 5).snapshot.certificate("a.test").is_none());
}
