//! Certificates of clients: asked for, checked, told to plugins and upstreams.

use serde_json::{Value, json};

use crate::harness::certs::{self, Authority, Pair};
use crate::harness::{Gateway, Options, Scratch, run};

/// A gateway that serves `a.test` by the rules of `client`, and somebody who asks it.
struct Edge {
    gateway: Gateway,
    scratch: Scratch,
}

const VARIABLES: &str = "$ssl_client_verify|$ssl_client_s_dn|$ssl_client_i_dn|$ssl_client_serial";

fn document(ssls: &[Value]) -> Value {
    let plugins = json!({ "mocking": { "response_example": VARIABLES, "content_type": "text/plain" } });
    json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins }], "ssls": ssls })
}

fn ssl(id: &str, name: &str, client: &Value) -> Value {
    let pair = certs::simple(id, &[name]);
    let mut ssl = json!({ "id": id, "cert": pair.cert, "key": pair.key, "snis": [name] });
    if !client.is_null() {
        ssl["client"] = client.clone();
    }
    ssl
}

impl Edge {
    fn new(ssls: &[Value]) -> Edge {
        Edge { gateway: Gateway::start(&document(ssls)), scratch: Scratch::new() }
    }

    /// What curl gets, `000` where the handshake failed.
    fn ask(&self, url: &str, who: Option<&Pair>, more: &[&str]) -> String {
        let host = url.split('/').next().unwrap();
        let port = self.gateway.https.port();
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = url.replacen(host, &format!("https://{host}:{port}"), 1);
        let files = who.map(|pair| {
            (self.scratch.write("who.pem", &pair.cert), self.scratch.write("who.key", &pair.key))
        });
        let mut args = vec!["-sk", "--max-time", "20", "--resolve", &resolve, "-w", " %{http_code}", &url];
        if let Some((cert, key)) = &files {
            args.extend(["--cert", cert, "--key", key]);
        }
        args.extend(more);
        run("curl", &args).1.trim().to_owned()
    }
}

#[test]
fn the_handshake_refuses_whoever_shows_no_certificate_that_holds() {
    let authority = Authority::new("people");
    let edge = Edge::new(&[ssl("1", "a.test", &json!({ "ca": authority.cert }))]);
    let ada = authority.person("ada", 0x1a, 2100);
    let late = authority.person("late", 0x1b, 2021);
    let stranger = Authority::new("people").person("ada", 0x1a, 2100);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        assert_eq!(
            edge.ask("a.test/", Some(&ada), version),
            r"SUCCESS|O=Shop\, Inc,CN=ada|CN=people|1A 200",
            "{version:?}"
        );
        assert_eq!(edge.ask("a.test/", None, version), "000", "{version:?}");
        assert_eq!(edge.ask("a.test/", Some(&late), version), "000", "{version:?}");
        assert_eq!(edge.ask("a.test/", Some(&stranger), version), "000", "{version:?}");
    }
}

#[test]
fn chains_are_as_long_as_the_rules_allow() {
    let root = Authority::new("root");
    let (middle, people) = {
        let middle = root.under("middle");
        let people = middle.under("people");
        (middle, people)
    };
    let ada = people.person("ada", 1, 2100);
    let chain = Pair { cert: format!("{}{}{}", ada.cert, people.cert, middle.cert), key: ada.key };
    let ssls = [
        ssl("1", "one.test", &json!({ "ca": root.cert, "depth": 1 })),
        ssl("2", "two.test", &json!({ "ca": root.cert, "depth": 2 })),
    ];
    let edge = Edge::new(&ssls);
    assert_eq!(edge.ask("one.test/", Some(&chain), &[]), "000");
    assert!(edge.ask("two.test/", Some(&chain), &[]).ends_with(" 200"));
}

#[test]
fn paths_that_need_no_certificate_are_served_without() {
    let authority = Authority::new("people");
    let client = json!({ "ca": authority.cert, "skip_mtls_uri_regex": ["^/public/", "^/health$"] });
    let edge = Edge::new(&[ssl("1", "a.test", &client)]);
    let ada = authority.person("ada", 1, 2100);
    let late = authority.person("late", 2, 2021);
    let stranger = Authority::new("others").person("eve", 1, 2100);
    assert_eq!(edge.ask("a.test/public/x", None, &[]), "NONE||| 200");
    assert_eq!(edge.ask("a.test/health", None, &[]), "NONE||| 200");
    assert!(edge.ask("a.test/private", Some(&ada), &[]).starts_with("SUCCESS|"));
    let refused = |who: Option<&Pair>, path: &str, why: &str| {
        let said = edge.ask(&format!("a.test{path}"), who, &["--path-as-is"]);
        assert!(said.ends_with(" 400") && said.contains(why), "{path}: {said}");
    };
    refused(None, "/private", "a client certificate is required");
    refused(None, "/public/../private", "a client certificate is required");
    refused(None, "/private?/public/", "a client certificate is required");
    let nameless = edge.ask("a.test/private", None, &["--http1.0", "-H", "Host:"]);
    assert!(
        nameless.ends_with(" 400") && nameless.contains("a client certificate is required"),
        "{nameless}"
    );
    refused(Some(&late), "/private", "certificate has expired");
    refused(Some(&stranger), "/private", "unable to get local issuer certificate");
    assert!(edge.ask("a.test/public/x", Some(&stranger), &[]).starts_with("FAILED:unable to get"));
}

#[test]
fn no_connection_for_another_name_gets_around_it() {
    let authority = Authority::new("people");
    let open = ssl("1", "open.test", &Value::Null);
    let edge = Edge::new(&[open, ssl("2", "closed.test", &json!({ "ca": authority.cert }))]);
    let ada = authority.person("ada", 1, 2100);
    assert_eq!(edge.ask("open.test/", None, &[]), "NONE||| 200");
    for who in [None, Some(&ada)] {
        for host in ["Host: closed.test", "Host: CLOSED.test:9443"] {
            for (version, status) in [("--http1.1", " 400"), ("--http2", " 421")] {
                let said = edge.ask("open.test/", who, &[version, "-H", host]);
                assert!(
                    said.ends_with(status) && said.contains("server name of the TLS handshake"),
                    "{said}"
                );
            }
        }
    }
    assert!(edge.ask("closed.test/", Some(&ada), &[]).ends_with(" 200"));
}

#[test]
fn a_revoked_certificate_is_refused() {
    let authority = Authority::new("people");
    let client = json!({ "ca": authority.cert, "crl": authority.revoked(&[7]) });
    let edge = Edge::new(&[ssl("1", "a.test", &client)]);
    assert_eq!(edge.ask("a.test/", Some(&authority.person("eve", 7, 2100)), &[]), "000");
    assert!(edge.ask("a.test/", Some(&authority.person("ada", 8, 2100)), &[]).ends_with(" 200"));
}

#[test]
fn a_resumed_session_obeys_the_rules_in_force() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let certificate = ssl("1", "a.test", &json!({ "ca": old.cert }));
    let edge = Edge::new(std::slice::from_ref(&certificate));
    let ada = old.person("ada", 1, 2100);
    let (cert, key) = (edge.scratch.write("a.pem", &ada.cert), edge.scratch.write("a.key", &ada.key));
    let session = edge.scratch.file("session").display().to_string();
    let address = edge.gateway.https.to_string();
    let talk = |version: &str, more: &str| {
        let request =
            "printf 'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n'; sleep 0.5";
        let common =
            format!("openssl s_client -connect {address} -servername a.test -cert {cert} -key {key}");
        run("sh", &["-c", &format!("({request}) | {common} {version} {more} -ign_eof 2>&1")]).1
    };
    for (at, version) in ["-tls1_2", "-tls1_3"].into_iter().enumerate() {
        if at > 0 {
            edge.gateway.apply(&document(std::slice::from_ref(&certificate)));
        }
        assert!(talk(version, &format!("-sess_out {session}")).contains("SUCCESS|"), "{version}");
        let resumed = talk(version, &format!("-sess_in {session}"));
        assert!(resumed.contains("Reused, ") && resumed.contains("SUCCESS|"), "{version}: {resumed}");
        let mut changed = certificate.clone();
        changed["client"] = json!({ "ca": new.cert });
        edge.gateway.apply(&document(&[changed]));
        let refused = talk(version, &format!("-sess_in {session}"));
        assert!(!refused.contains("SUCCESS|"), "{version}: {refused}");
    }
}

#[test]
fn rules_that_cannot_be_kept_are_refused() {
    let broken = [
        (json!({ "client": { "ca": "x".repeat(200) } }), "client.ca"),
        (
            json!({ "client": { "ca": Authority::new("a").cert, "skip_mtls_uri_regex": ["("] } }),
            "client.skip_mtls_uri_regex",
        ),
        (json!({ "client": { "ca": Authority::new("a").cert, "crl": "x".repeat(200) } }), "client.crl"),
        (json!({ "ssl_protocols": ["TLSv1.1"] }), "ssl_protocols"),
        (json!({ "ssl_ciphers": ["RC4-MD5"] }), "ssl_ciphers"),
    ];
    for (fields, path) in broken {
        let mut object = ssl("1", "a.test", &Value::Null);
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        let gateway = Gateway::start(&document(&[object]));
        let problems = gateway.status_json("/yumen/v1/problems");
        assert_eq!((&problems[0]["object"], &problems[0]["path"]), (&json!("ssls/1"), &json!(path)));
    }
}

#[test]
fn versions_and_suites_are_those_of_the_certificate_or_else_of_the_node() {
    let mut old = ssl("1", "old.test", &Value::Null);
    old["ssl_protocols"] = json!(["TLSv1.2"]);
    let mut new = ssl("2", "new.test", &Value::Null);
    new["ssl_protocols"] = json!(["TLSv1.3"]);
    let mut narrow = ssl("3", "narrow.test", &Value::Null);
    narrow["ssl_ciphers"] = json!(["ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_CHACHA20_POLY1305_SHA256"]);
    let ssls = [old, new, narrow, ssl("4", "plain.test", &Value::Null)];
    let node = "tls: {ciphers: [ECDHE-ECDSA-AES128-GCM-SHA256, TLS_AES_128_GCM_SHA256]}";
    let gateway = Gateway::with(&document(&ssls), &Options { node, ..Options::default() });
    let address = gateway.https.to_string();
    let agreed = |name: &str, version: &str| {
        let (_, out, _) = run("openssl", &["s_client", "-connect", &address, "-servername", name, version]);
        let line = out.lines().find_map(|line| line.trim().strip_prefix("New, ")?.split("Cipher is ").nth(1));
        line.unwrap_or("(NONE)").to_owned()
    };
    assert_eq!(agreed("old.test", "-tls1_2"), "ECDHE-ECDSA-AES128-GCM-SHA256");
    assert_eq!(agreed("old.test", "-tls1_3"), "(NONE)");
    assert_eq!(agreed("new.test", "-tls1_2"), "(NONE)");
    assert_eq!(agreed("new.test", "-tls1_3"), "TLS_AES_128_GCM_SHA256");
    assert_eq!(agreed("narrow.test", "-tls1_2"), "ECDHE-ECDSA-CHACHA20-POLY1305");
    assert_eq!(agreed("narrow.test", "-tls1_3"), "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(agreed("plain.test", "-tls1_2"), "ECDHE-ECDSA-AES128-GCM-SHA256");
    assert_eq!(agreed("plain.test", "-tls1_1"), "(NONE)");
}

#[test]
fn what_ends_soon_is_told_and_measured() {
    let authority = Authority::new("known");
    let pair = authority.person("old", 1, 2021);
    let ssl = json!({ "id": "old", "snis": ["b.test", "a.test"], "cert": pair.cert, "key": pair.key });
    let gateway = Gateway::start(&document(&[ssl]));
    crate::harness::eventually("the end is told", 10, || {
        let problems = gateway.status_json("/yumen/v1/problems");
        problems.as_array().is_some_and(|all| {
            all.iter().any(|one| {
                one["object"] == "ssls/old"
                    && one["message"].as_str().is_some_and(|text| text.contains("expired"))
            })
        })
    });
    let sample = "yumen_tls_certificate_expiry_seconds{sni=\"a.test\",ssl=\"old\"}";
    // 2021-01-01
    assert_eq!(gateway.metric(sample), 1_609_459_200.0);
    assert_eq!(gateway.metric("yumen_tls_certificates"), 1.0);
}
