use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use tower::ServiceExt;
use yumen_config::Kind;
use yumen_config::node::AdminRole;
use yumen_store::{Authorship, MemoryMedium, MemoryStore, ResourceKey, Store, commit};

use super::*;
use crate::keys::KeyHolder;

mod exports;
mod sent;
mod waits;

struct Fixture {
    store: Arc<MemoryStore>,
    applied: watch::Sender<Revision>,
    router: Router,
}

struct Gateway(watch::Receiver<Revision>);

/// The state of `/yumen/v1` for a gateway that never applies a revision.
pub(crate) fn state(admin: AdminState) -> V1State {
    V1State::new(admin, Arc::new(Gateway(watch::channel(Revision::default()).1)))
}

impl LiveGateway for Gateway {
    fn applied(&self) -> watch::Receiver<Revision> {
        self.0.clone()
    }

    fn workers(&self) -> (Vec<u64>, u64) {
        (vec![3, 2], 3)
    }

    fn problems(&self) -> Vec<Problem> {
        let odd = Problem::warning("routes/8", "uri", "odd \u{e4} text").hint("write less");
        vec![Problem::error("routes/9", "uri", "bad"), odd, Problem::warning("routes/8", "", "odd")]
    }

    fn cluster(&self) -> ClusterView {
        let node = |id: &str, applied| NodeView {
            id: id.into(),
            name: format!("name of {id}"),
            version: "1".into(),
            addresses: std::collections::BTreeMap::new(),
            applied,
            lag_revisions: 0,
            lag_ms: 0,
            problems: 0,
            workers: 2,
            config_source: "store".into(),
            started_unix_ms: 1,
            last_seen_ms: 0,
            is_self: false,
        };
        let applied = self.0.borrow().0;
        let nodes = vec![node("a", applied), node("b", applied), node("c", 0)];
        ClusterView { store: "etcd", connected: true, age_ms: 0, revision: applied, behind: 1, nodes }
    }

    fn cluster_moved(&self) -> watch::Receiver<u64> {
        static MOVED: std::sync::LazyLock<watch::Sender<u64>> =
            std::sync::LazyLock::new(|| watch::Sender::new(0));
        MOVED.subscribe()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::default()
    }

    fn trial(&self, _resources: Vec<Resource>) -> (Arc<Snapshot>, Vec<Problem>) {
        (Arc::default(), Vec::new())
    }

    fn plan(
        &self,
        before: &[Resource],
        after: &[Resource],
        _limits: PlanLimits,
        _visibility: SecretVisibility,
    ) -> ChangePlan {
        let impact = yumen_snapshot::plan::TrafficImpact::default();
        let many = |of: &[Resource]| of.iter().filter(|one| one.id.starts_with("many-")).count();
        let needs_confirmation = (many(after) + 2 < many(before)).then(|| "that is much".to_owned());
        ChangePlan { changes: Vec::new(), problems: Vec::new(), impact, needs_confirmation }
    }

    fn lint(&self, _resources: &[Resource], _strict: bool) -> Vec<Problem> {
        Vec::new()
    }

    fn listeners(&self) -> Value {
        json!({})
    }

    fn top(&self) -> Value {
        serde_json::json!({ "revision": 3 })
    }

    fn recent(&self) -> Option<Value> {
        Some(json!([]))
    }

    fn certificates(&self) -> Value {
        json!({ "certificates": [] })
    }

    fn secrets(&self) -> BTreeMap<String, Value> {
        [("vault/1/jack/key".to_owned(), json!({ "state": "current", "length": 4 }))].into()
    }

    fn forget_secret(&self, name: &str) -> bool {
        name == "vault/1/jack/key"
    }

    fn refresh_secrets(&self) -> usize {
        1
    }

    fn without_secrets(&self, text: String) -> String {
        text
    }

    fn backup(&self) -> Result<File, StoreError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("yumen-v1-backup-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, backed_up()).unwrap();
        let file = File::open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    fn now(&self) -> Now {
        Now::default()
    }
}

/// Longer than the read-ahead of the stream, and no multiple of its chunk size.
fn backed_up() -> Vec<u8> {
    (0..1_000_001_u32).map(|at| (at % 251) as u8).collect()
}

#[tokio::test]
async fn a_backup_is_streamed_whole_and_to_admins_only() {
    for (role, status) in [(AdminRole::Admin, 200), (AdminRole::Viewer, 403)] {
        let holder = KeyHolder { name: "ann".into(), role };
        let router = Fixture::new().router.layer(axum::Extension(holder));
        let request = Request::builder().uri("/yumen/v1/backup").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(bytes == backed_up(), role == AdminRole::Admin);
    }
}

impl Fixture {
    fn new() -> Fixture {
        let store = Arc::new(MemoryMedium::store(100).unwrap());
        let (applied, receiver) = watch::channel(Revision::default());
        let registry = Arc::new(yumen_plugin::PluginRegistry::new(yumen_plugins::BUILTIN));
        let admin = AdminState::new(
            store.clone(),
            registry,
            yumen_plugins::inactive::missing::<&str>(&[]),
            crate::testing::load_certificate(),
        );
        let state = V1State::new(admin, Arc::new(Gateway(receiver)));
        let waits = axum::middleware::from_fn_with_state(state.clone(), wait_for_applied);
        let contract = crate::contract_router().with_state(state.admin.clone());
        Fixture { store, applied, router: router(state).merge(contract).layer(waits) }
    }

    async fn put(&self, kind: Kind, id: &str, value: Value) -> u64 {
        let (key, json): (ResourceKey, Arc<str>) = (ResourceKey::new(kind, id), value.to_string().into());
        let written = commit(&*self.store, Authorship::by("ann"), move |draft| {
            draft.put(key.clone(), json.clone(), None);
            Ok::<(), ()>(())
        });
        written.await.unwrap().unwrap().1.unwrap().revision.0
    }

    async fn ask(&self, method: &str, target: &str) -> (u16, Value, axum::http::HeaderMap) {
        self.send(method, target, "").await
    }

    async fn send(&self, method: &str, target: &str, body: &str) -> (u16, Value, axum::http::HeaderMap) {
        let body = Body::from(body.to_owned());
        let request = Request::builder().method(method).uri(target).body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default(), head.headers)
    }
}

#[tokio::test]
async fn revisions_are_listed_newest_first_and_by_object() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    fixture.put(Kind::Upstreams, "u", json!({})).await;
    fixture.put(Kind::Routes, "1", json!({ "uri": "/b", "plugins": { "cors": {} } })).await;
    let (status, body, _) = fixture.ask("GET", "/yumen/v1/revisions?limit=2").await;
    assert_eq!(status, 200);
    let numbers: Vec<&Value> =
        body["revisions"].as_array().unwrap().iter().map(|one| &one["revision"]).collect();
    assert_eq!(numbers, [&json!(3), &json!(2)]);
    assert_eq!(body["revisions"][0]["author"], "ann");
    let (_, body, _) = fixture.ask("GET", "/yumen/v1/revisions?object=routes/1").await;
    let numbers: Vec<&Value> =
        body["revisions"].as_array().unwrap().iter().map(|one| &one["revision"]).collect();
    assert_eq!(numbers, [&json!(3), &json!(1)]);
    let (_, body, _) = fixture.ask("GET", "/yumen/v1/revisions/3").await;
    let paths = &body["changes"][0]["paths"];
    assert_eq!(paths[0], json!({ "path": "uri", "before": "/a", "after": "/b" }));
    assert_eq!(paths[1], json!({ "path": "plugins", "before": null, "after": { "cors": {} } }));
    assert_eq!(fixture.ask("GET", "/yumen/v1/revisions/9").await.0, 404);
}

#[tokio::test]
async fn a_rollback_is_a_new_revision_with_the_old_content() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    fixture.put(Kind::Routes, "1", json!({ "uri": "/b" })).await;
    fixture.put(Kind::Routes, "2", json!({ "uri": "/c" })).await;
    let (_, body, _) = fixture.ask("GET", "/yumen/v1/diff?from=1").await;
    let actions: Vec<(&str, &str)> = body["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["object"].as_str().unwrap(), one["action"].as_str().unwrap()))
        .collect();
    assert_eq!(actions, [("routes/1", "changed"), ("routes/2", "created")]);
    let (status, body, headers) = fixture.ask("POST", "/yumen/v1/revisions/1/rollback").await;
    assert_eq!((status, &body), (200, &json!({ "revision": 4, "restored": 1, "changed": 2, "expired": [] })));
    assert_eq!(headers["x-yumen-revision"], "4");
    let state = fixture.store.state();
    assert_eq!(&*state.get(Kind::Routes, "1").unwrap().json, r#"{"uri":"/a"}"#);
    assert!(state.get(Kind::Routes, "2").is_none());
    let (_, body, _) = fixture.ask("GET", "/yumen/v1/revisions/4").await;
    assert_eq!(body["reason"], "rollback to revision 1");
    // Another client has written since the client compared the revisions.
    let stale = "/yumen/v1/revisions/1/rollback?expected_revision=1";
    let (status, body, _) = fixture.ask("POST", stale).await;
    assert!(status == 409 && body["error_msg"].as_str().unwrap().contains(", not 1: "), "{body}");
    let newest = fixture.store.state().revision.0;
    let current = format!("/yumen/v1/revisions/1/rollback?expected_revision={newest}");
    assert_eq!(fixture.ask("POST", &current).await.0, 200);
    // nothing differs, so no revision is written
    let (_, body, _) = fixture.ask("POST", "/yumen/v1/revisions/1/rollback").await;
    assert_eq!(body, json!({ "revision": 4, "restored": 1, "changed": 0, "expired": [] }));
}

#[tokio::test]
async fn large_rollback_requires_confirmation() {
    let fixture = Fixture::new();
    for id in ["many-1", "many-2", "many-3", "many-4"] {
        fixture.put(Kind::Routes, id, json!({ "uri": "/a" })).await;
    }
    let (status, body, _) = fixture.ask("POST", "/yumen/v1/revisions/1/rollback").await;
    assert_eq!((status, &body["needs_confirmation"]), (409, &json!("that is much")));
    for (query, status) in [("", 410), ("?confirm=true", 410)] {
        let target = format!("/yumen/v1/revisions/0/rollback{query}");
        assert_eq!(fixture.ask("POST", &target).await.0, status, "{query}");
    }
    assert_eq!(fixture.store.state().len(), 4);
    assert_eq!(fixture.ask("POST", "/yumen/v1/revisions/2/rollback").await.0, 200);
    fixture.ask("POST", "/yumen/v1/revisions/4/rollback").await;
    assert_eq!(fixture.ask("POST", "/yumen/v1/revisions/1/rollback?confirm=true").await.0, 200);
    assert_eq!(fixture.store.state().len(), 1);
}

#[tokio::test]
async fn a_rollback_leaves_out_what_has_expired_unless_it_is_needed() {
    let fixture = Fixture::new();
    let put = async |kind: Kind, id: &str, value: Value, expires_ms: Option<u64>| {
        let (key, json): (ResourceKey, Arc<str>) = (ResourceKey::new(kind, id), value.to_string().into());
        let written = commit(&*fixture.store, Authorship::by("ann"), move |draft| {
            draft.put(key.clone(), json.clone(), expires_ms);
            Ok::<(), ()>(())
        });
        written.await.unwrap().unwrap().1.unwrap().revision.0
    };
    let is_missing = async |id: &str| {
        for _ in 0..500 {
            if fixture.store.state().get(Kind::Upstreams, id).is_none() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{id} does not expire");
    };
    let nodes = json!({ "nodes": { "a:1": 1 } });
    put(Kind::Upstreams, "brief", nodes.clone(), Some(1)).await;
    is_missing("brief").await;
    put(Kind::Routes, "1", json!({ "uri": "/a" }), None).await;
    // Revision 1 consists of this object alone.
    let (status, body, _) = fixture.ask("POST", "/yumen/v1/revisions/1/rollback").await;
    assert_eq!((status, &body["changed"], &body["expired"]), (200, &json!(1), &json!(["upstreams/brief"])));
    assert!(fixture.store.state().is_empty());
    let needing = put(Kind::Routes, "1", json!({ "uri": "/a", "upstream_id": "brief" }), None).await;
    let both = put(Kind::Upstreams, "brief", nodes.clone(), Some(1)).await;
    is_missing("brief").await;
    put(Kind::Routes, "1", json!({ "uri": "/b" }), None).await;
    let (status, body, _) = fixture.ask("POST", &format!("/yumen/v1/revisions/{both}/rollback")).await;
    let error = json!({ "object": "upstreams/brief", "error": "it has expired, and route [1] uses it" });
    assert_eq!((status, &body["errors"]), (409, &json!([error])));
    assert_eq!(&*fixture.store.state().get(Kind::Routes, "1").unwrap().json, r#"{"uri":"/b"}"#);
    // An object that was created again stays.
    put(Kind::Upstreams, "brief", nodes, None).await;
    assert_eq!(fixture.ask("POST", &format!("/yumen/v1/revisions/{both}/rollback")).await.0, 200);
    assert!(fixture.store.state().get(Kind::Upstreams, "brief").is_some(), "{needing}");
}

#[tokio::test]
async fn bulk_writes_refuse_unknown_fields() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    for target in ["/yumen/v1/apply", "/yumen/v1/import", "/yumen/v1/revisions/1/rollback"] {
        for query in ["?confrim=true", "?wiat=applied", "?ttl=5", "?confirm=true&revision=1"] {
            let (status, body, _) = fixture.send("POST", &format!("{target}{query}"), "{}").await;
            let message = body["error_msg"].as_str().unwrap();
            assert!(
                status == 400 && message.contains("confirm") && message.contains("timeout"),
                "{target}: {message}"
            );
        }
        for name in ["If-Match", "If-None-Match"] {
            let request = Request::builder().method("POST").uri(target).header(name, "*");
            let request = request.body(Body::from("{}")).unwrap();
            let response = fixture.router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status().as_u16(), 400, "{target} {name}");
        }
        let known = format!("{target}?confirm=true&timeout=1&nodes=self&api_key=x");
        assert_eq!(fixture.send("POST", &known, "{}").await.0, 200, "{target}");
    }
}

#[tokio::test]
async fn unknown_arguments_are_refused_everywhere() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let reads =
        ["revisions", "revisions/1", "diff?from=0", "applied", "cluster", "problems", "lint", "export"];
    let targets = reads.map(|path| ("GET", path)).into_iter();
    for (method, path) in targets.chain([("POST", "plan"), ("POST", "explain"), ("POST", "store/confirm")]) {
        let joint = if path.contains('?') { '&' } else { '?' };
        let target = format!("/yumen/v1/{path}{joint}forma=text");
        let (status, body, _) = fixture.send(method, &target, r#"{"url": "/a"}"#).await;
        let message = body["error_msg"].as_str().unwrap_or_default();
        assert!(
            status == 400 && message.starts_with("unknown argument \"forma\""),
            "{target}: {status} {body}"
        );
        let known = format!("/yumen/v1/{path}{joint}api_key=x");
        let (status, body, _) = fixture.send(method, &known, r#"{"url": "/a"}"#).await;
        assert!(status != 400 || path == "plan", "{known}: {status} {body}");
    }
    for path in ["export?format=toml", "lint?strict=much"] {
        assert_eq!(fixture.ask("GET", &format!("/yumen/v1/{path}")).await.0, 400, "{path}");
    }
    let (_, document, _) = fixture.ask("GET", "/yumen/v1/export?format=json").await;
    assert_eq!(document["routes"][0]["id"], "1");
}

#[tokio::test]
async fn private_keys_do_not_show_in_the_history() {
    let fixture = Fixture::new();
    fixture.put(Kind::Ssls, "1", json!({ "cert": "c", "key": "top-secret", "keys": ["top-secret"] })).await;
    fixture.put(Kind::Ssls, "1", json!({ "cert": "c", "key": "top-secret-too", "keys": [] })).await;
    let upstream = |key: &str| json!({ "nodes": {}, "tls": { "client_cert": "c", "client_key": key } });
    let inline = json!({ "uri": "/", "upstream": upstream("top-secret") });
    let split = json!({ "rules": [{ "weighted_upstreams": [{ "upstream": upstream("top-secret") }] }] });
    fixture.put(Kind::Upstreams, "1", upstream("top-secret")).await;
    fixture.put(Kind::Upstreams, "1", upstream("top-secret-too")).await;
    fixture.put(Kind::Routes, "1", inline).await;
    fixture.put(Kind::Routes, "1", json!({ "uri": "/", "plugins": { "traffic-split": split } })).await;
    let (_, changed, _) = fixture.ask("GET", "/yumen/v1/revisions/4").await;
    let hidden = json!({ "path": "tls.client_key", "before": "******", "after": "******" });
    assert_eq!(changed["changes"][0]["paths"], json!([hidden]));
    for target in [
        "/yumen/v1/revisions/2",
        "/yumen/v1/revisions/4",
        "/yumen/v1/revisions/6",
        "/yumen/v1/diff?from=1",
        "/yumen/v1/diff?from=3",
        "/yumen/v1/diff?from=0",
    ] {
        let (status, body, _) = fixture.ask("GET", target).await;
        assert_eq!(status, 200);
        assert!(!body.to_string().contains("top-secret"), "{body}");
    }
}

#[tokio::test]
async fn an_answer_waits_until_its_revision_is_in_force() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let path = "/yumen/v1/revisions/1/rollback?wait=applied&timeout=0.05";
    let (_, _, headers) = fixture.ask("POST", path).await;
    assert_eq!(headers["x-yumen-applied"], "false");
    let later = fixture.applied.clone();
    let (answer, ()) =
        tokio::join!(fixture.ask("POST", "/yumen/v1/revisions/1/rollback?wait=applied"), async {
            tokio::task::yield_now().await;
            later.send_replace(Revision(1));
        });
    assert_eq!(answer.2["x-yumen-applied"], "true");
    let (_, body, _) = fixture.ask("GET", "/yumen/v1/applied").await;
    let expected = json!({
        "revision": 1, "applied": 1, "lag": 0, "workers": 2, "workers_current": 1, "quarantined": ["routes/9"],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn an_answer_waits_for_the_nodes_asked_for_and_names_those_behind() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    fixture.applied.send_replace(Revision(1));
    let rollback = "/yumen/v1/revisions/1/rollback?wait=applied&timeout=0.05";
    for (nodes, applied, behind) in [
        ("", "true", None),
        ("&nodes=self", "true", None),
        ("&nodes=quorum", "true", Some("name of c")),
        ("&nodes=all", "false", Some("name of c")),
    ] {
        let (status, _, headers) = fixture.ask("POST", &format!("{rollback}{nodes}")).await;
        assert_eq!((status, &headers["x-yumen-applied"]), (200, &applied.parse().unwrap()), "{nodes}");
        assert_eq!(headers.get("x-yumen-behind").map(|name| name.to_str().unwrap()), behind, "{nodes}");
        let share = headers.get("x-yumen-nodes").map(|name| name.to_str().unwrap());
        assert_eq!(share, behind.map(|_| "2/3"), "{nodes}");
    }
    for (query, named) in [
        ("?wait=applied&nodes=most", "\"most\""),
        ("?wait=aplied", "\"aplied\""),
        ("?wait=applied&timeout=abc", "\"abc\""),
        ("?wait=applied&timeout=-1", "\"-1\""),
        ("?wait=applied&timeout=inf", "\"inf\""),
    ] {
        let path = format!("/yumen/v1/revisions/1/rollback{query}");
        let (status, body, _) = fixture.ask("POST", &path).await;
        assert_eq!(status, 400, "{query}");
        assert!(body["error_msg"].as_str().unwrap().contains(named), "{body}");
    }
}

#[tokio::test]
async fn endpoint_changes_alone_reroute_no_request() {
    let fixture = Fixture::new();
    let known = json!({ "id": "1", "nodes": { "a:1": 1 }, "retries": 1, "create_time": 1, "update_time": 2 });
    fixture.put(Kind::Upstreams, "1", known).await;
    let now = fixture.store.state();
    for (kind, id, text, expected) in [
        (Kind::Upstreams, "1", json!({ "id": "1", "nodes": { "b:1": 2 }, "retries": 1 }), true),
        (
            Kind::Upstreams,
            "1",
            json!({ "nodes": [{ "host": "b", "port": 1, "weight": 1 }], "retries": 1 }),
            true,
        ),
        (Kind::Upstreams, "1", json!({ "nodes": { "b:1": 0 }, "retries": 1 }), false),
        (Kind::Upstreams, "1", json!({ "nodes": [], "retries": 1 }), false),
        (Kind::Upstreams, "1", json!({ "nodes": { "b:1": 1 }, "retries": 2 }), false),
        (Kind::Upstreams, "2", json!({ "nodes": { "b:1": 1 }, "retries": 1 }), false),
        (Kind::Services, "1", json!({ "nodes": { "b:1": 1 }, "retries": 1 }), false),
    ] {
        let put = Resource { kind, id: id.into(), json: text.to_string().into() };
        assert_eq!(super::plan::changes_only_endpoints(&now, &put), expected, "{kind:?} {id} {text}");
    }
}

#[tokio::test]
async fn unknown_section_is_refused_and_nothing_is_written() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let near = "nothing was written: unknown section \"route\", did you mean \"routes\"?";
    let far = "nothing was written: unknown section \"nope\"";
    let item = r#"[{ "id": "2", "uri": "/b" }]"#;
    for (target, body, expected) in [
        ("/yumen/v1/apply", format!(r#"{{ "put": {{ "route": {item} }} }}"#), near),
        ("/yumen/v1/apply", format!(r#"{{ "put": {{ "nope": {item} }}, "delete": ["routes/1"] }}"#), far),
        ("/yumen/v1/import?mode=replace&confirm=true", format!("route: {item}\n"), near),
        ("/yumen/v1/plan", format!("route: {item}\n"), near),
    ] {
        let (status, answer, _) = fixture.send("POST", target, &body).await;
        assert_eq!((status, answer["error_msg"].as_str()), (400, Some(expected)), "{target} {body}");
    }
    assert_eq!(fixture.store.state().revision, Revision(1));
    assert!(fixture.store.state().get(Kind::Routes, "1").is_some());
}

#[tokio::test]
async fn an_object_named_twice_is_deleted_once() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let (_, body, _) =
        fixture.send("POST", "/yumen/v1/apply", r#"{ "delete": ["routes/1", "routes/1"] }"#).await;
    assert_eq!(body, json!({ "revision": 2, "put": 0, "deleted": 1, "unchanged": 0 }));
}

#[tokio::test]
async fn deep_objects_are_refused_and_unreadable_ones_named() {
    let fixture = Fixture::new();
    let nested = format!("{}0{}", r#"{"a":"#.repeat(99), "}".repeat(99));
    let route = format!(r#"{{"id":"1","uri":"/a","plugins":{{"cors":{nested}}}}}"#);
    for (target, body) in [
        ("/yumen/v1/apply", format!(r#"{{"put":{{"routes":[{route}]}}}}"#)),
        ("/yumen/v1/import", format!(r#"{{"routes":[{route}]}}"#)),
        ("/yumen/v1/import", format!("routes:\n- {route}\n")),
    ] {
        let (status, body, _) = fixture.send("POST", target, &body).await;
        let error = "invalid configuration: it is nested deeper than 100 levels";
        assert_eq!((status, &body["errors"][0]["error"]), (400, &json!(error)), "{target} {body}");
    }
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    fixture.put(Kind::Routes, "2", json!([])).await;
    let (status, body, _) = fixture.ask("GET", "/yumen/v1/export").await;
    let message = body["error_msg"].as_str().unwrap();
    assert!(
        message.starts_with("nothing is exported: routes/2: the stored text cannot be read: "),
        "{message}"
    );
    assert_eq!(status, 500);
}

#[tokio::test]
async fn a_consumers_credentials_go_with_it() {
    for (target, body, deleted) in [
        ("/yumen/v1/apply", r#"{"delete":["consumers/jack"]}"#, 3),
        ("/yumen/v1/apply", r#"{"delete":["consumers/jack/credentials/a","consumers/jack"]}"#, 3),
        ("/yumen/v1/import?mode=replace", r#"{"consumers":[{"username":"jacky"}]}"#, 3),
    ] {
        let fixture = Fixture::new();
        fixture.put(Kind::Consumers, "jacky", json!({ "username": "jacky" })).await;
        fixture.put(Kind::Consumers, "jack", json!({ "username": "jack" })).await;
        for id in ["jack/credentials/a", "jack/credentials/b"] {
            fixture.put(Kind::Credentials, id, json!({ "plugins": { "key-auth": { "key": id } } })).await;
        }
        let (status, answer, _) = fixture.send("POST", target, body).await;
        assert_eq!((status, &answer["deleted"]), (200, &json!(deleted)), "{body}: {answer}");
        let left: Vec<String> = fixture.store.state().entries().map(|(key, _)| key.to_string()).collect();
        assert_eq!(left, ["consumers/jacky"], "{body}");
    }
}

#[tokio::test]
async fn declared_object_stays_although_it_was_to_expire() {
    for (target, body) in [
        ("/yumen/v1/apply", r#"{"put":{"routes":[{"id":"1","uri":"/a","plugins":{}}]}}"#),
        ("/yumen/v1/revisions/1/rollback", ""),
    ] {
        let fixture = Fixture::new();
        let route = json!({ "id": "1", "uri": "/a", "plugins": {} });
        fixture.put(Kind::Routes, "1", route.clone()).await;
        let written = commit(&*fixture.store, Authorship::by("ann"), move |draft| {
            let at_ms = draft.now_ms() + 3_600_000;
            draft.put(ResourceKey::new(Kind::Routes, "1"), route.to_string().into(), Some(at_ms));
            Ok::<(), ()>(())
        });
        written.await.unwrap().unwrap();
        let (status, answer, _) = fixture.send("POST", target, body).await;
        assert_eq!((status, &answer["revision"]), (200, &json!(3)), "{target}: {answer}");
        assert_eq!(fixture.store.state().get(Kind::Routes, "1").unwrap().expires_ms, None, "{target}");
        let (_, answer, _) = fixture.send("POST", target, body).await;
        assert_eq!(answer["revision"], json!(3), "{target}: it is the same now: {answer}");
    }
}

#[tokio::test]
async fn transaction_errors_use_the_words_of_its_format() {
    let fixture = Fixture::new();
    for (body, status, word) in [
        (r#"{"put": {"routes": [}}"#, 400, "expected value at line 1 column 21"),
        (r#"{"nope": 1}"#, 400, "unknown field `nope`, expected one of `put`, `delete`, `expected_revision`"),
        ("put: [", 400, "did not find"),
        ("{put: {routes: [{id: a, uri: /a, plugins: {}}]}}", 200, ""),
        ("put:\n  routes:\n  - &a {id: b, uri: /b, plugins: {}}\n  - {<<: *a, id: c}\n", 200, ""),
        ("\u{feff}{\"delete\": [\"routes/c\"]}", 200, ""),
    ] {
        let (found, answer, _) = fixture.send("POST", "/yumen/v1/apply", body).await;
        assert_eq!((found, answer.to_string().contains(word)), (status, true), "{body}: {answer}");
    }
    let left: Vec<String> = fixture.store.state().entries().map(|(key, _)| key.to_string()).collect();
    assert_eq!(left, ["routes/a", "routes/b"]);
}

#[tokio::test]
async fn a_new_consumer_has_no_credentials_that_were_left_behind() {
    let credential = |id: &str| json!({ "id": id, "plugins": { "key-auth": { "key": id } } });
    let declared = json!({
        "credentials": [{ "id": "jack/credentials/a", "plugins": { "key-auth": { "key": "a" } } }],
        "consumers": [{ "username": "jack" }],
    });
    for target in ["/yumen/v1/apply", "/yumen/v1/import"] {
        let fixture = Fixture::new();
        for id in ["a", "b"] {
            fixture.put(Kind::Credentials, &format!("jack/credentials/{id}"), credential(id)).await;
        }
        let body = if target.ends_with("apply") { json!({ "put": declared }) } else { declared.clone() };
        let (status, answer, _) = fixture.send("POST", target, &body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        let left: Vec<String> = fixture.store.state().entries().map(|(key, _)| key.to_string()).collect();
        assert_eq!(left, ["consumers/jack", "consumers/jack/credentials/a"], "{target}");
    }
}
