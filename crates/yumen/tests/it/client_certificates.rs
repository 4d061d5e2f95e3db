//! Client certificates: requested, verified, and passed to plugins and upstreams.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::certs::{self, Authority, Pair};
use crate::harness::{Gateway, Options, Scratch, Upstream, run};
use crate::l4;

/// A gateway that serves `a.test` with the rules `client`, and a scratch directory for clients.
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

    /// The body that curl gets; `000` if the handshake failed.
    fn ask(&self, url: &str, client_pair: Option<&Pair>, more: &[&str]) -> String {
        let host = url.split('/').next().unwrap();
        let port = self.gateway.https.port();
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = url.replacen(host, &format!("https://{host}:{port}"), 1);
        let files = client_pair.map(|pair| {
            (self.scratch.write("who.pem", &pair.cert), self.scratch.write("who.key", &pair.key))
        });
        let mut args = vec!["-sk", "--max-time", "20", "--resolve", &resolve, "-w", " %{http_code}", &url];
        if let Some((cert, key)) = &files {
            args.extend(["--cert", cert, "--key", key]);
        }
        args.extend(more);
        run("curl", &args).1.trim().to_owned()
    }

    /// The output of openssl for a request to `a.test` in this version. The option stores the session
    /// (`-sess_out`) or resumes it (`-sess_in`).
    fn talker(&self, client_pair: &Pair) -> impl Fn(&str, &str) -> String + use<> {
        let (cert, key) =
            (self.scratch.write("a.pem", &client_pair.cert), self.scratch.write("a.key", &client_pair.key));
        let session = self.scratch.file("session").display().to_string();
        let address = self.gateway.https.to_string();
        move |version, session_option| {
            // A slow client: its input is open while the response comes.
            let request =
                "printf 'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n'; sleep 0.5";
            let common =
                format!("openssl s_client -connect {address} -servername a.test -cert {cert} -key {key}");
            let options = format!("{version} {session_option} {session} -ign_eof");
            run("sh", &["-c", &format!("({request}) | {common} {options} 2>&1")]).1
        }
    }
}

#[test]
fn the_handshake_refuses_whoever_shows_no_certificate_that_holds() {
    let authority = Authority::new("people");
    let edge = Edge::new(&[ssl("1", "a.test", &json!({ "ca": authority.cert }))]);
    let ada = authority.issue_client("ada", 0x1a, 2100);
    let late = authority.issue_client("late", 0x1b, 2021);
    let unknown = Authority::new("people").issue_client("ada", 0x1a, 2100);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        assert_eq!(
            edge.ask("a.test/", Some(&ada), version),
            r"SUCCESS|O=Shop\, Inc,CN=ada|CN=people|1A 200",
            "{version:?}"
        );
        assert_eq!(edge.ask("a.test/", None, version), "000", "{version:?}");
        assert_eq!(edge.ask("a.test/", Some(&late), version), "000", "{version:?}");
        assert_eq!(edge.ask("a.test/", Some(&unknown), version), "000", "{version:?}");
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
    let ada = people.issue_client("ada", 1, 2100);
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
    let ada = authority.issue_client("ada", 1, 2100);
    let late = authority.issue_client("late", 2, 2021);
    let unknown = Authority::new("others").issue_client("eve", 1, 2100);
    assert_eq!(edge.ask("a.test/public/x", None, &[]), "NONE||| 200");
    assert_eq!(edge.ask("a.test/health", None, &[]), "NONE||| 200");
    assert!(edge.ask("a.test/private", Some(&ada), &[]).starts_with("SUCCESS|"));
    let refused = |client_pair: Option<&Pair>, path: &str, why: &str| {
        let output = edge.ask(&format!("a.test{path}"), client_pair, &["--path-as-is"]);
        assert!(output.ends_with(" 400") && output.contains(why), "{path}: {output}");
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
    refused(Some(&unknown), "/private", "unable to get local issuer certificate");
    assert!(edge.ask("a.test/public/x", Some(&unknown), &[]).starts_with("FAILED:unable to get"));
}

#[test]
fn no_connection_for_another_name_gets_around_it() {
    let authority = Authority::new("people");
    let open = ssl("1", "open.test", &Value::Null);
    let edge = Edge::new(&[open, ssl("2", "closed.test", &json!({ "ca": authority.cert }))]);
    let ada = authority.issue_client("ada", 1, 2100);
    assert_eq!(edge.ask("open.test/", None, &[]), "NONE||| 200");
    for client_pair in [None, Some(&ada)] {
        for host in ["Host: closed.test", "Host: CLOSED.test:9443"] {
            for (version, status) in [("--http1.1", " 400"), ("--http2", " 421")] {
                let output = edge.ask("open.test/", client_pair, &[version, "-H", host]);
                assert!(
                    output.ends_with(status) && output.contains("server name of the TLS handshake"),
                    "{output}"
                );
            }
        }
    }
    assert!(edge.ask("closed.test/", Some(&ada), &[]).ends_with(" 200"));
}

/// Whether an HTTP server behind the address responds with this text. Waits for that, or for the end of the
/// connection.
fn is_answered(address: std::net::SocketAddr, options: &str, text: &str) -> bool {
    let command = format!("exec timeout 60 openssl s_client -connect {address} {options} 2>&1");
    let mut child = Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // The process may have exited after an early refusal.
    let _ = stdin.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let (mut output, mut room) = (Vec::new(), [0; 4096]);
    let is_answered = loop {
        match stdout.read(&mut room).expect("a pipe") {
            0 => break false,
            count => output.extend_from_slice(&room[..count]),
        }
        if String::from_utf8_lossy(&output).contains(text) {
            break true;
        }
    };
    drop(stdin);
    child.wait().expect("a child of ours");
    is_answered
}

#[test]
fn no_name_of_a_stream_gets_around_it() {
    let authority = Authority::new("people");
    let ada = authority.issue_client("ada", 1, 2100);
    let backend = Upstream::text("passed on");
    let upstream = json!({ "nodes": { backend.address.to_string(): 1 } });
    let routes = json!([{ "id": "1", "upstream": upstream }, { "id": "2", "sni": "*.closed.test", "upstream": upstream }]);
    let with = |ssls: &[Value]| json!({ "ssls": ssls, "stream_routes": routes });
    let closed = |name: &str| ssl(&name.replace('*', "any"), name, &json!({ "ca": authority.cert }));
    let (open, two) =
        (ssl("open", "open.test", &Value::Null), [closed("closed.test"), closed("*.closed.test")]);
    let (gateway, at) = l4::start(
        "[{address: '127.0.0.1:0', protocol: tls}]",
        &with(&[two.to_vec(), vec![open.clone()]].concat()),
    );
    let files = ["pem", "key"].map(|end| format!("ada.{end}"));
    let shown = format!(
        "-cert {} -key {}",
        gateway.scratch.write(&files[0], &ada.cert),
        gateway.scratch.write(&files[1], &ada.key)
    );
    let passes = |name: &str| {
        let name = if name.is_empty() { "-noservername".to_owned() } else { format!("-servername {name}") };
        let got = |options: &str| is_answered(at[0], &format!("{name} {options}"), "passed on");
        (got(""), got("-tls1_2"), got(&shown))
    };
    for name in ["closed.test", "closed.test.", "CLOSED.test.", "a.closed.test", "a.closed.test."] {
        assert_eq!(passes(name), (false, false, true), "{name}");
    }
    assert_eq!(passes("open.test"), (true, true, true));
    for name in ["", "other.test", "a.b.closed.test", "closed.test.."] {
        assert_eq!(passes(name), (false, false, false), "{name:?}");
    }
    let faults = "yumen_stream_faults_total{fault=\"unknown_name\"}";
    assert!(gateway.metric(faults) >= 9.0, "{}", gateway.metric(faults));
    let log = gateway.log();
    assert!(log.contains("stream refused") && log.contains("no ssl object is for the server name"), "{log}");
    // Without a client certificate rule the default certificate is served.
    gateway.apply(&with(&[open]));
    assert_eq!(passes(""), (true, true, true));
    // An object for all names requests a certificate for every name.
    gateway.apply(&with(&[closed("*")]));
    for name in ["", "a.b.closed.test", "other.test"] {
        assert_eq!(passes(name), (false, false, true), "{name:?}");
    }
}

#[test]
fn clients_without_a_server_name_come_in_where_all_names_ask_alike() {
    let (authority, other) = (Authority::new("people"), Authority::new("others"));
    let ada = authority.issue_client("ada", 1, 2100);
    let client = json!({ "ca": authority.cert });
    let named = [ssl("1", "alike.test", &client), ssl("2", "stricter.test", &json!({ "ca": other.cert }))];
    let edge = Edge::new(&[vec![ssl("all", "*", &client)], named.to_vec()].concat());
    for version in ["--http1.1", "--http2"] {
        let ask = |host: &str, client_pair| {
            edge.ask("127.0.0.1/", client_pair, &[version, "-H", &format!("Host: {host}")])
        };
        assert_eq!(ask("127.0.0.1", None), "000", "{version}");
        for host in ["127.0.0.1", "any.test", "alike.test"] {
            assert!(ask(host, Some(&ada)).ends_with(" 200"), "{version} {host}");
        }
        let output = ask("stricter.test", Some(&ada));
        assert!(output.contains("server name of the TLS handshake"), "{version}: {output}");
    }
    let open = Edge::new(&[ssl("all", "*", &Value::Null), named[0].clone()]);
    let output = open.ask("127.0.0.1/", Some(&ada), &["-H", "Host: alike.test"]);
    assert!(output.contains("server name of the TLS handshake"), "{output}");
}

#[test]
fn a_revoked_certificate_is_refused() {
    let authority = Authority::new("people");
    let client = json!({ "ca": authority.cert, "crl": authority.revoked(&[7]) });
    let edge = Edge::new(&[ssl("1", "a.test", &client)]);
    assert_eq!(edge.ask("a.test/", Some(&authority.issue_client("eve", 7, 2100)), &[]), "000");
    assert!(edge.ask("a.test/", Some(&authority.issue_client("ada", 8, 2100)), &[]).ends_with(" 200"));
}

#[test]
fn a_certificate_given_as_its_own_authority_lets_its_owner_in() {
    let own = Authority::own("robot", 2100);
    let late = Authority::own("robot", 2021);
    let given = own.cert.clone() + &late.cert;
    let both = json!({ "ca": given });
    let mut lax = both.clone();
    lax["skip_mtls_uri_regex"] = json!(["^/public$"]);
    let edge = Edge::new(&[ssl("1", "a.test", &both), ssl("2", "lax.test", &lax)]);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let output = edge.ask("a.test/", Some(&own), version);
        assert!(output.starts_with("SUCCESS|CN=robot|CN=robot|") && output.ends_with(" 200"), "{output}");
        assert_eq!(edge.ask("a.test/", Some(&late), version), "000");
        // A certificate with the same content and another key.
        assert_eq!(edge.ask("a.test/", Some(&Authority::own("robot", 2100)), version), "000");
        // The certificate of another client with the wrong key.
        let thief = Pair { cert: own.cert.clone(), key: certs::ecdsa().serialize_pem() };
        assert_eq!(edge.ask("lax.test/", Some(&thief), version), "000");
    }
    assert!(edge.ask("lax.test/", Some(&own), &[]).starts_with("SUCCESS|"));
    let output = edge.ask("lax.test/", Some(&late), &[]);
    assert!(output.contains("certificate has expired"), "{output}");
}

#[test]
fn nothing_is_trusted_beyond_its_time() {
    // 2025-01-01.
    let past = 1_735_689_600;
    let (old, stale) = (Authority::until("old", past), Authority::new("stale"));
    let rules = [
        json!({ "ca": old.cert }),
        json!({ "ca": stale.cert, "crl": stale.revoked_until(&[7], past) }),
        // The successor of the list is included.
        json!({ "ca": stale.cert, "crl": stale.revoked_until(&[7], past) + &stale.revoked(&[7]) }),
    ];
    let optional = |rules: &Value| {
        let mut rules = rules.clone();
        rules["skip_mtls_uri_regex"] = json!(["^/public$"]);
        rules
    };
    let edge = Edge::new(&[
        ssl("1", "ca.test", &rules[0]),
        ssl("2", "crl.test", &rules[1]),
        ssl("3", "new.test", &rules[2]),
        ssl("4", "lax-ca.test", &optional(&rules[0])),
        ssl("5", "lax-crl.test", &optional(&rules[1])),
    ]);
    let (ada, eve) = (old.issue_client("ada", 1, 2100), stale.issue_client("eve", 8, 2100));
    for (name, client_pair, expected) in [
        ("ca.test", &ada, "000"),
        ("crl.test", &eve, "000"),
        ("new.test", &eve, "SUCCESS|"),
        (
            "lax-ca.test",
            &ada,
            r#"{"error_msg":"the client certificate is refused: certificate has expired"}"#,
        ),
        ("lax-crl.test", &eve, r#"{"error_msg":"the client certificate is refused: CRL has expired"}"#),
    ] {
        let output = edge.ask(&format!("{name}/"), Some(client_pair), &[]);
        assert!(output.starts_with(expected), "{name}: {output}");
    }
    assert_eq!(edge.ask("new.test/", Some(&stale.issue_client("out", 7, 2100)), &[]), "000");
    for problem in [
        ("ssls/1", "client.ca", "the authority CN=old expired"),
        ("ssls/2", "client.crl", "the CRL of CN=stale expired"),
    ] {
        await_problem(&edge.gateway, problem);
    }
    let problems = edge.gateway.status_json("/yumen/v1/problems").to_string();
    assert!(!problems.contains("ssls/3"), "{problems}");
    let file = edge.scratch.write("lint.json", document(&[ssl("1", "ca.test", &rules[0])]).to_string());
    let found = run(env!("CARGO_BIN_EXE_yumen"), &["lint", &file]).1;
    assert!(found.contains("error: ssls/1 at client.ca: the authority CN=old expired"), "{found}");
}

fn await_problem(gateway: &Gateway, (object, path, message): (&str, &str, &str)) {
    crate::harness::eventually("the end is told", 10, || {
        let problems = gateway.status_json("/yumen/v1/problems");
        problems.as_array().is_some_and(|all| {
            all.iter().any(|one| {
                one["object"] == object
                    && one["path"] == path
                    && one["message"].as_str().is_some_and(|text| text.contains(message))
            })
        })
    });
}

#[test]
fn a_resumed_session_obeys_the_rules_in_force() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let certificate = ssl("1", "a.test", &json!({ "ca": old.cert }));
    let edge = Edge::new(std::slice::from_ref(&certificate));
    let talk = edge.talker(&old.issue_client("ada", 1, 2100));
    for (at, version) in ["-tls1_2", "-tls1_3"].into_iter().enumerate() {
        if at > 0 {
            edge.gateway.apply(&document(std::slice::from_ref(&certificate)));
        }
        assert!(talk(version, "-sess_out").contains("SUCCESS|"), "{version}");
        let resumed = talk(version, "-sess_in");
        assert!(resumed.contains("Reused, ") && resumed.contains("SUCCESS|"), "{version}: {resumed}");
        let mut changed = certificate.clone();
        changed["client"] = json!({ "ca": new.cert });
        edge.gateway.apply(&document(&[changed]));
        let refused = talk(version, "-sess_in");
        assert!(!refused.contains("SUCCESS|"), "{version}: {refused}");
    }
}

#[test]
fn a_resumed_session_does_not_outlive_its_authority() {
    let now_unix_s = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let until_unix_s = now_unix_s() + 8;
    let authority = Authority::until("people", until_unix_s);
    let edge = Edge::new(&[ssl("1", "a.test", &json!({ "ca": authority.cert }))]);
    let talk = edge.talker(&authority.issue_client("ada", 1, 2100));
    assert!(talk("-tls1_3", "-sess_out").contains("SUCCESS|"));
    let resumed = talk("-tls1_3", "-sess_in");
    assert!(resumed.contains("Reused, ") && resumed.contains("SUCCESS|"), "{resumed}");
    // The scenario: the authority expires.
    std::thread::sleep(std::time::Duration::from_secs((until_unix_s + 2).saturating_sub(now_unix_s())));
    let refused = talk("-tls1_3", "-sess_in");
    assert!(refused.contains("Reused, ") && refused.contains("certificate has expired"), "{refused}");
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
    let pair = authority.issue_client("old", 1, 2021);
    let ssl = json!({ "id": "old", "snis": ["b.test", "a.test"], "cert": pair.cert, "key": pair.key });
    let gateway = Gateway::start(&document(&[ssl]));
    await_problem(&gateway, ("ssls/old", "cert", "expired"));
    let sample = "yumen_tls_certificate_expiry_seconds{sni=\"a.test\",ssl=\"old\"}";
    // 2021-01-01.
    gateway.assert_metric(sample, 1_609_459_200.0);
    gateway.assert_metric("yumen_tls_certificates", 1.0);
}
