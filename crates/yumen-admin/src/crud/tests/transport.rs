//! Rules for every request: heads, bodies, conditions, lifetimes, concurrency.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, header};
use serde_json::json;
use yumen_config::Kind;
use yumen_config::node::AdminConfig;
use yumen_plugin::PluginRegistry;
use yumen_plugins::BUILTIN;
use yumen_store::engine::{CommitBatch, StoreEngine, StoreMedium};
use yumen_store::{
    Authorship, Draft, ResourceKey, Revision, Store, StoreCommit, StoreError, StoreState, commit,
};

use super::{ADMIN, Api, error};
use crate::access::AdminPeer;
use crate::api::AdminState;

const ROUTE: &str = r#"{"uri":"/a","plugins":{}}"#;

#[tokio::test]
async fn every_response_has_the_api_version() {
    let api = Api::new();
    for (line, status) in [
        ("GET /apisix/admin/routes", 200),
        ("GET /apisix/admin/unknown", 404),
        ("PUT /apisix/admin/consumers/1", 400),
        ("POST /apisix/admin/consumers/1", 405),
        ("HEAD /apisix/admin", 200),
        ("GET /apisix/admin", 200),
        ("GET /elsewhere", 404),
        ("OPTIONS /apisix/admin/routes", 200),
    ] {
        let answer = api.send(line, &[("x-api-key", ADMIN)], "").await;
        assert_eq!(answer.status, status, "{line}");
        assert_eq!(
            (answer.header("server"), answer.header("x-api-version")),
            ("APISIX/3.14.0", "v3"),
            "{line}"
        );
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{line}");
        if !line.starts_with("OPTIONS") {
            assert_eq!(answer.header("content-type"), "application/json", "{line}");
        }
    }
    assert_eq!(api.send("GET /elsewhere", &[], "").await.text, "{\"error_msg\":\"404 Route Not Found\"}\n");
    let own = api.send("GET /yumen/v1/nope?a=b", &[], "").await;
    assert_eq!(
        (own.status, own.json()),
        (404, json!({ "error_msg": "the Admin API has no /yumen/v1/nope" }))
    );
}

#[tokio::test]
async fn preflights_are_answered_without_a_key_where_pages_may_ask() {
    let answer = Api::new().send("OPTIONS /apisix/admin/routes/1", &[], "").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-headers", "*"),
        ("access-control-allow-methods", "*"),
        ("access-control-max-age", "3600"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    let api = Api::with(&AdminConfig { cors: false, ..super::admin() }, |_| ());
    let answer = api.send("OPTIONS /apisix/admin/routes/1", &[], "").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, ""));
}

#[tokio::test]
async fn bodies_are_bounded() {
    let api = Api::new();
    let fitting = format!(r#"{{"uri":"/a","plugins":{{}},"desc":"{}"}}"#, "a".repeat(1_572_864));
    let message = format!(
        "invalid request body: request size {} is greater than the maximum size 1572864 allowed",
        fitting.len()
    );
    let size = fitting.len().to_string();
    let headers = [("x-api-key", ADMIN), ("content-length", size.as_str())];
    let answer = api.send("PUT /apisix/admin/routes/1", &headers, &fitting).await;
    assert_eq!(answer.status, 400);
    super::check("declared", &answer, &error(&message));
    let answer = api.send("PUT /apisix/admin/routes/1", &headers[..1], &fitting).await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error_msg"].as_str().unwrap().to_owned();
    assert!(message.ends_with("is greater than the maximum size 1572864 allowed"), "{message}");
    let proto = format!(r#"{{"content":"syntax = \"proto3\"; // {}"}}"#, "a".repeat(1_000_000));
    assert_eq!(api.ask("PUT /protos/1", &proto).await.status, 201, "a large body that fits is taken");
}

#[tokio::test]
async fn an_object_deeper_than_readers_allow_is_refused_at_every_door() {
    let nested = |levels: usize| format!("{}0{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let route = |levels: usize| {
        format!(r#"{{"uri":"/a","plugins":{{"serverless-pre-function":{}}}}}"#, nested(levels))
    };
    let api = Api::new();
    assert_eq!(api.ask("PUT /routes/1", ROUTE).await.status, 201);
    let before = api.state.store.state().revision;
    let path = |names: usize| format!("PATCH /routes/1/plugins/cors{}", "/a".repeat(names));
    let too_deep = "invalid configuration: it is nested deeper than 100 levels";
    for (line, body, message) in [
        ("PUT /routes/1".to_owned(), route(99), too_deep),
        ("POST /routes".to_owned(), route(99), too_deep),
        ("PATCH /routes/1".to_owned(), route(99), too_deep),
        ("PATCH /routes/1/plugins/cors".to_owned(), nested(99), too_deep),
        (path(60), nested(60), too_deep),
        (path(63), "1".to_owned(), "invalid sub-path: it has 65 names, at most 64 are possible"),
        (path(5000), "1".to_owned(), "invalid sub-path: it has 5002 names, at most 64 are possible"),
        ("PUT /routes/1".to_owned(), route(200), "invalid request body: recursion limit exceeded"),
    ] {
        let answer = api.ask(&line, &body).await;
        let found = answer.json()["error_msg"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.status, found.starts_with(message)), (400, true), "{line:.60}: {found}");
    }
    assert_eq!(api.state.store.state().revision, before);
}

#[tokio::test]
async fn conditions_are_judged_on_the_newest_object() {
    let api = Api::new();
    let put = async |name: &str, value: &str| {
        let headers = [("x-api-key", ADMIN), (name, value)];
        api.send("PUT /apisix/admin/routes/1", &headers, ROUTE).await
    };
    for (name, value, status) in [
        ("if-match", "*", 412),
        ("if-match", "\"1\"", 412),
        ("if-none-match", "*", 201),
        ("if-none-match", "*", 412),
        ("if-match", "*", 200),
        ("if-match", "\"1\"", 412),
        ("if-match", "\"7\", \"2\"", 200),
        ("if-match", "2", 400),
    ] {
        let answer = put(name, value).await;
        assert_eq!(answer.status, status, "{name}: {value}: {}", answer.text);
    }
    let stale = put("if-match", "\"1\"").await.json();
    assert_eq!(stale["error_msg"], "routes/1 is at modifiedIndex \"3\", not \"1\": read it again");
    for (verb, body) in [("PATCH", "{}"), ("DELETE", "")] {
        let line = format!("{verb} /apisix/admin/routes/1");
        let stale = api.send(&line, &[("x-api-key", ADMIN), ("if-match", "\"1\"")], body).await;
        assert_eq!(stale.status, 412, "{verb}");
        let read = api.ask("GET /routes/1", "").await;
        let fresh = api.send(&line, &[("x-api-key", ADMIN), ("if-match", read.header("etag"))], body).await;
        assert_eq!(fresh.status, 200, "{verb}: {}", fresh.text);
    }
}

/// Sends every writing method for the object "1"; the revision shows whether it wrote.
#[tokio::test]
async fn no_condition_is_passed_over() {
    let bytes = |text: &'static [u8]| HeaderValue::from_bytes(text).unwrap();
    let is = |tags: &'static [u8]| (header::IF_MATCH, bytes(tags));
    let is_none = |tags: &'static [u8]| (header::IF_NONE_MATCH, bytes(tags));
    for (fields, status) in [
        (vec![is(b"\"\xe9\"")], 412),
        (vec![is(b"\xe9")], 400),
        (vec![is(b"")], 400),
        (vec![is(b"W/\"1\"")], 412),
        (vec![is(b"\"8\""), is(b"\"9\"")], 412),
        (vec![is(b"\"9\""), is(b"\"1\"")], 200),
        (vec![is(b"\"9\", \"1\"")], 200),
        (vec![is(b"\"9\" \"1\"")], 400),
        (vec![is(b"*"), is(b"\"9\"")], 400),
        (vec![is_none(b"\"1\"")], 412),
        (vec![is_none(b"W/\"1\"")], 412),
        (vec![is_none(b"\"9\""), is_none(b"\"1\"")], 412),
        (vec![is_none(b"1")], 400),
        (vec![is_none(b"\"9\"")], 200),
        (vec![is_none(b"\"\xe9,\"")], 200),
        (vec![is(b"\"1\""), is_none(b"*")], 412),
        (vec![is(b"*"), is_none(b"*")], 412),
        (vec![is(b"\"9\""), is_none(b"\"9\"")], 412),
        (vec![is(b"\"1\""), is_none(b"\"9\"")], 200),
    ] {
        for (verb, body) in [("PUT", ROUTE), ("PATCH", "{}"), ("DELETE", "")] {
            let api = Api::new();
            assert_eq!(api.ask("PUT /routes/1", ROUTE).await.status, 201);
            let mut request = Request::builder().method(verb).uri("/apisix/admin/routes/1");
            for (name, value) in [(HeaderName::from_static("x-api-key"), HeaderValue::from_static(ADMIN))]
                .into_iter()
                .chain(fields.clone())
            {
                request = request.header(name, value);
            }
            let request = request.extension(AdminPeer(IpAddr::V4(Ipv4Addr::LOCALHOST)));
            let answer = api.answer(request.body(Body::from(body)).unwrap()).await;
            assert_eq!(answer.status, status, "{verb} {fields:?}: {}", answer.text);
            let revision = if status == 200 { 2 } else { 1 };
            assert_eq!(api.state.store.state().revision.0, revision, "{verb} {fields:?}");
        }
    }
}

#[tokio::test]
async fn client_with_the_newest_version_gets_304() {
    let api = Api::new();
    assert_eq!(api.ask("PUT /routes/1", ROUTE).await.status, 201);
    for path in ["/apisix/admin/routes", "/apisix/admin/routes/1"] {
        let line = format!("GET {path}");
        let ask =
            async |known: &str| api.send(&line, &[("x-api-key", ADMIN), ("if-none-match", known)], "").await;
        let first = ask("\"none\"").await;
        assert_eq!(first.status, 200, "{line}");
        let tag = first.header("etag").to_owned();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"a\", {tag}"), "*".to_owned()] {
            let again = ask(&known).await;
            assert_eq!((again.status, again.text.as_str(), again.header("etag")), (304, "", tag.as_str()));
        }
        let head = api.send(&format!("HEAD {path}"), &[("x-api-key", ADMIN)], "").await;
        assert_eq!((head.status, head.header("etag")), (200, tag.as_str()), "{path}");
        assert_eq!(api.ask("PUT /upstreams/1", r#"{"nodes":{"127.0.0.1:1":1}}"#).await.status / 100, 2);
        assert_eq!(ask(&tag).await.status, 304, "another kind was changed: {path}");
        assert_eq!(api.ask("PATCH /routes/1", "{}").await.status, 200);
        let newer = ask(&tag).await;
        assert_eq!(newer.status, 200, "{path}");
        assert_ne!(newer.header("etag"), tag, "{path}");
    }
    assert_eq!(api.ask("HEAD /routes/2", "").await.status, 404);
}

#[tokio::test]
async fn an_object_with_a_lifetime_goes_by_itself() {
    let api = Api::new();
    assert_eq!(api.ask("PUT /routes/1?ttl=0.2", ROUTE).await.status, 201);
    assert_eq!(api.ask("PUT /routes/2?ttl=3600", ROUTE).await.status, 201);
    assert_eq!(api.ask("PUT /routes/3?ttl=0.2", ROUTE).await.status, 201);
    api.ask("PUT /routes/3", ROUTE).await;
    let limit = Instant::now() + Duration::from_secs(20);
    while api.ask("GET /routes/1", "").await.status != 404 {
        assert!(Instant::now() < limit, "the lifetime never ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let left = api.ask("GET /routes", "").await.json()["total"].clone();
    let state = api.state.store.state();
    let ends = |id: &str| state.get(Kind::Routes, id).and_then(|entry| entry.expires_ms);
    assert!(ends("2").is_some());
    // written again without a lifetime, unless it expired before
    assert!(ends("3").is_none() && left.as_u64() >= Some(1));
}

#[tokio::test]
async fn a_new_consumer_has_no_credentials_that_were_left_behind() {
    let api = Api::new();
    let orphan = |draft: &mut Draft| -> Result<(), ()> {
        for id in ["jack/credentials/a", "jacky/credentials/a"] {
            draft.put(ResourceKey::new(Kind::Credentials, id), r#"{"id":"a","plugins":{}}"#.into(), None);
        }
        Ok(())
    };
    commit(&*api.state.store, Authorship::by("ann"), orphan).await.unwrap().unwrap();
    let jack = r#"{"username":"jack"}"#;
    assert_eq!(api.ask("PUT /consumers", jack).await.status, 201);
    let credential = r#"{"plugins":{"key-auth":{"key":"k"}}}"#;
    assert_eq!(api.ask("PUT /consumers/jack/credentials/b", credential).await.status, 201);
    assert_eq!(api.ask("PUT /consumers", jack).await.status, 200);
    let names: Vec<String> = api.state.store.state().entries().map(|(key, _)| key.to_string()).collect();
    assert_eq!(names, ["consumers/jack", "consumers/jack/credentials/b", "consumers/jacky/credentials/a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_from_all_sides_are_all_kept() {
    const WRITERS: usize = 16;
    const ROUNDS: usize = 8;
    let api = Arc::new(Api::new());
    api.ask("PUT /routes/1", ROUTE).await;
    let patch = |i: usize| {
        let api = api.clone();
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let body = format!(r#"{{"labels":{{"l{i}-{round}":"v"}}}}"#);
                let answer = api.ask("PATCH /routes/1", &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(patch).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let route = api.ask("GET /routes/1", "").await.json();
    assert_eq!(route["value"]["labels"].as_object().unwrap().len(), WRITERS * ROUNDS);
    assert_eq!(route["modifiedIndex"], 1 + WRITERS * ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_takes_a_key_and_posts_have_ids_of_their_own() {
    let api = Arc::new(Api::new());
    let ask = |line: String, body: String| {
        let api = api.clone();
        tokio::spawn(async move { api.ask(&line, &body).await })
    };
    let consumers: Vec<_> = (0..20)
        .map(|i| {
            let body = format!(r#"{{"username":"u{i}","plugins":{{"key-auth":{{"key":"same"}}}}}}"#);
            ask("PUT /consumers".to_owned(), body)
        })
        .collect();
    let posts: Vec<_> = (0..20).map(|_| ask("POST /routes".to_owned(), ROUTE.to_owned())).collect();
    let mut taken = 0;
    for consumer in consumers {
        taken += usize::from(consumer.await.unwrap().status == 201);
    }
    assert_eq!(taken, 1);
    for post in posts {
        assert_eq!(post.await.unwrap().status, 201);
    }
    assert_eq!(api.ask("GET /routes", "").await.json()["total"], 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deletion_and_a_new_reference_never_both_succeed() {
    let api = Arc::new(Api::new());
    for round in 0..30 {
        api.ask("PUT /upstreams/u", r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#).await;
        let (one, other) = (api.clone(), api.clone());
        let delete = tokio::spawn(async move { one.ask("DELETE /upstreams/u", "").await.status });
        let refer = tokio::spawn(async move {
            other.ask("PUT /routes/1", r#"{"uri":"/a","upstream_id":"u"}"#).await.status
        });
        let (deleted, referred) = (delete.await.unwrap() == 200, refer.await.unwrap() < 300);
        assert!(deleted != referred, "round {round}: deleted {deleted}, referred {referred}");
        api.ask("DELETE /routes/1", "").await;
    }
}

/// A medium that fails on demand.
#[derive(Default)]
struct Failing(Arc<Mutex<Option<StoreError>>>);

impl StoreMedium for Failing {
    fn persist(&self, _: &CommitBatch) -> Result<(), StoreError> {
        self.0.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn history(&self, _: Option<Revision>, _: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_store_that_fails_says_so_and_leaves_no_trace() {
    let failure = Arc::new(Mutex::new(None));
    let medium = Failing(failure.clone());
    let store: Arc<dyn Store> = Arc::new(StoreEngine::start(medium, StoreState::default()).unwrap());
    let api = Api::with(&super::admin(), |state| {
        let access = state.access.clone();
        *state = AdminState::new(
            store,
            Arc::new(PluginRegistry::new(BUILTIN)),
            yumen_plugins::inactive::missing::<&str>(&[]),
            crate::testing::load_certificate(),
        );
        state.access = access;
    });
    let consumer = |name: &str| format!(r#"{{"username":"{name}","plugins":{{"key-auth":{{"key":"k"}}}}}}"#);
    for (error, status, message) in [
        (StoreError::Full("no room".into()), 507, "the disk is full: no room"),
        (StoreError::ReadOnly("last good".into()), 503, "the store is read-only: last good"),
        (StoreError::Corrupt("bad page".into()), 503, "the store cannot be read: bad page"),
    ] {
        *failure.lock().unwrap() = Some(error);
        let answer = api.ask("PUT /consumers", &consumer("one")).await;
        assert_eq!(answer.status, status);
        super::check(message, &answer, &super::error(message));
        assert_eq!(api.ask("GET /consumers/one", "").await.status, 404);
    }
    *failure.lock().unwrap() = None;
    // the key of a consumer that was never written is free
    assert_eq!(api.ask("PUT /consumers", &consumer("other")).await.status, 201);
    assert_eq!(api.ask("PUT /consumers", &consumer("one")).await.status, 400);
}
