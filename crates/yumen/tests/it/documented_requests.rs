//! Requests of APISIX's documentation, answered as its pages say.
//!
//! One table per group of pages. Bodies set every member that the pages set; a written object is returned as it was
//! written.

mod ai_and_serverless;
mod authentication;
mod control;
mod loggers;
mod objects;
mod schemas;
mod standalone;
mod traffic;
mod transformation;

use serde_json::{Map, Value};

use crate::harness::{Client, Gateway, Options, Scratch};

const KEY: &str = "edd1c9f034335f136f87ad84b625c8f1";

/// A request, its body, the status, and members of the response as a JSON object by pointer, or nothing.
type DocumentedRequest<'a> = (&'a str, &'a str, u16, &'a str);

/// A gateway with an empty store, a stream listener, and variables that pages refer to.
fn gateway() -> Gateway {
    let node = format!(
        "admin: {{keys: [{{name: docs, key: {KEY}}}]}}\nstream_listen: [{{address: \"127.0.0.1:0\"}}]\n"
    );
    let options = Options {
        node: &node,
        env: &[("DOCUMENTED_SECRET", "a-secret-of-some-length")],
        ..Options::default()
    };
    Gateway::launch(Scratch::new(), &options, &["--data-dir", "data"])
}

/// Sends a request to the admin listener; `fields` end with CRLF each.
fn send(gateway: &Gateway, request: &str, fields: &str, body: &str) -> (u16, Value, String) {
    let (method, path) = request.split_once(' ').unwrap();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/apisix/admin/{path}") };
    let reply = Client::connect(gateway.admin)
        .send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nX-API-KEY: {KEY}\r\n{fields}Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            gateway.admin,
            body.len()
        ))
        .try_reply(method == "HEAD")
        .unwrap();
    let value = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status, value, reply.head)
}

fn check(gateway: &Gateway, requests: &[DocumentedRequest<'_>]) {
    for (request, body, status, members) in requests {
        let (found, response, _) = send(gateway, request, "", body);
        assert_eq!(found, *status, "{request} {body}\n{response}");
        let expected: Map<String, Value> = match *members {
            "" => Map::new(),
            members => serde_json::from_str(members).unwrap(),
        };
        for (pointer, value) in expected {
            assert_eq!(response.pointer(&pointer), Some(&value), "{request} {pointer}\n{response}");
        }
        if matches!(request.split(' ').next(), Some("PUT" | "POST")) && status / 100 == 2 {
            assert_is_returned(request, body, &response);
        }
    }
}

/// A written object is returned with the members that were written.
fn assert_is_returned(request: &str, body: &str, response: &Value) {
    let Ok(Value::Object(written)) = serde_json::from_str(body) else { return };
    let Some(returned) = response.get("value") else { return };
    for (member, value) in written {
        assert_eq!(returned.get(&member), Some(&value), "{request} {member}\n{response}");
    }
}

/// Writes a route with each plugin and these settings, and reads the description of the plugin. A plugin that does not
/// run is a problem of its route (decisions 40 and 50).
fn check_plugins(plugins: &[(&str, &str)]) {
    let gateway = gateway();
    let (_, described, _) = send(&gateway, "GET plugins?all=true", "", "");
    for (at, (name, settings)) in plugins.iter().enumerate() {
        let id = format!("{name}-{at}");
        let body = format!(r#"{{"uri":"/{id}","plugins":{{"{name}":{settings}}},"upstream_id":"u"}}"#);
        let upstream = r#"{"nodes":{"127.0.0.1:1980":1}}"#;
        assert!(matches!(send(&gateway, "PUT upstreams/u", "", upstream).0, 200 | 201));
        check(&gateway, &[(&format!("PUT routes/{id}?wait=applied"), &body, 201, "")]);
        let (status, schema, _) = send(&gateway, &format!("GET schema/plugins/{name}"), "", "");
        assert_eq!((status, &schema["type"]), (200, &Value::from("object")), "{name}");
        let inactive = described[name].get("inactive") == Some(&Value::Bool(true));
        let (_, problems, _) = send(&gateway, "GET /yumen/v1/problems", "", "");
        let named = problems.as_array().unwrap().iter().any(|one| one["object"] == format!("routes/{id}"));
        assert!(named || !inactive, "{name} does not run, and no problem says so: {problems}");
    }
}

/// Writes metadata of each plugin; tools find its form in the description of the plugin.
fn check_metadata(plugins: &[(&str, &str)]) {
    let gateway = gateway();
    let (_, described, _) = send(&gateway, "GET plugins?all=true", "", "");
    for (name, metadata) in plugins {
        check(&gateway, &[(&format!("PUT plugin_metadata/{name}"), metadata, 201, "")]);
        let written: Map<String, Value> = serde_json::from_str(metadata).unwrap();
        for member in written.keys() {
            let property = &described[name]["metadata_schema"]["properties"][member];
            assert!(property.is_object(), "{name}: no property {member} in {}", described[name]);
        }
    }
}
