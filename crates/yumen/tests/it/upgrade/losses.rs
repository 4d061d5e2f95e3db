//! An upgrade that would lose configuration is refused, whatever the cause.

use serde_json::{Value, json};

use super::store::{ask, embedded, executable};
use super::{Line, start};
use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Scratch, eventually};

fn mock(id: &str) -> Value {
    json!({"id": id, "uri": format!("/{id}"), "plugins": {"mocking": {"response_example": id}}})
}

/// A document with its end marker.
fn ended(document: &Value) -> String {
    format!("{document}\n#END\n")
}

/// A script that starts the gateway on another file.
fn on_file(line: &Line, file: &str) -> String {
    let any = "127.0.0.1:0";
    let script = format!(
        "#!/bin/sh\nexec {YUMEN} run --config yumen.yaml --workers 1 --listen {any} --listen-tls {any} \
         --admin {any} --status {any} --file {file}\n"
    );
    executable(line, "on-another-file", &script)
}

/// Requests an upgrade that must be refused for this reason, without an effect on routes.
fn refused(line: &Line, arguments: &[&str], reason: &str) {
    let before = line.serving();
    let output = line.ask(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{output:?}\n{}", line.gateway.log());
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!(line.serving(), before);
    assert_eq!(line.gateway.get("/a").status, 200);
}

#[test]
fn a_resource_file_the_new_process_cannot_use_replaces_none_that_is_in_force() {
    let line = start(&json!({"routes": [mock("a")]}), "");
    let failing = json!({"id": "t", "request": {"url": "http://x/y"}, "expect": {"route": "z"}});
    let failing = json!({"routes": [mock("a")], "tests": [failing]}).to_string();
    for (text, reason) in [("routes: [\n#END\n", "file: "), (&*failing, "tests/t: ")] {
        line.gateway.scratch.write("other.yaml", text);
        refused(&line, &["--binary", &on_file(&line, "other.yaml")], reason);
    }
}

#[test]
fn a_file_that_is_half_written_is_not_taken_for_a_whole_one_by_the_new_process() {
    let whole = ended(&json!({"routes": [mock("a"), mock("b")]}));
    let line = start(&json!({"routes": [mock("a")]}), "");
    for text in ["", "routes:\n - {id: a, uri: /a}\n", "routes:\n - {id: a, uri"] {
        line.gateway.scratch.write("routes.yaml", &whole);
        eventually("the whole file is in force", 10, || line.gateway.get("/b").status == 200);
        line.gateway.scratch.write("routes.yaml", text);
        refused(&line, &[], "lost its last line #END");
        assert_eq!(line.gateway.get("/b").status, 200);
    }
}

#[test]
fn what_was_deleted_from_the_file_is_no_loss_and_what_another_file_lacks_is() {
    let mut line = start(&json!({"routes": [mock("a"), mock("b")]}), "");
    line.gateway.edit(&json!({"routes": [mock("a")]}));
    line.upgrade();
    eventually("it is gone", 10, || line.gateway.get("/b").status == 404);
    line.gateway.scratch.write("other.yaml", json!({"routes": [mock("b")]}).to_string());
    let other = on_file(&line, "other.yaml");
    refused(&line, &["--binary", &other], "routes/a: the new process does not have it");
    let before = line.serving();
    let output = line.ask(&["--binary", &other, "--force"]);
    assert!(output.status.success(), "{output:?}");
    eventually("the new process answers", 10, || line.serving() != before);
    eventually("with what is in its file", 10, || line.gateway.get("/b").status == 200);
}

#[test]
fn a_store_that_was_moved_is_not_replaced_by_an_empty_one() {
    let (line, key) = embedded("upgrade: {socket: upgrade.sock}");
    let route = mock("a").to_string();
    let put = format!(
        "PUT /apisix/admin/routes/a?wait=applied HTTP/1.1\r\nHost: a\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{route}",
        route.len()
    );
    let write = || crate::harness::Client::connect(line.gateway.admin).send(&put).reply();
    assert_eq!(write().status, 201);
    let (data, moved) = (line.gateway.scratch.file("data"), line.gateway.scratch.file("moved"));
    std::fs::rename(&data, &moved).unwrap();
    refused(&line, &[], "there is no store in data");
    assert!(!data.exists(), "none was begun");
    let reply = write();
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.text().contains("was moved or deleted"), "{reply:?}");
    let problems = || line.gateway.status_json("/yumen/v1/problems").to_string();
    eventually("it is told as a problem", 10, || problems().contains("was moved or deleted"));
    std::fs::rename(&moved, &data).unwrap();
    assert_eq!(write().status, 200, "it is back");
    eventually("the problem is over", 10, || problems() == "[]");
    assert_eq!(ask(&line, &key, "GET", "/apisix/admin/routes/a").status, 200);
}

#[test]
fn a_file_that_cannot_be_used_at_the_start_leaves_nothing_in_force_and_that_is_said() {
    let scratch = Scratch::new();
    let routes = scratch.write("routes.yaml", "routes: [");
    let gateway = Gateway::launch(scratch, &Options::default(), &["--file", &routes]);
    let problem = gateway.status_json("/yumen/v1/problems")[0].clone();
    assert_eq!((&problem["object"], &problem["last_good"]), (&json!("file"), &Value::Null), "{problem}");
    assert!(gateway.log().contains("resource file invalid, no configuration active"), "{}", gateway.log());
    gateway.edit(&json!({"routes": [mock("a")]}));
    eventually("it is mended", 10, || gateway.get("/a").status == 200);
    gateway.scratch.write("routes.yaml", "routes: [");
    eventually("the last good one stays", 10, || {
        gateway.status_json("/yumen/v1/problems")[0]["last_good"] == true
    });
    assert_eq!(gateway.get("/a").status, 200);
}
