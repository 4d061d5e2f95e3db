//! OCSP stapling with a real responder, `openssl ocsp`.

use std::process::{Child, Command};

use serde_json::json;

use crate::harness::{Gateway, Scratch, eventually, free_port, run};

/// An openssl authority with its index of issued certificates.
struct Authority {
    scratch: Scratch,
    url: String,
    port: String,
}

impl Authority {
    fn new() -> Authority {
        let (scratch, address) = (Scratch::new(), free_port());
        let authority =
            Authority { scratch, url: format!("http://{address}/"), port: address.port().to_string() };
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=known",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        authority
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(self.scratch.path()).output();
        let output = output.expect("openssl runs: scripts/deps.sh test");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Signs a certificate with the URL of the responder; returns chain and key.
    fn sign(&self, name: &str, serial: &str, more: &str) -> (String, String) {
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            "leaf.key",
            "-out",
            "leaf.csr",
        ]);
        let extensions =
            format!("authorityInfoAccess=OCSP;URI:{}\nsubjectAltName=DNS:{name}\n{more}\n", self.url);
        self.scratch.write("leaf.ext", extensions);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            "leaf.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-set_serial",
            serial,
            "-days",
            "30",
            "-extfile",
            "leaf.ext",
            "-out",
            "leaf.pem",
        ]);
        let read = |file: &str| std::fs::read_to_string(self.scratch.file(file)).unwrap();
        (read("leaf.pem") + &read("ca.pem"), read("leaf.key"))
    }

    /// Starts a responder with this index; it ends on drop.
    fn respond(&self, index: &str) -> Responder {
        self.scratch.write("index.txt", index);
        let args = [
            "ocsp",
            "-port",
            &self.port,
            "-index",
            "index.txt",
            "-CA",
            "ca.pem",
            "-rkey",
            "ca.key",
            "-rsigner",
            "ca.pem",
            "-nmin",
            "5",
        ];
        let log = std::fs::File::create(self.scratch.file("log")).expect("a log file");
        let errors = log.try_clone().expect("the same file");
        let child = Command::new("openssl")
            .args(args)
            .current_dir(self.scratch.path())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("openssl runs");
        // Reads the log instead of connecting: a connection without a request would end the responder.
        eventually("the responder listens", 10, || {
            let log = std::fs::read_to_string(self.scratch.file("log")).unwrap_or_default();
            log.contains("waiting for OCSP client connections")
        });
        Responder(child)
    }
}

struct Responder(Child);

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The certificate status that a client receives.
fn stapled(gateway: &Gateway, name: &str) -> String {
    let address = gateway.https.to_string();
    let (_, out, _) = run("openssl", &["s_client", "-connect", &address, "-servername", name, "-status"]);
    let line = out
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("Cert Status:") || line.starts_with("OCSP response: no response sent"));
    line.unwrap_or("nothing").to_owned()
}

fn gateway(ssls: &[serde_json::Value], node: &str) -> Gateway {
    let plugins = json!({ "mocking": { "response_example": "hello", "content_type": "text/plain" } });
    let document = json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins }], "ssls": ssls });
    Gateway::with(&document, &crate::harness::Options { node, ..Default::default() })
}

const GOOD: &str = "V\t21000101000000Z\t\t01\tunknown\t/CN=a.test\n";
const REVOKED: &str = "R\t21000101000000Z\t240101000000Z\t01\tunknown\t/CN=a.test\n";

#[test]
fn the_status_is_fetched_beside_the_traffic_and_shown() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("a.test", "1", "");
    let responder = authority.respond(GOOD);
    let ssl = json!({ "id": "1", "snis": ["a.test"], "cert": cert, "key": key });
    let gateway = gateway(&[ssl], "");
    eventually("the staple is shown", 20, || stapled(&gateway, "a.test") == "Cert Status: good");
    gateway.assert_metric("yumen_tls_staple_fetches_total{result=\"good\"}", 1.0);
    // The staple outlives the responder.
    drop(responder);
    assert_eq!(stapled(&gateway, "a.test"), "Cert Status: good");
}

#[test]
fn what_must_have_a_staple_gets_it_before_anybody_asks() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("a.test", "1", "tlsfeature=status_request");
    let _responder = authority.respond(GOOD);
    let ssl = json!({ "id": "1", "snis": ["a.test"], "cert": cert, "key": key });
    let gateway = gateway(&[ssl], "");
    eventually("the staple is fetched", 20, || {
        gateway.metric("yumen_tls_staple_fetches_total{result=\"good\"}") == 1.0
    });
    assert_eq!(stapled(&gateway, "a.test"), "Cert Status: good");
}

#[test]
fn no_answer_and_a_bad_answer_cost_nothing_but_the_staple() {
    let signed = |authority: &Authority| {
        let (cert, key) = authority.sign("a.test", "1", "");
        json!({ "id": "1", "snis": ["a.test"], "cert": cert, "key": key })
    };
    let authority = Authority::new();
    let _responder = authority.respond(REVOKED);
    let ssl = signed(&authority);
    let failed = |gateway: &Gateway| gateway.metric("yumen_tls_staple_fetches_total{result=\"failed\"}");
    let missing = "OCSP response: no response sent";
    let silent = gateway(&[signed(&Authority::new())], "");
    assert_eq!(stapled(&silent, "a.test"), missing);
    eventually("the failure is counted", 20, || failed(&silent) >= 1.0);
    assert_eq!(stapled(&silent, "a.test"), missing);
    let revoked = gateway(std::slice::from_ref(&ssl), "");
    stapled(&revoked, "a.test");
    eventually("the refusal is counted", 20, || failed(&revoked) >= 1.0);
    assert_eq!(stapled(&revoked, "a.test"), missing);
    assert!(revoked.log().contains("the certificate is revoked"), "{}", revoked.log());
    let off = gateway(&[ssl], "tls: {ocsp_stapling: false}");
    stapled(&off, "a.test");
    assert_eq!(stapled(&off, "a.test"), missing);
}

#[test]
fn a_process_that_takes_over_shows_the_staples_of_the_one_before() {
    let authority = Authority::new();
    let responder = authority.respond(GOOD);
    let (cert, key) = authority.sign("a.test", "1", "tlsfeature=status_request");
    let ssl = json!({ "id": "1", "snis": ["a.test"], "cert": cert, "key": key });
    let mut line = crate::upgrade::start(&json!({ "routes": [], "ssls": [ssl] }), "");
    let good = "Cert Status: good";
    eventually("the staple is shown", 20, || stapled(&line.gateway, "a.test") == good);
    // The responder is gone: each process takes the staple over from its predecessor.
    drop(responder);
    for _ in 0..2 {
        let before = line.serving();
        line.upgrade();
        line.wait_for_end_of(before);
        assert_eq!(stapled(&line.gateway, "a.test"), good);
    }
    line.gateway.assert_metric("yumen_tls_staple_fetches_total{result=\"good\"}", 0.0);
}
