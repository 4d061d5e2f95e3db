//! Values from secret managers: they arrive, are rotated, stay while the manager is away, and appear in no output.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::harness::certs::Authority;
use crate::harness::gateway::YUMEN;
use crate::harness::managers::{AWS_ID, AWS_KEY, ManagerStub, TOKEN};
use crate::harness::tls::{TlsUpstream, client_config, over_tls};
use crate::harness::{Client, Gateway, Options, Reply, Scratch, Upstream, certs, eventually, run};
use crate::upgrade::Line;

/// A value that must appear in no output.
const CANARY: &str = "canary-5f3a9c71d2";
/// A secret that is written in an object, and that viewers do not see.
const HUSHED: &str = "hushed-81b20c";

fn ask(gateway: &Gateway, key: &str, line: &str, body: &str) -> Reply {
    let length = body.len();
    let fields = format!("Host: admin\r\nX-API-KEY: {key}\r\nContent-Length: {length}");
    Client::connect(gateway.admin).send(format!("{line} HTTP/1.1\r\n{fields}\r\n\r\n{body}")).reply()
}

fn vault(stub: &ManagerStub) -> Value {
    json!({ "id": "vault/1", "uri": stub.url(), "prefix": "kv/gateway", "token": TOKEN })
}

fn consumer(name: &str, plugins: Value) -> Value {
    json!({ "username": name, "plugins": plugins })
}

/// A document with a route that requires this plugin, and a consumer.
fn guarded(manager: Value, plugin: &str, consumer: Value, to: &Upstream) -> Value {
    let route = json!({ "id": "1", "uri": "/*", "plugins": { plugin: {} }, "upstream": to.alone() });
    json!({ "secrets": [manager], "consumers": [consumer], "routes": [route] })
}

fn status(gateway: &Gateway, key: &str) -> u16 {
    gateway.get_with("/", &format!("apikey: {key}\r\n")).status
}

fn refresh(gateway: &Gateway) {
    let directory = gateway.scratch.path().join("data");
    let (code, out, err) =
        run(YUMEN, &["secrets", "refresh", "--data-dir", &directory.display().to_string()]);
    assert_eq!(code, 0, "{out}{err}");
}

/// Starts on a file with a data directory, whose admin socket commands use.
fn start(resources: &Value) -> Gateway {
    start_with(Scratch::new(), resources)
}

fn start_with(scratch: Scratch, resources: &Value) -> Gateway {
    let routes = scratch.write("routes.yaml", resources.to_string());
    Gateway::launch(scratch, &Options::default(), &["--file", &routes, "--data-dir", "data"])
}

fn problems(gateway: &Gateway) -> Vec<String> {
    let problems = gateway.status_json("/yumen/v1/problems");
    let all = problems.as_array().unwrap().iter();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    all.map(|one| {
        let [level, object, path, message] =
            ["level", "object", "path", "message"].map(|name| text(one, name));
        format!("{level} {object} {path}: {message}")
    })
    .collect()
}

#[test]
fn a_key_in_either_version_of_vault_is_in_force_at_the_start_and_follows_its_rotation() {
    let upstream = Upstream::text("a");
    for (version, is_narrow) in [(1, false), (2, false), (2, true)] {
        let stub = ManagerStub::vault(version);
        stub.state().is_narrow = is_narrow;
        stub.set("kv/gateway/jack", json!({ "key": "first" }));
        let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } }));
        let gateway = start(&guarded(vault(&stub), "key-auth", jack, &upstream));
        let found = status(&gateway, "first");
        assert_eq!(found, 200, "version {version}, {is_narrow}: {:?}", problems(&gateway));
        assert_eq!(status(&gateway, "$secret://vault/1/jack/key"), 401, "everybody knows the reference");
        assert!(problems(&gateway).is_empty(), "{:?}", problems(&gateway));
        stub.set("kv/gateway/jack", json!({ "key": "second" }));
        refresh(&gateway);
        eventually("the new key opens", 10, || status(&gateway, "second") == 200);
        assert_eq!(status(&gateway, "first"), 401, "the old key has ended");
    }
}

#[test]
fn the_last_value_stays_while_the_manager_is_away_and_a_start_without_it_is_closed() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    stub.set("kv/gateway/jack", json!({ "key": "first" }));
    let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } }));
    let resources = guarded(vault(&stub), "key-auth", jack, &upstream);
    let gateway = start(&resources);
    assert_eq!(status(&gateway, "first"), 200);
    stub.state().fails = Some(503);
    refresh(&gateway);
    // The back-off repeats the fetch after one and two seconds.
    eventually("the failure is a problem", 20, || !problems(&gateway).is_empty());
    let [problem] = &problems(&gateway)[..] else { panic!("{:?}", problems(&gateway)) };
    let expected = "warning consumers/jack plugins.key-auth.key: vault/1/jack/key cannot be refreshed: answered 503; \
                    the value of ";
    assert!(problem.starts_with(expected) && problem.ends_with(" stays in use"), "{problem}");
    assert_eq!(status(&gateway, "first"), 200);
    assert!(gateway.metric("yumen_fetched_stale") >= 1.0);
    drop(gateway);

    let gateway = start(&resources);
    assert_eq!(status(&gateway, "first"), 401);
    let [problem] = &problems(&gateway)[..] else { panic!("{:?}", problems(&gateway)) };
    let expected = "error consumers/jack plugins.key-auth.key: \"key\" cannot be resolved: $secret://vault/1/jack/key: \
                    vault/1 has no value for it: answered 503";
    assert_eq!(problem, expected);
    stub.state().fails = None;
    eventually("the key opens once the manager is back", 20, || status(&gateway, "first") == 200);
    eventually("the problem has ended", 10, || problems(&gateway).is_empty());
}

#[test]
fn a_forgotten_value_ends_at_once_and_returns_with_its_manager() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    stub.set("kv/gateway/jack", json!({ "key": "first", "list": "127.0.0.0/8" }));
    let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } }));
    let mut resources = guarded(vault(&stub), "key-auth", jack, &upstream);
    let allowed = json!({ "ip-restriction": { "whitelist": ["$secret://vault/1/jack/list"] } });
    let sends =
        json!({ "proxy-rewrite": { "headers": { "set": { "X-Word": "$secret://vault/1/jack/list" } } } });
    for (id, plugins) in [("guarded", allowed), ("sends", sends)] {
        let uri = format!("/{id}");
        let route = json!({ "id": id, "uri": uri, "plugins": plugins, "upstream": upstream.alone() });
        resources["routes"].as_array_mut().unwrap().push(route);
    }
    let gateway = start(&resources);
    let statuses =
        || [status(&gateway, "first"), gateway.get("/guarded").status, gateway.get("/sends").status];
    assert_eq!(statuses(), [200, 200, 200], "{:?}", problems(&gateway));
    let directory = gateway.scratch.path().join("data").display().to_string();
    let forget = |reference: &str| run(YUMEN, &["secrets", "forget", reference, "--data-dir", &directory]);
    stub.state().fails = Some(503);
    for member in ["key", "list"] {
        let (code, out, err) = forget(&format!("$secret://vault/1/jack/{member}"));
        assert_eq!(code, 0, "{out}{err}");
    }
    eventually("nothing uses the values", 10, || statuses() == [401, 503, 503]);
    let (code, out, err) = forget("$secret://vault/1/jack/other");
    assert_ne!(code, 0, "{out}");
    assert!(err.contains("no object in force refers to $secret://vault/1/jack/other"), "{out}{err}");
    stub.state().fails = None;
    eventually("the values return", 30, || statuses() == [200, 200, 200]);
}

#[test]
fn a_manager_under_a_private_authority_is_verified_by_its_own_setting() {
    let (authority, upstream) = (Authority::new("private"), Upstream::text("a"));
    let server = TlsUpstream::text(
        &authority.sign("vault", &["localhost"], certs::ecdsa()),
        r#"{"data":{"key":"first"}}"#,
    );
    let url = format!("https://localhost:{}", server.address.port());
    let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } }));
    let manager = |ca: Option<&str>| {
        let mut manager = json!({ "id": "vault/1", "uri": url, "prefix": "kv", "token": TOKEN });
        if let Some(ca) = ca {
            manager["ca_cert"] = json!(ca);
        }
        manager
    };
    let gateway = start(&guarded(manager(None), "key-auth", jack.clone(), &upstream));
    eventually("the certificate is refused", 10, || {
        problems(&gateway).iter().any(|one| one.contains("invalid peer certificate: UnknownIssuer"))
    });
    assert_eq!(status(&gateway, "first"), 401);
    gateway.edit(&guarded(manager(Some(&authority.cert)), "key-auth", jack, &upstream));
    eventually("the key opens", 10, || status(&gateway, "first") == 200);
    assert!(problems(&gateway).is_empty(), "{:?}", problems(&gateway));
}

#[test]
fn a_guard_without_its_secret_refuses_and_an_upgrade_keeps_the_value() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    stub.set("kv/gateway/jack", json!({ "key": "first" }));
    let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } }));
    let mut resources = guarded(vault(&stub), "key-auth", jack, &upstream);
    let allowed = json!({ "ip-restriction": { "whitelist": ["$secret://vault/1/networks/list"] } });
    let closed = json!({ "id": "2", "uri": "/closed", "plugins": allowed, "upstream": upstream.alone() });
    resources["routes"].as_array_mut().unwrap().push(closed);
    let gateway = start(&resources);
    assert_eq!(gateway.get("/closed").status, 503);
    assert!(
        problems(&gateway).iter().any(|one| one.contains("can't find main key")),
        "{:?}",
        problems(&gateway)
    );
    stub.set("kv/gateway/networks", json!({ "list": "127.0.0.0/8" }));
    eventually("the guard is built when its secret appears", 20, || gateway.get("/closed").status == 200);
    // The successor starts while the manager is away.
    stub.state().fails = Some(500);
    let mut line = Line::of(gateway);
    line.upgrade();
    assert_eq!(status(&line.gateway, "first"), 200);
    assert_eq!(line.gateway.get("/closed").status, 200);
}

#[test]
fn certificates_and_tokens_follow_the_rotation_of_their_secrets() {
    let (stub, upstream) = (ManagerStub::vault(2), Upstream::text("a"));
    let authorities = ["first", "second"].map(Authority::new);
    let [first, second] = [0, 1].map(|at: usize| authorities[at].sign("a", &["a.test"], certs::ecdsa()));
    stub.set("kv/gateway/tls", json!({ "cert": first.cert, "key": first.key }));
    stub.set("kv/gateway/jwt", json!({ "secret": "first-secret-of-jack-with-32-bytes" }));
    let auth = json!({ "key": "jack", "secret": "$secret://vault/1/jwt/secret" });
    let mut resources =
        guarded(vault(&stub), "jwt-auth", consumer("jack", json!({ "jwt-auth": auth })), &upstream);
    let pair = json!({ "cert": "$secret://vault/1/tls/cert", "key": "$secret://vault/1/tls/key" });
    resources["ssls"] = json!([{ "id": "1", "sni": "a.test", "cert": pair["cert"], "key": pair["key"] }]);
    let gateway = start(&resources);
    let token = |secret: &str| {
        let claims =
            format!("{}.{}", base64(br#"{"alg":"HS256","typ":"JWT"}"#), base64(br#"{"key":"jack"}"#));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        format!("{claims}.{}", base64(hmac::sign(&key, claims.as_bytes()).as_ref()))
    };
    let opens = |secret: &str| {
        gateway.get_with("/", &format!("Authorization: Bearer {}\r\n", token(secret))).status == 200
    };
    // A handshake that trusts one authority succeeds only if its certificate is presented.
    let presents = |authority: &Authority| {
        let config = Arc::new(client_config(&authority.cert, None));
        let mut tls = over_tls(TcpStream::connect(gateway.https).unwrap(), &config);
        tls.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").is_ok()
    };
    let bearer = format!("Authorization: Bearer {}\r\n", token("first-secret-of-jack-with-32-bytes"));
    let reply = gateway.get_with("/", &bearer);
    assert_eq!(reply.status, 200, "{}{:?}", reply.text(), problems(&gateway));
    assert!(presents(&authorities[0]), "{:?}", problems(&gateway));
    let requests = stub.state().seen.iter().filter(|line| line.contains("/tls")).count();
    assert!(requests <= 2, "one request serves both members, after one that finds the version: {requests}");
    stub.set("kv/gateway/tls", json!({ "cert": second.cert, "key": second.key }));
    stub.set("kv/gateway/jwt", json!({ "secret": "second-secret-of-jack-with-32-bytes" }));
    refresh(&gateway);
    eventually("the new secret signs", 10, || opens("second-secret-of-jack-with-32-bytes"));
    assert!(!opens("first-secret-of-jack-with-32-bytes"));
    eventually("the new certificate is presented", 10, || presents(&authorities[1]));
    assert!(!presents(&authorities[0]));
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn aws_gives_whole_secrets_and_members_to_signed_requests() {
    let (stub, upstream) = (ManagerStub::aws(), Upstream::text("a"));
    stub.set("team/whole", json!("the whole"));
    stub.set("team/jack", json!({ "key": "of jack" }));
    let manager = |key: &str| {
        json!({
            "id": "aws/1", "access_key_id": AWS_ID, "secret_access_key": key,
            "region": "eu-west-1", "endpoint_url": stub.url(),
        })
    };
    let document = |secret: &str| {
        let key = |text: &str| json!({ "key-auth": { "key": text } });
        let mut all = guarded(
            manager(secret),
            "key-auth",
            consumer("whole", key("$secret://aws/1/team/whole")),
            &upstream,
        );
        all["consumers"].as_array_mut().unwrap().push(consumer("jack", key("$secret://aws/1/team/jack/key")));
        all
    };
    let gateway = start(&document(AWS_KEY));
    assert_eq!(
        [status(&gateway, "the whole"), status(&gateway, "of jack")],
        [200, 200],
        "{:?}",
        problems(&gateway)
    );
    // New settings keep the values until the manager answers.
    gateway.edit(&document("another key"));
    let fails =
        || problems(&gateway).iter().any(|one| one.contains("answered 400: InvalidSignatureException"));
    eventually("the wrong key is a problem", 20, fails);
    assert_eq!([status(&gateway, "the whole"), status(&gateway, "of jack")], [200, 200]);
}

#[test]
fn google_gives_secrets_to_a_service_account() {
    let key = certs::rsa().serialize_pem();
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let (stub, upstream) = (ManagerStub::gcp(pair.public_key().as_ref().to_vec()), Upstream::text("a"));
    stub.set("jack", json!({ "key": "of jack" }));
    let account = json!({
        "client_email": "robot@project-1.test", "private_key": key, "project_id": "project-1",
        "token_uri": format!("{}/token", stub.url()), "entries_uri": stub.url(),
    });
    let jack = consumer("jack", json!({ "key-auth": { "key": "$secret://gcp/1/jack/key" } }));
    let manager = json!({ "id": "gcp/1", "auth_config": account });
    let gateway = start(&guarded(manager, "key-auth", jack, &upstream));
    assert_eq!(status(&gateway, "of jack"), 200, "{:?}", problems(&gateway));
    stub.set("jack", json!({ "key": "second" }));
    refresh(&gateway);
    eventually("the new key opens", 10, || status(&gateway, "second") == 200);
    assert_eq!(
        stub.state().seen.iter().filter(|line| line.ends_with("/token")).count(),
        1,
        "the token is kept"
    );
}

#[test]
fn values_appear_in_no_output_and_viewers_see_no_credentials_of_managers() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    stub.set("kv/gateway/jack", json!({ "key": CANARY, "network": CANARY }));
    let (gateway, admin) = Gateway::embedded();
    let put = |path: &str, object: Value| {
        let line = format!("PUT /apisix/admin/{path}?wait=applied");
        let reply = ask(&gateway, &admin, &line, &object.to_string());
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    };
    put("secrets/vault/1", json!({ "uri": stub.url(), "prefix": "kv/gateway", "token": TOKEN }));
    put("consumers/jack", consumer("jack", json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } })));
    let sends = json!({ "headers": { "set": { "X-Upstream-Word": "$secret://vault/1/jack/key" } } });
    let plugins = json!({ "key-auth": {}, "proxy-rewrite": sends });
    put("routes/1", json!({ "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }));
    // A variable of the environment is a secret as well.
    let sends = json!({ "headers": { "set": { "X-Partner": "$env://PATH" } } });
    let plugins = json!({ "proxy-rewrite": sends });
    put("routes/3", json!({ "uri": "/3", "plugins": plugins, "upstream": upstream.alone() }));
    // Secrets in fields and URLs, which viewers do not see.
    let sends = json!({ "uri": format!("/x?token={HUSHED}"), "headers": { "set": { "Cookie": format!("a={HUSHED}") } } });
    let plugins = json!({ "proxy-rewrite": sends });
    put("routes/4", json!({ "uri": "/4", "plugins": plugins, "upstream": upstream.alone() }));
    // A value that the plugin refuses.
    let refused = json!({ "ip-restriction": { "whitelist": ["$secret://vault/1/jack/network"] } });
    put("routes/2", json!({ "uri": "/2", "plugins": refused, "upstream": upstream.alone() }));
    eventually("the key opens", 10, || status(&gateway, CANARY) == 200);
    eventually("the refused value is a problem", 10, || {
        problems(&gateway)
            .iter()
            .any(|one| one.starts_with("error routes/2 plugins.ip-restriction.whitelist"))
    });

    let created = ask(&gateway, &admin, "PUT /yumen/v1/keys/vic?role=viewer", "").json();
    let viewer = created["key"].as_str().unwrap().to_owned();
    let question = json!({ "url": "http://a.test/x", "headers": { "apikey": "x" }, "consumer": "jack" });
    let lines = [
        ("GET /apisix/admin/consumers", String::new()),
        ("GET /apisix/admin/routes/1", String::new()),
        ("GET /apisix/admin/secrets", String::new()),
        ("GET /yumen/v1/problems", String::new()),
        ("GET /yumen/v1/secrets", String::new()),
        ("GET /yumen/v1/revisions", String::new()),
        ("GET /yumen/v1/revisions/2", String::new()),
        ("POST /yumen/v1/explain", question.to_string()),
        ("POST /yumen/v1/explain?format=text", question.to_string()),
    ];
    for (line, body) in &lines {
        for key in [&admin, &viewer] {
            let reply = ask(&gateway, key, line, body);
            assert_eq!(reply.status, 200, "{line}: {}", reply.text());
            assert!(!reply.text().contains(CANARY), "{line}: {}", reply.text());
            let has_token = reply.text().contains(TOKEN);
            // Admins see credentials of managers as they were written.
            let is_written = line.ends_with("admin/secrets") || line.ends_with("/revisions/2");
            assert_eq!(has_token, key == &admin && is_written, "{line}");
        }
    }
    let question = json!({ "url": "http://a.test/4" }).to_string();
    for line in [
        "GET /apisix/admin/routes",
        "GET /apisix/admin/routes/4",
        "GET /apisix/admin/configs",
        "GET /yumen/v1/objects/routes",
        "GET /yumen/v1/revisions/6",
        "GET /yumen/v1/diff?from=1",
        "POST /yumen/v1/explain",
        "POST /yumen/v1/explain?format=text",
    ] {
        let body = if line.starts_with("POST") { question.as_str() } else { "" };
        let shown = ask(&gateway, &viewer, line, body);
        assert!(shown.status == 200 && !shown.text().contains(HUSHED), "{line}: {}", shown.text());
    }
    assert!(ask(&gateway, &admin, "GET /apisix/admin/routes/4", "").text().contains(HUSHED));
    let question = json!({ "url": "http://a.test/3" }).to_string();
    let explained = ask(&gateway, &admin, "POST /yumen/v1/explain", &question).text();
    let path = std::env::var("PATH").unwrap();
    assert!(explained.contains("X-Partner") && !explained.contains(&path), "{explained}");
    let export = ask(&gateway, &admin, "GET /yumen/v1/export", "").text();
    assert!(export.contains("$secret://vault/1/jack/key") && !export.contains(CANARY), "{export}");
    let directory = gateway.scratch.path().join("data").display().to_string();
    for arguments in
        [&["secrets", "list"][..], &["secrets", "check", "$secret://vault/1/jack/key"], &["problems"]]
    {
        let (_, out, err) = run(YUMEN, &[arguments, &["--data-dir", &directory]].concat());
        assert!(!out.contains(CANARY) && !err.contains(CANARY), "{arguments:?}: {out}{err}");
        assert!(arguments[0] == "problems" || out.contains("current"), "{out}{err}");
    }
    assert!(!gateway.status_text("/metrics").1.contains(CANARY));
    assert!(!gateway.log().contains(CANARY) && !gateway.log().contains(TOKEN), "{}", gateway.log());
    // Nothing in the data directory has the value.
    for file in
        std::fs::read_dir(&directory).unwrap().map_while(Result::ok).filter(|one| one.path().is_file())
    {
        let bytes = std::fs::read(file.path()).unwrap();
        let has_value = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert!(!has_value, "{}", file.path().display());
    }
}
