//! TLS towards clients, checked with openssl and curl.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::certs::{self, Authority, Pair};
use crate::harness::{Gateway, Options, Scratch, run};

fn ssl(id: &str, pair: &Pair, snis: &[&str]) -> Value {
    json!({ "id": id, "cert": pair.cert, "key": pair.key, "snis": snis })
}

fn document(ssls: &[Value]) -> Value {
    let plugins = json!({ "mocking": { "response_example": "over $scheme", "content_type": "text/plain" } });
    json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins }], "ssls": ssls })
}

/// The output of `openssl s_client` for a handshake.
fn handshake(address: SocketAddr, more: &[&str]) -> String {
    let address = address.to_string();
    let (_, out, err) = run("openssl", &[&["s_client", "-connect", &address], more].concat());
    out + &err
}

/// The common name of the certificate for a server name.
fn shown(gateway: &Gateway, name: &str, more: &[&str]) -> String {
    let output = handshake(gateway.https, &[&["-servername", name], more].concat());
    let subject = output.lines().find_map(|line| line.trim().strip_prefix("subject="));
    let subject = subject.unwrap_or_else(|| panic!("no certificate for {name}:\n{output}"));
    subject.rsplit('=').next().unwrap().trim().to_owned()
}

#[test]
fn the_server_name_chooses_the_certificate() {
    let [a, b, w] = ["a", "b", "w"].map(|name| certs::simple(name, &[name]));
    let ssls =
        [ssl("1", &a, &["a.test"]), ssl("2", &b, &["b.test", "c.test"]), ssl("3", &w, &["*.wild.test"])];
    let gateway = Gateway::start(&document(&ssls));
    let table = [("a.test", "a"), ("b.test", "b"), ("c.test", "b"), ("x.wild.test", "w"), ("A.TEST", "a")];
    for (name, expected) in table {
        assert_eq!(shown(&gateway, name, &[]), expected, "{name}");
    }
    // The self-signed default certificate if no other matches.
    let default = shown(&gateway, "other.test", &[]);
    assert!(!["a", "b", "w"].contains(&default.as_str()), "{default}");
    let without = handshake(gateway.https, &["-noservername"]);
    assert!(without.contains("BEGIN CERTIFICATE"), "{without}");
}

#[test]
fn requests_over_tls_are_served() {
    let authority = Authority::new("known");
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let gateway = Gateway::start(&document(&[ssl("1", &pair, &["a.test"])]));
    let scratch = Scratch::new();
    let ca = scratch.write("ca.pem", &authority.cert);
    let port = gateway.https.port();
    let (url, resolve) = (format!("https://a.test:{port}/"), format!("a.test:{port}:127.0.0.1"));
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let args =
            [&["-sS", "--max-time", "10", "--cacert", &ca, "--resolve", &resolve, &url, &url], version]
                .concat();
        let (code, out, err) = run("curl", &args);
        assert_eq!((code, out.as_str()), (0, "over httpsover https"), "{version:?} {err}");
    }
}

#[test]
fn rsa_and_ecdsa_are_both_offered() {
    let authority = Authority::new("known");
    let (ecdsa, rsa) = (
        authority.sign("ecdsa", &["a.test"], certs::ecdsa()),
        authority.sign("rsa", &["a.test"], certs::rsa()),
    );
    let both = json!({
        "id": "1", "snis": ["a.test"], "cert": ecdsa.cert, "key": ecdsa.key, "certs": [rsa.cert], "keys": [rsa.key],
    });
    let gateway = Gateway::start(&document(&[both]));
    assert_eq!(shown(&gateway, "a.test", &["-sigalgs", "ECDSA+SHA256"]), "ecdsa");
    assert_eq!(shown(&gateway, "a.test", &["-sigalgs", "RSA-PSS+SHA256"]), "rsa");
    assert_eq!(shown(&gateway, "a.test", &["-tls1_2", "-sigalgs", "RSA+SHA256"]), "rsa");
    assert_eq!(shown(&gateway, "a.test", &[]), "ecdsa");
}

/// An Ed25519 certificate and key in openssl's format, the shortest kind of key.
fn ed25519(name: &str) -> Pair {
    let scratch = Scratch::new();
    let [cert, key] = ["cert.pem", "key.pem"].map(|file| scratch.file(file).display().to_string());
    let subject = format!("/CN={name}");
    let args =
        ["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", &subject, "-keyout", &key, "-out", &cert];
    let (status, _, err) = run("openssl", &args);
    assert_eq!(status, 0, "{err}");
    let [cert, key] = [cert, key].map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(key.len(), 119);
    Pair { cert, key }
}

#[test]
fn an_ed25519_certificate_is_shown_to_those_that_take_it() {
    let (short, ecdsa) = (ed25519("short"), certs::simple("ecdsa", &["a.test"]));
    let both = json!({
        "id": "1", "snis": ["a.test"], "cert": short.cert, "key": short.key, "certs": [ecdsa.cert], "keys": [ecdsa.key],
    });
    let gateway = Gateway::start(&document(&[both, ssl("2", &short, &["b.test"])]));
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(shown(&gateway, "a.test", &[version, "-sigalgs", "ECDSA+SHA256:ed25519"]), "short");
        assert_eq!(shown(&gateway, "a.test", &[version, "-sigalgs", "ECDSA+SHA256"]), "ecdsa");
        assert_eq!(shown(&gateway, "b.test", &[version]), "short");
    }
    let none = handshake(gateway.https, &["-servername", "b.test", "-sigalgs", "ECDSA+SHA256"]);
    assert!(none.contains("handshake failure"), "{none}");
}

#[test]
fn a_key_that_is_too_short_to_be_one_is_told_as_such() {
    let pair = certs::simple("a", &["a.test"]);
    for (key, expected) in [
        ("secret", "the private key is not PEM: no line `-----BEGIN ...-----`"),
        (
            "-----BEGIN PRIVATE KEY-----\nMC4C\n",
            "the private key is not PEM: it has no line `-----END ...-----`",
        ),
        (" ", "the private key is not PEM: it is empty"),
    ] {
        let short = Pair { cert: pair.cert.clone(), key: key.to_owned() };
        let gateway = Gateway::start(&document(&[ssl("1", &short, &["a.test"])]));
        let problems = gateway.status_json("/yumen/v1/problems");
        assert_eq!((&problems[0]["path"], &problems[0]["message"]), (&json!("key"), &json!(expected)));
    }
}

#[test]
fn sessions_are_resumed() {
    let pair = certs::simple("a", &["a.test"]);
    let gateway = Gateway::start(&document(&[ssl("1", &pair, &["a.test"])]));
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(resumes(&gateway, version), "{version}");
    }
    let node = "tls: {session_tickets: false, session_entries: 0}";
    let forgetful = Gateway::with(&document(&[]), &Options { node, ..Options::default() });
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(!resumes(&forgetful, version), "{version}");
    }
}

/// Whether a second connection resumes the session of the first.
fn resumes(gateway: &Gateway, version: &str) -> bool {
    let session = gateway.scratch.file("session").display().to_string();
    let address = gateway.https.to_string();
    let common = format!("openssl s_client -connect {address} -servername a.test {version}");
    // A slow client: its input is open while the response comes.
    let request = "printf 'GET / HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n'; sleep 0.3";
    let talk = |more: &str| run("sh", &["-c", &format!("({request}) | {common} {more} 2>&1")]).1;
    let first = talk(&format!("-sess_out {session} -ign_eof"));
    assert!(first.contains("New, ") && first.contains("over https"), "{version}: {first}");
    talk(&format!("-sess_in {session} -ign_eof")).contains("Reused, ")
}

#[test]
fn a_handshake_that_does_not_come_ends_in_time() {
    let node = "tls: {handshake_ms: 300}";
    let gateway = Gateway::with(&document(&[]), &Options { node, ..Options::default() });
    let mut client = crate::harness::Client::connect(gateway.https);
    client.send([0x16, 3, 1]);
    let started = Instant::now();
    assert!(client.is_closed_within(Duration::from_secs(5)));
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}

#[test]
fn a_replaced_certificate_is_shown_at_once_and_old_connections_live_on() {
    let (old, new) = (certs::simple("old", &["a.test"]), certs::simple("new", &["a.test"]));
    let gateway = Gateway::start(&document(&[ssl("1", &old, &["a.test"])]));
    let mut process = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &gateway.https.to_string(), "-servername", "a.test"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
    let mut ask = || {
        to.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        let mut rest = String::new();
        while !rest.ends_with("\r\n\r\n") {
            assert!(from.read_line(&mut rest).unwrap() > 0);
        }
        let mut body = [0; "over https".len()];
        std::io::Read::read_exact(&mut from, &mut body).unwrap();
        line
    };
    assert!(ask().contains("200"));
    assert_eq!(shown(&gateway, "a.test", &[]), "old");
    gateway.edit(&document(&[ssl("1", &new, &["a.test"])]));
    crate::harness::eventually("the new certificate is shown", 5, || shown(&gateway, "a.test", &[]) == "new");
    assert!(ask().contains("200"));
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_and_the_old_one_stays() {
    let (good, other) = (certs::simple("good", &["a.test"]), certs::simple("other", &["a.test"]));
    let gateway = Gateway::start(&document(&[ssl("1", &good, &["a.test"])]));
    let mixed = Pair { cert: other.cert, key: good.key.clone() };
    gateway.apply(&document(&[ssl("1", &mixed, &["a.test"])]));
    assert_eq!(gateway.status_json("/yumen/v1/problems")[0]["object"], "ssls/1");
    assert_eq!(shown(&gateway, "a.test", &[]), "good");
}

#[test]
fn plain_http_on_a_port_for_https_is_told_so() {
    let scratch = Scratch::new();
    let file = scratch.path().join("access.log");
    let node = format!("logs: {{access: {{enabled: true, path: \"{}\", format: combined}}}}", file.display());
    let gateway = Gateway::with(&document(&[]), &Options { node: &node, ..Options::default() });
    let url = format!("http://{}/asked?for=this", gateway.https);
    let (_, answer, _) = run("curl", &["-sS", "--max-time", "5", "-w", "%{http_code}", &url]);
    assert!(
        answer.contains("plain HTTP was sent to a port for HTTPS") && answer.ends_with("400"),
        "{answer}"
    );
    crate::harness::eventually("it is logged", 10, || {
        std::fs::read_to_string(&file).is_ok_and(|log| log.contains("\"GET /asked?for=this HTTP/1.1\" 400"))
    });
    for port in [gateway.https, gateway.http] {
        let mut other = crate::harness::Client::connect(port);
        other.send("EHLO x\r\n\r\n");
        assert!(other.is_closed_within(Duration::from_secs(5)));
    }
    crate::harness::eventually("both are counted", 10, || {
        gateway.metric("yumen_connections_not_http_total") == 2.0
    });
}

#[test]
fn invalid_handshake_is_dropped_while_others_are_served() {
    let gateway = Gateway::start(&document(&[]));
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 300]] {
        let mut client = crate::harness::Client::connect(gateway.https);
        client.send(garbage).finish_sending();
        // An alert may come before the end.
        let _ = client.is_closed_within(Duration::from_secs(5));
    }
    // The alert is sent before the worker counts.
    crate::harness::eventually("the failed handshakes are counted", 10, || {
        gateway.metric("yumen_tls_handshake_failures_total") >= 2.0
    });
    let url = format!("https://{}/", gateway.https);
    assert_eq!(run("curl", &["-skS", "--max-time", "5", &url]).1, "over https");
}
