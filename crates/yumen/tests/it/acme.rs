//! Certificates from the ACME server Pebble: issued, kept across a restart, renewed.

mod cluster;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::certs::{Authority, Pair, ecdsa, simple};
use crate::harness::{Client, Gateway, Options, Scratch, eventually, free_port, run};

/// Path of a tool that `scripts/deps.sh` builds with Go; `None` without Go.
fn tool(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(name);
    if path.exists() {
        return Some(path);
    }
    let has_go = Command::new("go").arg("version").stdout(Stdio::null()).status().is_ok();
    assert!(!has_go, "{} is not there: scripts/deps.sh test", path.display());
    yumen_test::missing_prerequisite("Pebble needs Go, which is not installed");
    None
}

/// A child process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process until the end of the test, with its output in the log.
fn begin(command: &mut Command, scratch: &Scratch) -> Ended {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(scratch.file("log")).unwrap();
    let errors = log.try_clone().unwrap();
    Ended(command.stdout(log).stderr(errors).spawn().expect("a tool of Go runs"))
}

/// An ACME server that validates on its own ports, with a name server that resolves every name to this
/// machine.
struct Pebble {
    scratch: Scratch,
    directory: String,
    ca: String,
    http: String,
    tls: String,
    listen: SocketAddr,
    program: Command,
    server: Option<Ended>,
    _names: Ended,
}

impl Pebble {
    fn start(more: &Value) -> Option<Pebble> {
        Pebble::start_with(more, ("PEBBLE_VA_NOSLEEP", "1"))
    }

    fn start_with(more: &Value, env: (&str, &str)) -> Option<Pebble> {
        let (pebble, names) = (tool("pebble")?, tool("pebble-challtestsrv")?);
        let [listen, manage, dns, dns_manage, http, tls] = [(); 6].map(|()| free_port());
        let scratch = Scratch::new();
        let authority = Authority::new("who vouches for Pebble");
        let own = authority.sign("pebble", &["127.0.0.1"], ecdsa());
        let mut settings = json!({
            "listenAddress": listen.to_string(),
            "managementListenAddress": manage.to_string(),
            "certificate": scratch.write("pebble.pem", own.cert),
            "privateKey": scratch.write("pebble.key", own.key),
            "httpPort": http.port(),
            "tlsPort": tls.port(),
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
        });
        for (name, value) in more.as_object().unwrap() {
            settings[name] = value.clone();
        }
        let config = scratch.write("pebble.json", json!({ "pebble": settings }).to_string());
        // This server only resolves names; the gateway itself answers the challenges.
        let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""];
        let (dns, dns_manage) = (dns.to_string(), dns_manage.to_string());
        let mut names = Command::new(names);
        names.args(["-dnsserver", &dns, "-management", &dns_manage, "-defaultIPv4", "127.0.0.1"]).args(off);
        let mut program = Command::new(pebble);
        // By default Pebble rejects one nonce in twenty, sometimes three in a row.
        program.args(["-config", &config, "-dnsserver", &dns]).env("PEBBLE_WFE_NONCEREJECT", "0");
        program.env(env.0, env.1);
        let names = begin(&mut names, &scratch);
        let mut pebble = Pebble {
            directory: format!("https://{listen}/dir"),
            ca: scratch.write("ca.pem", &authority.cert),
            scratch,
            http: http.to_string(),
            tls: tls.to_string(),
            listen,
            program,
            server: None,
            _names: names,
        };
        pebble.serve();
        Some(pebble)
    }

    /// Restarts the server without its accounts.
    fn serve(&mut self) {
        self.server = None;
        self.server = Some(begin(&mut self.program, &self.scratch));
        eventually("Pebble listens", 20, || std::net::TcpStream::connect(self.listen).is_ok());
    }

    /// Node settings that use the server.
    fn node(&self, challenge: &str, names: &str, more: &str) -> String {
        let Pebble { directory, ca, .. } = self;
        format!(
            "acme: {{directory: \"{directory}\", ca: {ca}, contact: [\"mailto:ops@shop.test\"], challenge: {challenge}, \
             certificates: [{{names: [{names}]}}]{more}}}\n"
        )
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.file("log")).unwrap_or_default()
    }
}

/// Issuer and serial number of the certificate for a name.
fn shown(gateway: &Gateway, name: &str) -> (String, String) {
    let address = gateway.https.to_string();
    let script = format!(
        "openssl s_client -connect {address} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -issuer -serial"
    );
    let (_, out, _) = run("sh", &["-c", &script]);
    let part = |key: &str| out.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
    (part("issuer="), part("serial="))
}

fn wait_for_certificate(gateway: &Gateway, pebble: &Pebble, name: &str) -> String {
    let mut serial = String::new();
    let logs = || format!("{}\n{}", gateway.log(), pebble.log());
    let started = std::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_secs(60) {
        let (issuer, found) = shown(gateway, name);
        if issuer.contains("Pebble") {
            serial = found;
            break;
        }
        // Pacing: each look is a process of openssl.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!serial.is_empty(), "no certificate of Pebble for {name}:\n{}", logs());
    serial
}

#[test]
fn a_certificate_is_fetched_renewed_and_kept_over_a_restart() {
    // A validity of 24 seconds, so that the renewal is due during the test.
    let short = json!({ "profiles": { "default": { "description": "short", "validityPeriod": 24 } } });
    let Some(mut pebble) = Pebble::start(&short) else { return };
    let node = pebble.node("http-01", "shop.test, www.shop.test", "") + "tls: {expiry_warning_days: 0}\n";
    let http = pebble.http.clone();
    let args = ["--listen", http.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let data = Scratch::new();
    let dir = data.path().display().to_string();
    let launch = || Gateway::launch(Scratch::new(), &options, &["--data-dir", &dir]);
    let mut gateway = launch();
    // A global rule must not block the validation by the ACME server.
    let refuse = json!({ "plugins": { "ip-restriction": { "blacklist": ["127.0.0.0/8"] } } }).to_string();
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let put = format!(
        "PUT /apisix/admin/global_rules/1?wait=applied HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\
         Content-Length: {}\r\n\r\n{refuse}",
        refuse.len()
    );
    assert_eq!(Client::connect(gateway.admin).send(put).reply().status, 201);
    let revision = gateway.revision();
    let first = wait_for_certificate(&gateway, &pebble, "shop.test");
    assert_eq!(shown(&gateway, "www.shop.test").1, first);
    eventually("the certificate is renewed", 60, || {
        let (issuer, serial) = shown(&gateway, "shop.test");
        issuer.contains("Pebble") && serial != first
    });
    // The challenge is gone, and the store contains nothing of it.
    assert_eq!(gateway.revision(), revision);
    assert_eq!(gateway.status_json("/yumen/v1/problems"), json!([]));
    // Without the server, only the stored certificate can be served.
    pebble.server = None;
    let last = shown(&gateway, "shop.test").1;
    let directory = data.file("acme");
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("sealed:") && !text.contains("PRIVATE"), "{}", file.display());
    }
    gateway.terminate();
    gateway.wait(10);
    assert_eq!(shown(&launch(), "shop.test").1, last);
}

#[test]
fn a_server_that_has_forgotten_the_account_is_given_another() {
    // A validity of 24 seconds, so that the renewal is due during the test.
    let short = json!({ "profiles": { "default": { "description": "short", "validityPeriod": 24 } } });
    let Some(mut pebble) = Pebble::start(&short) else { return };
    let node = pebble.node("http-01", "shop.test", "") + "tls: {expiry_warning_days: 0}\n";
    let http = pebble.http.clone();
    let args = ["--listen", http.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let gateway = Gateway::launch(Scratch::new(), &options, &["--data-dir", "data"]);
    let first = wait_for_certificate(&gateway, &pebble, "shop.test");
    let accounts = || stored_accounts(gateway.scratch.file("data/acme"));
    let before = accounts();
    // Pebble keeps accounts in memory only.
    pebble.serve();
    eventually("the certificate is renewed", 40, || {
        let (issuer, serial) = shown(&gateway, "shop.test");
        issuer.contains("Pebble") && serial != first
    });
    eventually("no problem is left", 10, || gateway.status_json("/yumen/v1/problems") == json!([]));
    assert!(gateway.log().contains("ACME account unknown to the server"), "{}", gateway.log());
    let after = accounts();
    assert_eq!(after.len(), 2, "the one before is set aside");
    assert_eq!((after[0].0.as_str(), &after[0].1), ("before", &before[0].1));
    assert_eq!(after[1].0, before[0].0);
    assert_ne!(after[1].1, before[0].1);
}

/// The ACME accounts in a directory: file extension and content.
fn stored_accounts(dir: impl AsRef<Path>) -> Vec<(String, String)> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let accounts = files.filter(|file| file.display().to_string().contains("acme-account-"));
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        (file.extension().unwrap().to_str().unwrap().to_owned(), text)
    };
    let mut all: Vec<_> = accounts.map(read).collect();
    all.sort();
    all
}

#[test]
fn an_account_that_cannot_be_opened_any_more_is_set_aside_for_another() {
    let Some(pebble) = Pebble::start(&json!({})) else { return };
    let node = pebble.node("http-01", "shop.test", "");
    let http = pebble.http.clone();
    let args = ["--listen", http.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let data = Scratch::new();
    let dir = data.path().display().to_string();
    let launch = || {
        let scratch = Scratch::new();
        let routes = scratch.write("routes.yaml", "routes: []\n");
        Gateway::launch(scratch, &options, &["--data-dir", &dir, "--file", &routes])
    };
    let mut gateway = launch();
    let first = wait_for_certificate(&gateway, &pebble, "shop.test");
    let before = stored_accounts(data.file("acme"));
    gateway.terminate();
    gateway.wait(10);
    // The stored account is encrypted by the keyring.
    std::fs::remove_file(data.file("keyring")).unwrap();
    let mut gateway = launch();
    let second = wait_for_certificate(&gateway, &pebble, "shop.test");
    assert_ne!(first, second);
    let after = stored_accounts(data.file("acme"));
    assert_eq!(after.len(), 2, "the one before is set aside");
    assert_eq!((after[0].0.as_str(), &after[0].1), ("before", &before[0].1));
    let problems = || gateway.status_json("/yumen/v1/problems").to_string();
    eventually("the missing key is reported", 10, || problems().contains("which the keyring does not hold"));
    gateway.terminate();
    gateway.wait(10);
    let gateway = launch();
    assert_eq!(wait_for_certificate(&gateway, &pebble, "shop.test"), second);
    eventually("nothing is told of it any more", 10, || {
        gateway.status_json("/yumen/v1/problems") == json!([])
    });
}

#[test]
fn an_order_is_finished_before_another_process_takes_over() {
    // A slow validation keeps the order in progress.
    let slow = Pebble::start_with(&json!({}), ("PEBBLE_VA_SLEEPTIME", "5"));
    let Some(pebble) = slow else { return };
    let node = pebble.node("http-01", "shop.test", "");
    let http = pebble.http.clone();
    let args = ["--listen", http.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let mut line = crate::upgrade::start_with(&json!({ "routes": [] }), &options);
    eventually("the server is about to look", 20, || pebble.log().contains("Starting 3 validations"));
    let output = line.ask(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("a certificate is being ordered"), "{output:?}");
    wait_for_certificate(&line.gateway, &pebble, "shop.test");
    let log = pebble.log();
    assert!(!log.contains("INVALID") && log.matches("Issued certificate").count() == 1, "{log}");
    line.upgrade();
}

#[test]
fn names_are_proved_by_certificates_and_accounts_tied_to_others() {
    let tied = json!({
        "externalAccountBindingRequired": true,
        "externalAccountMACKeys": { "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" },
    });
    let Some(pebble) = Pebble::start(&tied) else { return };
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let more = format!(", external_account: {{key_id: kid-1, key: {key}}}");
    let node = pebble.node("tls-alpn-01", "shop.test", &more);
    let tls = pebble.tls.clone();
    let args = ["--listen-tls", tls.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let gateway = Gateway::with(&json!({ "routes": [] }), &options);
    wait_for_certificate(&gateway, &pebble, "shop.test");
}

#[test]
fn a_server_that_refuses_is_told_as_a_problem() {
    let Some(pebble) = Pebble::start(&json!({ "domainBlocklist": ["shop.test"] })) else { return };
    let node = pebble.node("http-01", "shop.test", "");
    let gateway = Gateway::with(&json!({ "routes": [] }), &Options { node: &node, ..Options::default() });
    eventually("the refusal is told", 30, || {
        let problems = gateway.status_json("/yumen/v1/problems");
        let message = problems[0]["message"].as_str().unwrap_or_default().to_owned();
        message.contains("no certificate from https://127.0.0.1") && message.contains("shop.test")
    });
}

/// The status of a client for a name over TLS; `000` after a failed handshake.
fn status(gateway: &Gateway, name: &str, client_pair: Option<&Pair>) -> String {
    let resolve = format!("{name}:{}:127.0.0.1", gateway.https.port());
    let url = format!("https://{name}:{}/", gateway.https.port());
    let mut args = vec!["-sk", "--max-time", "20", "--resolve", &resolve, "-o", "/dev/null"];
    args.extend(["-w", "%{http_code}", &url]);
    let files = client_pair.map(|pair| {
        (gateway.scratch.write("who.pem", &pair.cert), gateway.scratch.write("who.key", &pair.key))
    });
    if let Some((cert, key)) = &files {
        args.extend(["--cert", cert, "--key", key]);
    }
    run("curl", &args).1.trim().to_owned()
}

#[test]
fn a_fetched_certificate_opens_no_name_that_asks_clients_for_theirs() {
    let Some(pebble) = Pebble::start(&json!({})) else { return };
    let people = Authority::new("people");
    let ada = people.issue_client("ada", 1, 2100);
    let own = simple("own", &["*.test"]);
    let route = json!({ "id": "1", "uri": "/*", "plugins": { "mocking": { "response_example": "x" } } });
    let document = |client: &Value| {
        let mut ssl = json!({ "id": "m", "cert": own.cert, "key": own.key, "snis": ["*.test", "*"] });
        if !client.is_null() {
            ssl["client"] = client.clone();
        }
        json!({ "routes": [route], "ssls": [ssl] })
    };
    let node = pebble.node("http-01", "shop.test", "");
    let http = pebble.http.clone();
    let args = ["--listen", http.as_str()];
    let options = Options { node: &node, args: &args, ..Options::default() };
    let client_section = json!({ "ca": people.cert });
    let gateway = Gateway::with(&document(&client_section), &options);
    wait_for_certificate(&gateway, &pebble, "shop.test");
    assert_eq!(status(&gateway, "shop.test", None), "000");
    assert_eq!(status(&gateway, "shop.test", Some(&ada)), "200");
    gateway.apply(&document(&Value::Null));
    assert_eq!(status(&gateway, "shop.test", None), "200", "the rules change with their object");
    gateway.apply(&document(&json!({ "ca": Authority::new("others").cert })));
    assert_eq!(status(&gateway, "shop.test", Some(&ada)), "000");
}
