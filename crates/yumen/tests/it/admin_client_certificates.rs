//! Client certificates of the admin listener, and the command line that presents one.

use std::process::Command;

use crate::harness::certs::{Authority, Pair, ecdsa};
use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Scratch};
use crate::upgrade::Line;

const KEY: &str = "0123456789abcdef";

/// Files of a gateway whose admin listener requires client certificates.
struct CertificateFiles {
    ca: String,
    known: (String, String),
    unknown: (String, String),
    /// The authority of the unknown client.
    others: Authority,
}

fn write(scratch: &Scratch, name: &str, pair: &Pair) -> (String, String) {
    let cert = scratch.write(&format!("{name}.pem"), &pair.cert);
    (cert, scratch.write(&format!("{name}.key"), &pair.key))
}

fn gateway() -> (Gateway, CertificateFiles) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (scratch, others) = (Scratch::new(), Authority::new("others"));
    let own = write(&scratch, "own", &servers.sign("admin", &["127.0.0.1"], ecdsa()));
    let files = CertificateFiles {
        ca: scratch.write("servers.pem", &servers.cert),
        known: write(&scratch, "known", &clients.issue_client("ann", 1, 2100)),
        unknown: write(&scratch, "unknown", &others.issue_client("eve", 1, 2100)),
        others,
    };
    let client_ca = scratch.write("clients.pem", &clients.cert);
    let node = format!(
        "admin:\n  keys: [{{name: ann, key: {KEY}}}]\n  tls: {{certificate: {}, key: {}, client_ca: {client_ca}}}\n",
        own.0, own.1
    );
    let options = Options { node: &node, ..Options::default() };
    (Gateway::launch(scratch, &options, &["--data-dir", "data"]), files)
}

/// Exit status, output and errors of `yumen problems` with these further arguments and variables.
fn problems(gateway: &Gateway, more: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let url = format!("https://{}", gateway.admin);
    let output = Command::new(YUMEN)
        .args(["problems", "--admin", &url, "--key", KEY])
        .args(more)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// The status of a request with this client certificate and this key; `000` without a response.
fn status(gateway: &Gateway, files: &CertificateFiles, pair: Option<&(String, String)>, key: &str) -> String {
    let url = format!("https://{}/apisix/admin/routes", gateway.admin);
    let key = format!("X-API-KEY: {key}");
    let mut command = Command::new("curl");
    command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &files.ca, "-H", &key, &url]);
    command.args(pair.into_iter().flat_map(|(cert, key)| ["--cert", cert, "--key", key]));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn admin_listener_admits_only_clients_with_a_certificate() {
    let (gateway, files) = gateway();
    assert_eq!(status(&gateway, &files, Some(&files.known), KEY), "200");
    // A certificate does not replace the key.
    assert_eq!(status(&gateway, &files, Some(&files.known), "none"), "401");
    for pair in [None, Some(&files.unknown)] {
        assert_eq!(status(&gateway, &files, pair, KEY), "000");
    }
}

#[test]
fn upgrade_reads_the_authorities_of_clients_again() {
    let (gateway, files) = gateway();
    let mut line = Line::of(gateway);
    line.gateway.scratch.write("clients.pem", &files.others.cert);
    assert_eq!(status(&line.gateway, &files, Some(&files.known), KEY), "200");
    line.upgrade();
    assert_eq!(status(&line.gateway, &files, Some(&files.unknown), KEY), "200");
    assert_eq!(status(&line.gateway, &files, Some(&files.known), KEY), "000");
}

#[test]
fn commands_present_a_certificate_from_flags_or_variables() {
    let (gateway, files) = gateway();
    let (cert, key) = &files.known;
    let flags = ["--ca", &files.ca, "--cert", cert, "--cert-key", key];
    let (status, text) = problems(&gateway, &flags, &[]);
    assert_eq!((status, text.as_str()), (0, "no problems\n"));
    let variables =
        [("YUMEN_ADMIN_CA", files.ca.as_str()), ("YUMEN_ADMIN_CERT", cert), ("YUMEN_ADMIN_CERT_KEY", key)];
    let (status, text) = problems(&gateway, &[], &variables);
    assert_eq!((status, text.as_str()), (0, "no problems\n"));

    let (status, text) = problems(&gateway, &["--ca", &files.ca], &[]);
    assert_eq!(status, 2, "{text}");
    for (flags, message) in [
        (vec!["--ca", &files.ca, "--cert", cert], "--cert-key"),
        (vec!["--ca", &files.ca, "--cert", key, "--cert-key", key], "no PEM certificate"),
        (vec!["--ca", &files.ca, "--cert", cert, "--cert-key", cert], "no PEM private key"),
        (vec!["--ca", "/nonexistent"], "cannot read /nonexistent"),
    ] {
        let (status, text) = problems(&gateway, &flags, &[]);
        assert!(status != 0 && text.contains(message), "{flags:?}: {text}");
    }
}
