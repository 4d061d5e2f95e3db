//! Access: without a key no path and no method reads or writes anything.

use std::net::IpAddr;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use yumen_config::Kind;
use yumen_config::node::AdminConfig;
use yumen_store::StoreState;

use super::{ADMIN, Api, VIEWER};
use crate::access::AdminPeer;
use crate::admin::router;
use crate::keys;

const VERBS: [&str; 8] = ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "TRACE", "PURGE"];

fn paths() -> Vec<String> {
    let mut paths = vec!["consumers/jack/credentials".to_owned(), "consumers/jack/credentials/1".to_owned()];
    for kind in Kind::ALL {
        paths.push(kind.name().to_owned());
        paths.push(format!("{}/1", kind.name()));
        paths.push(format!("{}/vault/1/a", kind.name()));
    }
    paths.extend(["schema/route", "plugins/list", "configs", "unknown", "a/b/c", "more"].map(str::to_owned));
    paths
}

/// Everything the store holds, keys of the API included.
fn everything(state: &StoreState) -> String {
    let entries: Vec<_> = state.entries().collect();
    let settings: Vec<_> = state.settings().collect();
    format!("{:?} {entries:?} {settings:?}", state.revision)
}

async fn filled() -> Api {
    let mut api = Api::new();
    keys::ensure(&*api.state.store).await.unwrap();
    let more = Router::new().route("/apisix/admin/more", get(async || "secret"));
    api.router = router(api.state.clone(), more);
    for (line, body) in [
        ("PUT /routes/1", r#"{"uri":"/secret","plugins":{}}"#),
        ("PUT /consumers", r#"{"username":"jack"}"#),
        ("PUT /consumers/jack/credentials/1", r#"{"plugins":{"key-auth":{"key":"secret"}}}"#),
    ] {
        let answer = api.ask(line, body).await;
        assert_eq!(answer.status, 201, "{line}: {}", answer.text);
    }
    api
}

#[tokio::test]
async fn requests_without_a_key_read_and_write_nothing() {
    let api = filled().await;
    let before = everything(&api.state.store.state());
    let long = "x".repeat(5000);
    let invalid_keys: [&[(&str, &str)]; 8] = [
        &[],
        &[("x-api-key", "")],
        &[("x-api-key", "wrong")],
        &[("x-api-key", &ADMIN[1..])],
        &[("x-api-key", &long)],
        &[("cookie", "x_api_key=wrong; other=1")],
        &[("authorization", ADMIN)],
        &[("x-api-key", "wrong"), ("cookie", "x_api_key=a-key-that-may-do-everything")],
    ];
    for path in paths() {
        for verb in VERBS {
            for headers in invalid_keys {
                let line = format!("{verb} /apisix/admin/{path}");
                let answer = api.send(&line, headers, r#"{"uri":"/b","plugins":{},"username":"jill"}"#).await;
                // After some wrong keys, the address has to wait.
                let is_refused = answer.status == 401 || answer.status == 429;
                assert!(is_refused, "{line} {headers:?}: {} {}", answer.status, answer.text);
                assert!(!answer.text.contains("secret"), "{line}");
            }
        }
    }
    assert_eq!(everything(&api.state.store.state()), before);
}

#[tokio::test]
async fn viewers_only_read() {
    let api = filled().await;
    let before = everything(&api.state.store.state());
    for path in paths() {
        for verb in VERBS {
            let line = format!("{verb} /apisix/admin/{path}");
            let answer = api.send(&line, &[("x-api-key", VIEWER)], r#"{"uri":"/b","plugins":{}}"#).await;
            match verb {
                "GET" | "HEAD" => assert_ne!(answer.status, 401, "{line}"),
                _ => {
                    let description = &answer.json()["description"];
                    assert_eq!((answer.status, description), (401, &"invalid method for role viewer".into()));
                }
            }
        }
    }
    assert_eq!(everything(&api.state.store.state()), before);
    let read = api.send("GET /apisix/admin/routes/1", &[("x-api-key", VIEWER)], "").await;
    assert_eq!(read.status, 200);
}

#[tokio::test]
async fn a_key_comes_in_a_header_an_argument_or_a_cookie() {
    let api = filled().await;
    let target = "GET /apisix/admin/routes/1";
    let cookie = format!("a=b; x_api_key={ADMIN}");
    for (line, headers, status, description) in [
        (target.to_owned(), vec![("x-api-key", ADMIN)], 200, ""),
        (format!("{target}?api_key={ADMIN}"), vec![], 200, ""),
        (target.to_owned(), vec![("cookie", cookie.as_str())], 200, ""),
        (target.to_owned(), vec![], 401, "missing apikey"),
        (format!("{target}?api_key=wrong"), vec![], 401, "wrong apikey"),
    ] {
        let answer = api.send(&line, &headers, "").await;
        assert_eq!(answer.status, status, "{line} {headers:?}");
        if status == 401 {
            let body =
                format!("{{\"error_msg\":\"failed to check token\",\"description\":\"{description}\"}}\n");
            assert_eq!(answer.text, body);
        }
    }
}

#[tokio::test]
async fn keys_of_the_store_count_beside_configured_ones() {
    let api = Api::new();
    let keys = keys::ensure(&*api.state.store).await.unwrap().unwrap();
    for (key, verb, status) in [
        (keys.admin.as_str(), "PUT", 201),
        (&keys.viewer, "GET", 200),
        (&keys.viewer, "PUT", 401),
        (ADMIN, "PUT", 200),
    ] {
        let line = format!("{verb} /apisix/admin/routes/1");
        let answer = api.send(&line, &[("x-api-key", key)], r#"{"uri":"/a","plugins":{}}"#).await;
        assert_eq!(answer.status, status, "{line}");
    }
}

#[tokio::test]
async fn without_required_keys_pages_of_others_may_not_ask() {
    let api = Api::with(&AdminConfig { key_required: false, ..AdminConfig::default() }, |_| ());
    let line = "PUT /apisix/admin/routes/1";
    let body = r#"{"uri":"/a","plugins":{}}"#;
    assert_eq!(api.send(line, &[], body).await.status, 201);
    assert_eq!(api.send(line, &[("host", "[::1]:1"), ("origin", "http://[::1]:1")], body).await.status, 200);
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1.evil.example"] {
        let answer = api.send(line, &[("host", "127.0.0.1:1"), ("origin", origin)], body).await;
        assert_eq!(answer.status, 403, "{origin}");
    }
    let with_cookie =
        [("cookie", "x_api_key=a-key-that-may-do-everything"), ("origin", "http://evil.example")];
    assert_eq!(Api::new().send(line, &with_cookie, body).await.status, 403);
}

#[tokio::test]
async fn without_required_keys_only_addresses_and_localhost_are_asked() {
    let api = Api::with(&AdminConfig { key_required: false, ..AdminConfig::default() }, |_| ());
    for (host, status) in [
        ("127.0.0.1", 200),
        ("127.0.0.1:9180", 200),
        ("[::1]:9180", 200),
        ("LocalHost:9180", 200),
        ("rebound.example:9180", 403),
        ("localhost.rebound.example", 403),
        ("", 403),
    ] {
        let origin = format!("http://{host}");
        let same = [("host", host), ("origin", &*origin)];
        for headers in [&same[..1], &same] {
            assert_eq!(api.send("GET /apisix/admin/routes", headers, "").await.status, status, "{host}");
        }
    }
    let named = [("host", "rebound.example"), ("x-api-key", ADMIN)];
    assert_eq!(Api::new().send("GET /apisix/admin/routes", &named, "").await.status, 200);
}

#[tokio::test]
async fn only_allowed_addresses_may_ask() {
    let allow = vec!["10.0.0.0/8".to_owned()];
    let api = Api::with(&AdminConfig { allow, ..super::admin() }, |_| ());
    for (peer, status) in [("10.1.2.3", 200), ("127.0.0.1", 403), ("::1", 403), ("", 403)] {
        for path in ["/apisix/admin/routes", "/apisix/admin", "/health", "/unknown"] {
            let mut request = Request::builder().uri(path).header("x-api-key", ADMIN);
            if let Ok(address) = peer.parse::<IpAddr>() {
                request = request.extension(AdminPeer(address));
            }
            let answer = api.answer(request.body(Body::empty()).unwrap()).await;
            let expected = if status == 200 && path == "/unknown" { 404 } else { status };
            assert_eq!(answer.status, expected, "{peer} {path}");
        }
    }
}

#[tokio::test]
async fn history_has_author_and_reason() {
    let api = Api::new();
    let long = "é".repeat(400);
    for (reason, is_kept) in
        [("", None), ("new shop", Some("new shop".to_owned())), (long.as_str(), Some("é".repeat(256)))]
    {
        let headers = [("x-api-key", ADMIN), ("x-yumen-reason", reason)];
        let body = r#"{"uri":"/a","plugins":{}}"#;
        assert!(api.send("PUT /apisix/admin/routes/1", &headers, body).await.status < 300);
        let history = api.state.store.history(None, 1).unwrap();
        assert_eq!((history[0].by.author.as_str(), &history[0].by.reason), ("ada", &is_kept));
    }
}
