//! Options of `yumen proxy`: the resources that they stand for, and their refusals.

use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct TestCommand {
    #[command(flatten)]
    args: ProxyArgs,
}

fn parse(line: &str) -> Result<ProxyArgs, String> {
    let words = std::iter::once("proxy").chain(line.split_whitespace());
    TestCommand::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
}

fn check(line: &str, expected: Value) {
    let args = parse(line).expect("the options are valid");
    let document: Value = serde_yaml_ng::from_str(&document(&args).expect("a document")).expect("YAML");
    let upstream = &document["routes"][0]["upstream"];
    for (name, value) in expected.as_object().expect("members") {
        assert_eq!(&upstream[name], value, "{name} of {line}\n{upstream}");
    }
}

fn check_refused(line: &str, expected: &str) {
    let refused = parse(line).and_then(|args| document(&args).map_err(|error| format!("{error:#}")));
    let error = refused.expect_err(line);
    assert!(error.contains(expected), "{line}:\n{error}");
}

fn node(host: &str, port: u16) -> Value {
    json!({ "host": host, "port": port, "weight": 1 })
}

#[test]
fn targets_become_nodes_of_one_upstream() {
    check(
        "--from :8080 --to 127.0.0.1:9000 --to :9001 --to localhost",
        json!({
            "scheme": "http", "pass_host": "pass", "tls": null,
            "nodes": [node("127.0.0.1", 9000), node("127.0.0.1", 9001), node("localhost", 80)],
        }),
    );
    check("--from :8080 --to http://[::1]:9000/", json!({ "nodes": [node("[::1]", 9000)] }));
    check("--from :8080 --to grpc://127.0.0.1:50051", json!({ "scheme": "grpc", "pass_host": "pass" }));
}

#[test]
fn https_targets_are_verified_under_their_name() {
    check(
        "--from :8080 --to https://Api.Example.com",
        json!({
            "scheme": "https", "pass_host": "node", "tls": { "verify": true },
            "nodes": [node("api.example.com", 443)],
        }),
    );
    check(
        "--from :8080 --to https://api.example.com --host keep",
        json!({ "pass_host": "pass", "tls": { "verify": true, "server_name": "api.example.com" } }),
    );
    check("--from :8080 --to https://127.0.0.1:8443 --insecure", json!({ "tls": { "verify": false } }));
    check(
        "--from :8080 --to https://a.example.com --host b.example.com",
        json!({ "pass_host": "rewrite", "upstream_host": "b.example.com" }),
    );
}

#[test]
fn unusable_options_are_refused_with_the_remedy() {
    check_refused("--to :9000", "--from <ADDR>");
    check_refused("--from :8080", "--to <URL>");
    check_refused("--from 8080 --to :9000", "write 127.0.0.1:8080");
    check_refused("--from tcp://:8080 --to :9000", "http or https, not tcp");
    check_refused("--from :8080 --to ftp://a", "write http, https, grpc or grpcs");
    check_refused("--from :8080 --to 9000", "write :9000 or 127.0.0.1:9000");
    check_refused("--from :8080 --to ::1:9000", "brackets");
    check_refused("--from :8080 --to [::1", "not closed");
    check_refused("--from :8080 --to [nine]:80", "not an IPv6 address");
    check_refused("--from :8080 --to 127.0.0.1:0", "from 1 to 65535");
    check_refused("--from :8080 --to 127.0.0.1:90000", "from 1 to 65535");
    check_refused("--from :8080 --to http://a/b", "a target has no path");
    check_refused("--from :8080 --to http://me@a", "a target has no user");
    check_refused("--from :8080 --to a$b:1", "not a host name");
    check_refused("--from :8080 --to https://a --to http://b", "one scheme");
    check_refused("--from :8080 --to http://b --insecure", "leave it out");
    check_refused("--from :8080 --to http://b --host a/b", "keep, rewrite, or a host name");
}
