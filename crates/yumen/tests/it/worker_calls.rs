//! Calls of plugins to services that hang: the calls are bounded, and other routes do not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Upstream, eventually};

const BUSY: &str = "yumen_plugin_calls_total{plugin=\"opa\",result=\"busy\"}";
const TIMEOUT: &str = "yumen_plugin_calls_total{plugin=\"opa\",result=\"timeout\"}";
const IN_FLIGHT: &str = "yumen_plugin_calls_in_flight{plugin=\"opa\"}";

/// A service that admits while `responds` is set, and else holds every request.
fn service(responds: Arc<AtomicBool>) -> Upstream {
    Upstream::start(move |_, stream| {
        while !responds.load(Ordering::Relaxed) {
            // Scripted: the service hangs until the test ends that.
            std::thread::sleep(Duration::from_millis(10));
        }
        respond(stream, 200, "", br#"{"result":{"allow":true}}"#)
    })
}

#[test]
fn service_that_hangs_delays_few_requests_and_no_other_route() {
    let responds = Arc::new(AtomicBool::new(true));
    let (service, upstream) = (service(responds.clone()), Upstream::text("x"));
    let opa = json!({ "host": format!("http://{}", service.address), "policy": "p", "timeout": 400 });
    let gateway = Gateway::with(
        &json!({ "routes": [
            { "id": "guarded", "uri": "/guarded", "plugins": { "opa": opa }, "upstream": upstream.alone() },
            { "id": "free", "uri": "/free", "upstream": upstream.alone() },
        ]}),
        &Options { workers: 1, ..Options::default() },
    );
    assert_eq!(gateway.get("/guarded").status, 200);
    responds.store(false, Ordering::Relaxed);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut held: Vec<Client> = (0..20).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut held {
        client.send(get("/guarded"));
    }
    eventually("all calls are in flight", 10, || gateway.metric(IN_FLIGHT) == 20.0);
    // The worker serves other routes meanwhile.
    for _ in 0..20 {
        assert_eq!(gateway.get("/free").status, 200);
    }
    held.iter_mut().for_each(|client| assert_eq!(client.reply().status, 403));
    assert_eq!((gateway.metric(IN_FLIGHT), gateway.metric(TIMEOUT)), (0.0, 20.0));
    // Calls pause now, so that no request waits for the service.
    let begun = Instant::now();
    let mut busy = 0;
    while gateway.metric(BUSY) < 5.0 {
        assert_eq!(gateway.get("/guarded").status, 403);
        busy += 1;
        assert!(busy < 100, "calls do not pause");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(gateway.get("/free").status, 200);
    // After the pause, one call finds the service well again.
    responds.store(true, Ordering::Relaxed);
    eventually("the service is asked again", 10, || gateway.get("/guarded").status == 200);
    assert_eq!(gateway.get("/guarded").status, 200);
}

/// Begins a login with Casdoor and returns the path of its callback, and its cookie.
fn begin_login(gateway: &Gateway, code: &str) -> (String, String) {
    let login = gateway.get("/orders");
    let location = login.field("location").expect("a redirect").to_owned();
    let state = location.split("&state=").nth(1).and_then(|rest| rest.split('&').next()).unwrap();
    let cookie = login.field("set-cookie").and_then(|line| line.split(';').next()).expect("a cookie");
    (format!("/callback?code={code}&state={state}"), format!("Cookie: {cookie}\r\n"))
}

#[test]
fn grant_is_sent_once_over_a_connection_of_its_own() {
    let requests_by_peer = std::sync::Mutex::new(std::collections::HashMap::new());
    let service = Upstream::start(move |request, stream| {
        let peer = stream.peer_addr().unwrap();
        let count = *requests_by_peer.lock().unwrap().entry(peer).and_modify(|n| *n += 1).or_insert(1);
        let body = br#"{"access_token":"t","expires_in":60}"#;
        match request.body.starts_with(b"code=cut&") {
            true => {
                let _ = std::io::Write::write_all(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{");
                false
            }
            // A kept connection closes at the second request.
            false => count == 1 && !request.body.starts_with(b"code=lost&") && respond(stream, 200, "", body),
        }
    });
    let casdoor = json!({
        "endpoint_addr": format!("http://{}", service.address), "callback_url": "http://shop.test/callback",
        "client_id": "shop", "client_secret": "s3cret",
    });
    let upstream = Upstream::text("x");
    let gateway = Gateway::with(
        &json!({ "routes": [
            { "id": "1", "uri": "/*", "plugins": { "authz-casdoor": casdoor }, "upstream": upstream.alone() },
        ]}),
        &Options { workers: 1, ..Options::default() },
    );
    for (at, (code, status)) in
        [("a", 302), ("b", 302), ("lost", 503), ("cut", 503), ("c", 302)].iter().enumerate()
    {
        let (path, cookie) = begin_login(&gateway, code);
        assert_eq!(gateway.get_with(&path, &cookie).status, *status, "{code}");
        assert_eq!(service.requests(), at + 1, "{code}");
    }
}

#[test]
fn provider_is_reached_through_a_proxy() {
    // The name of the provider does not resolve, so that only the proxy can reach it.
    let proxy = Upstream::start(|request, stream| {
        assert_eq!(request.field("proxy-authorization"), Some("Basic dTpw"), "{}", request.target);
        let document = match request.target.as_str() {
            "http://idp.invalid/.well-known/openid-configuration" => json!({
                "issuer": "http://idp.invalid",
                "authorization_endpoint": "http://idp.invalid/authorize",
                "token_endpoint": "http://idp.invalid/token",
                "jwks_uri": "http://idp.invalid/jwks",
            }),
            "http://idp.invalid/introspect" => {
                let is_good = String::from_utf8_lossy(&request.body).contains("token=good");
                json!({ "active": is_good, "sub": "ann", "iss": "http://idp.invalid" })
            }
            _ => json!({ "keys": [] }),
        };
        respond(stream, 200, "Content-Type: application/json\r\n", document.to_string().as_bytes())
    });
    let upstream = Upstream::text("x");
    let oidc = json!({
        "client_id": "shop", "client_secret": "s3cret", "bearer_only": true,
        "discovery": "http://idp.invalid/.well-known/openid-configuration",
        "introspection_endpoint": "http://idp.invalid/introspect",
        "proxy_opts": {
            "http_proxy": format!("http://{}", proxy.address), "http_proxy_authorization": "Basic dTpw",
        },
    });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/*", "plugins": { "openid-connect": oidc }, "upstream": upstream.alone() },
    ]}));
    let get = |token: &str| gateway.get_with("/", &format!("Authorization: Bearer {token}\r\n")).status;
    eventually("the provider is known", 10, || get("good") == 200);
    assert_eq!(get("bad"), 401);
}
