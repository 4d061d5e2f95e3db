//! Messages of the contract, and agreement with the compiler.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::ProblemLevel;
use yumen_config::{Kind, Resource};
use yumen_plugin::Carry;
use yumen_plugin::kind::NodeFacts;
use yumen_snapshot::compile::{Compiler, CompilerEnv, ConfigChange, UpstreamDefaults};

use crate::api::AdminState;
use crate::testing::{load_certificate, state};

/// The message of the refusal.
fn object(state: &AdminState, kind: Kind, value: &Value) -> Result<(), String> {
    super::object(state, kind, value).map_err(|refused| refused.message)
}

/// An empty message means acceptance.
fn check(kind: Kind, value: Value, message: &str) {
    let expected = if message.is_empty() { Ok(()) } else { Err(message.to_owned()) };
    assert_eq!(object(&state(), kind, &value), expected, "{} {value}", kind.name());
}

fn route_with(more: Value) -> Value {
    let mut route = json!({ "uri": "/a", "upstream": { "nodes": { "127.0.0.1:80": 1 } } });
    for (name, value) in more.as_object().unwrap() {
        route[name] = value.clone();
    }
    route
}

fn with_plugin(name: &str, settings: Value) -> Value {
    route_with(json!({ "plugins": { name: settings } }))
}

#[test]
fn schema_errors_use_the_words_of_apisix() {
    let invalid = |message: &str| format!("invalid configuration: {message}");
    let of =
        |field: &str, message: &str| invalid(&format!("property \"{field}\" validation failed: {message}"));
    let table = [
        (json!({ "priority": "high" }), of("priority", "wrong type: expected integer, got string")),
        (json!({ "name": "" }), of("name", "string too short, expected at least 1, got 0")),
        (json!({ "desc": "d".repeat(257) }), of("desc", "string too long, expected at most 256, got 257")),
        (json!({ "unknown": 1 }), invalid("additional properties forbidden, found unknown")),
        (json!({ "status": 2 }), of("status", "matches none of the enum values")),
        (
            json!({ "methods": ["GET", "GET"] }),
            of("methods", "expected unique items but items 1 and 2 are equal"),
        ),
        (
            json!({ "methods": ["GET", "FETCH"] }),
            of("methods", "failed to validate item 2: matches none of the enum values"),
        ),
        (json!({ "hosts": [] }), of("hosts", "expect array to have at least 1 items")),
        (
            json!({ "host": "a b" }),
            of("host", r#"failed to match pattern "^\\*$|^\\*?[0-9a-zA-Z-._\\[\\]:]+$" with "a b""#),
        ),
        (
            json!({ "timeout": { "connect": 0, "send": 1, "read": 1 } }),
            of("timeout", "property \"connect\" validation failed: expected 0 to be greater than 0"),
        ),
        (json!({ "timeout": { "connect": 1, "send": 1 } }), of("timeout", "property \"read\" is required")),
        (json!({ "id": "a b" }), of("id", "object matches none of the required")),
        (
            json!({ "labels": { "a": "b c" } }),
            of(
                "labels",
                r#"failed to validate a (matching ".*"): failed to match pattern "^\\S+$" with "b c""#,
            ),
        ),
        (
            json!({ "uris": ["/b"] }),
            invalid("allOf 1 failed: value should match only one schema, but matches both schemas 1 and 2"),
        ),
        (json!({ "host": "a", "hosts": ["b"] }), "only one of host or hosts is allowed".to_owned()),
        (
            json!({ "remote_addr": "::1", "remote_addrs": [] }),
            "only one of remote_addr or remote_addrs is allowed".to_owned(),
        ),
        (json!({ "upstream": { "nodes": { "127.0.0.1:0": 1 } } }), "invalid port 0".to_owned()),
        (json!({ "upstream": { "nodes": { "a:65536": 1 } } }), "invalid port 65536".to_owned()),
        (json!({ "upstream": { "type": "chash", "nodes": { "a:1": 1 } } }), "missing key".to_owned()),
        (
            json!({ "upstream": { "type": "chash", "hash_on": "cookie", "key": "a b", "nodes": { "a:1": 1 } } }),
            invalid(r#"failed to match pattern "^[a-zA-Z0-9-_]+$" with "a b""#),
        ),
        (
            json!({ "upstream": { "pass_host": "rewrite", "nodes": { "a:1": 1 } } }),
            "`upstream_host` can't be empty when `pass_host` is `rewrite`".to_owned(),
        ),
        (json!({ "remote_addr": "10.0.0" }), of("remote_addr", "object matches none of the required")),
        (
            json!({ "remote_addrs": ["10.0.0.1", "x"] }),
            of("remote_addrs", "failed to validate item 2: object matches none of the required"),
        ),
        (
            json!({ "vars": [["arg_x", "??", "1"]] }),
            "failed to validate the 'vars' expression: invalid operator '??'".to_owned(),
        ),
        (json!({ "vars": [["arg_x", "==", "1"]], "remote_addr": "10.0.0.0/8" }), String::new()),
    ];
    for (more, message) in table {
        check(Kind::Routes, route_with(more), &message);
    }
}

#[test]
fn plugin_errors_use_the_words_of_apisix() {
    let err = |name: &str, message: &str| {
        format!("failed to check the configuration of plugin {name} err: {message}")
    };
    let table = [
        (with_plugin("nonesuch", json!({})), "unknown plugin [nonesuch]".to_owned()),
        (
            with_plugin("limit-count", json!({ "count": "x y", "time_window": 0 })),
            err("limit-count", "property \"time_window\" validation failed: "),
        ),
        (
            with_plugin("key-auth", json!("open sesame")),
            "invalid plugin conf for plugin [key-auth]: expected object, got string".to_owned(),
        ),
        (
            with_plugin("mocking", json!({ "_meta": { "disable": "yes" } })),
            err(
                "mocking",
                concat!(
                    "property \"_meta\" validation failed: property \"disable\" validation failed: ",
                    "wrong type: expected boolean, got string"
                ),
            ),
        ),
        (
            with_plugin("rocketmq-logger", json!({ "_meta": { "priorty": 1 } })),
            err(
                "rocketmq-logger",
                "property \"_meta\" validation failed: additional properties forbidden, found priorty",
            ),
        ),
        (with_plugin("key-auth", json!({ "_meta": { "disable": true, "priorty": 1 } })), String::new()),
        (
            with_plugin("key-auth", json!({ "_meta": { "filter": [["a", "??", 1]] } })),
            "failed to validate the 'vars' expression: invalid operator '??'".to_owned(),
        ),
        (with_plugin("limit-count", json!({ "count": -1, "_meta": { "disable": true } })), String::new()),
        (with_plugin("saml-auth", json!({ "anything": true })), String::new()),
        (with_plugin("key-auth", json!({})), String::new()),
        (with_plugin("key-auth", json!([])), String::new()),
    ];
    for (value, message) in table {
        let found = object(&state(), Kind::Routes, &value).err().unwrap_or_default();
        // The schema's own tests cover the messages of branches.
        let is_reported = match message.ends_with(": ") {
            true => found.starts_with(&message),
            false => found == message,
        };
        assert!(is_reported, "{value}\nfound    {found}\nexpected {message}");
    }
}

#[test]
fn exported_object_with_an_unknown_meta_member_can_be_restored() {
    let value = with_plugin("key-auth", json!({ "_meta": { "priorty": 1 } }));
    assert_eq!(super::restorable_object(&state(), Kind::Routes, &value), Ok(()));
}

#[test]
fn consumers_and_credentials_hold_settings_of_their_own() {
    let missing = concat!(
        "invalid plugins configuration: failed to check the configuration of plugin key-auth err: ",
        "property \"key\" is required"
    );
    let of = |plugins: Value| json!({ "username": "jack", "plugins": plugins });
    check(Kind::Consumers, of(json!({ "key-auth": { "key": "k" } })), "");
    check(Kind::Consumers, of(json!({ "key-auth": {} })), missing);
    check(
        Kind::Consumers,
        of(json!({ "key-auth": { "key": "k" }, "basic-auth": {} })),
        concat!(
            "invalid plugins configuration: failed to check the configuration of plugin basic-auth err: ",
            "property \"username\" is required"
        ),
    );
    check(
        Kind::Consumers,
        of(json!({ "nonesuch": {} })),
        "invalid plugins configuration: unknown plugin [nonesuch]",
    );
    check(
        Kind::Consumers,
        json!({ "plugins": {} }),
        "invalid configuration: property \"username\" is required",
    );
    let of = |plugins: Value| json!({ "id": "jack/credentials/c1", "plugins": plugins });
    check(Kind::Credentials, of(json!({ "key-auth": { "key": "k" } })), "");
    check(Kind::Credentials, of(json!({ "ldap-auth": { "user_dn": "cn=k" } })), "");
    check(Kind::Credentials, of(json!({ "jwt-auth": { "key": "k", "secret": "s" } })), "");
    check(Kind::Credentials, of(json!({ "key-auth": {} })), missing);
    check(
        Kind::Credentials,
        of(json!({ "limit-count": { "count": 1, "time_window": 1 } })),
        "only supports auth type plugins in consumer credential",
    );
    check(
        Kind::Credentials,
        of(json!({ "key-auth": { "key": "k" }, "basic-auth": { "username": "u", "password": "p" } })),
        "invalid configuration: property \"plugins\" validation failed: expect object to have at most 1 properties",
    );
}

#[test]
fn certificates_secrets_metadata_and_protos_have_their_rules() {
    let pem = |word: &str| format!("{word}{}", "x".repeat(128));
    let ssl = |cert: &str, more: Value| {
        let mut ssl = json!({ "sni": "a.example", "cert": pem(cert), "key": pem("good") });
        for (name, value) in more.as_object().unwrap() {
            ssl[name] = value.clone();
        }
        ssl
    };
    let pair = |cert: &str| json!({ "certs": [pem(cert)], "keys": [pem("good")] });
    let table = [
        (Kind::Ssls, ssl("good", json!({})), ""),
        (Kind::Ssls, ssl("bad", json!({})), "failed to parse cert: not a certificate"),
        (Kind::Ssls, ssl("good", pair("good")), ""),
        (
            Kind::Ssls,
            ssl("good", pair("bad")),
            "failed to handle cert-key pair[1]: failed to parse cert: not a certificate",
        ),
        (Kind::Ssls, ssl("good", json!({ "certs": [pem("good")] })), "mismatched number of certs and keys"),
        (Kind::Ssls, json!({ "sni": "a", "cert": "$env://CERT", "key": "$env://KEY" }), ""),
        (
            Kind::Secrets,
            json!({ "id": "vault/1", "uri": "http://127.0.0.1:8200", "prefix": "kv", "token": "t" }),
            "",
        ),
        (
            Kind::Secrets,
            json!({ "id": "vault/1", "uri": "http://127.0.0.1:8200" }),
            "invalid configuration: property \"prefix\" is required",
        ),
        (
            Kind::Secrets,
            json!({ "id": "gcp/1" }),
            "invalid configuration: value should match only one schema, but matches none",
        ),
        (Kind::Secrets, json!({ "id": "safe/1" }), "invalid secret manager: safe"),
        (Kind::PluginMetadata, json!({ "id": "cors", "allow_origins": { "a": "https://a.example" } }), ""),
        (
            Kind::PluginMetadata,
            json!({ "id": "cors", "allow_origins": 1 }),
            "invalid configuration: property \"allow_origins\" validation failed: wrong type: expected object, got number",
        ),
        (Kind::PluginMetadata, json!({ "id": "opentelemetry", "any": 1 }), ""),
        (Kind::Protos, json!({ "id": 1, "content": "syntax = \"proto3\";" }), ""),
        (
            Kind::Protos,
            json!({ "content": "x".repeat(1_048_577) }),
            "invalid configuration: property \"content\" validation failed: string too long, expected at most 1048576, got 1048577",
        ),
        (Kind::StreamRoutes, json!({ "server_port": 9100, "upstream_id": 1 }), ""),
        (
            Kind::StreamRoutes,
            json!({ "upstream_id": 1, "plugins": { "mqtt-proxy": { "protocol_level": 4 } } }),
            "",
        ),
        (
            Kind::Ssls,
            json!({ "sni": "a", "cert": pem("good") }),
            "invalid configuration: then clause did not match",
        ),
        (
            Kind::Ssls,
            json!({ "type": "client", "key": pem("good") }),
            "invalid configuration: else clause did not match",
        ),
        (
            Kind::StreamRoutes,
            json!({ "remote_addr": "10.0.0" }),
            "invalid configuration: property \"remote_addr\" validation failed: object matches none of the required",
        ),
        (Kind::StreamRoutes, json!({ "remote_addr": ":/8" }), "invalid remote_addr: :/8"),
        (Kind::StreamRoutes, json!({ "server_addr": "::1/129" }), "invalid server_addr: ::1/129"),
        (
            Kind::StreamRoutes,
            json!({ "plugins": { "ip-restriction": { "whitelist": [] } } }),
            concat!(
                "failed to check the configuration of stream plugin [ip-restriction]: ",
                "property \"whitelist\" validation failed: expect array to have at least 1 items"
            ),
        ),
        (
            Kind::StreamRoutes,
            json!({ "server_port": 0 }),
            "invalid configuration: property \"server_port\" validation failed: expected 0 to be at least 1",
        ),
    ];
    for (kind, value, message) in table {
        check(kind, value, message);
    }
}

#[test]
fn unusable_upstream_certificate_is_refused_in_every_object() {
    let pem = |word: &str| format!("{word}{}", "x".repeat(128));
    let upstream = |cert: &str, key: &str| {
        let tls = json!({ "client_cert": pem(cert), "client_key": pem(key) });
        json!({ "scheme": "https", "nodes": { "127.0.0.1:443": 1 }, "tls": tls })
    };
    let split = |upstream: Value, is_off: bool| {
        let rules = json!([{ "weighted_upstreams": [{}, { "upstream": upstream }] }]);
        json!({ "traffic-split": { "rules": rules, "_meta": { "disable": is_off } } })
    };
    let bad = || upstream("good", "bad");
    let inside = "plugins.traffic-split.rules[0].weighted_upstreams[1].upstream.tls.client_key";
    for (kind, value, path) in [
        (Kind::Upstreams, bad(), "tls.client_key"),
        (Kind::Routes, json!({ "uri": "/", "upstream": bad() }), "upstream.tls.client_key"),
        (Kind::Services, json!({ "upstream": bad() }), "upstream.tls.client_key"),
        (Kind::StreamRoutes, json!({ "upstream": bad() }), "upstream.tls.client_key"),
        (Kind::PluginConfigs, json!({ "id": "p", "plugins": split(bad(), false) }), inside),
    ] {
        check(kind, value, &format!("failed to parse key: {path}: the private key is not PEM: not a key"));
    }
    let message = "failed to parse cert: tls.client_cert: not a certificate";
    check(Kind::Upstreams, upstream("bad", "good"), message);
    check(Kind::Upstreams, upstream("good", "good"), "");
    check(Kind::PluginConfigs, json!({ "id": "p", "plugins": split(bad(), true) }), "");
}

/// Valid objects of every kind, rich enough that mutations reach every rule.
fn good() -> Vec<(Kind, Value)> {
    let upstream = json!({
        "nodes": [{ "host": "127.0.0.1", "port": 80, "weight": 1, "priority": 0 }],
        "type": "chash", "hash_on": "vars", "key": "remote_addr", "retries": 1, "scheme": "http",
        "pass_host": "rewrite", "upstream_host": "a.example",
        "timeout": { "connect": 1, "send": 1.5, "read": 2 },
        "keepalive_pool": { "size": 3, "idle_timeout": 4, "requests": 5 },
        "checks": { "active": { "http_path": "/ok", "healthy": { "interval": 1 } } },
    });
    let plugins = json!({
        "limit-count": { "count": 2, "time_window": 60, "_meta": { "priority": 7 } },
        "proxy-rewrite": { "uri": "/b", "headers": { "set": { "X-A": "1" } } },
        "cors": {}, "key-auth": {}, "saml-auth": { "a": 1 },
        "ip-restriction": { "whitelist": ["10.0.0.0/8"] },
        "limit-req": { "rate": 1, "burst": 2, "key": "remote_addr" },
        "response-rewrite": { "status_code": 201, "_meta": { "filter": [["arg_a", "==", "1"]] } },
    });
    let pem = "x".repeat(130);
    vec![
        (
            Kind::Routes,
            json!({
                "id": "r", "uri": "/a/*", "host": "a.example", "methods": ["GET", "PUT"], "priority": 3,
                "remote_addrs": ["10.0.0.0/8", "::1"], "vars": [["arg_a", "!", "in", ["b", "c"]]],
                "upstream": upstream, "plugins": plugins, "labels": { "a": "b" }, "status": 1,
            }),
        ),
        (
            Kind::Services,
            json!({ "id": 1, "hosts": ["a.example"], "upstream": upstream, "plugins": plugins }),
        ),
        (Kind::Upstreams, upstream.clone()),
        (
            Kind::Consumers,
            json!({ "username": "jack", "plugins": { "key-auth": { "key": "k" }, "cors": {} }, "labels": { "a": "b" } }),
        ),
        (
            Kind::Credentials,
            json!({ "id": "c", "plugins": { "basic-auth": { "username": "u", "password": "p" } } }),
        ),
        (Kind::PluginConfigs, json!({ "id": "p", "plugins": plugins })),
        (Kind::GlobalRules, json!({ "id": "g", "plugins": { "prometheus": {}, "request-id": {} } })),
        (
            Kind::ConsumerGroups,
            json!({ "id": "q", "plugins": { "limit-conn": {
            "conn": 1, "burst": 1, "default_conn_delay": 0.1, "key": "remote_addr" } } }),
        ),
        (Kind::PluginMetadata, json!({ "id": "limit-count", "limit_header": "X-L" })),
        (Kind::Ssls, json!({ "id": "s", "snis": ["a.example"], "cert": pem, "key": pem, "status": 1 })),
        (Kind::Protos, json!({ "id": "p", "content": "syntax = \"proto3\";" })),
        (Kind::StreamRoutes, json!({ "id": "t", "server_port": 9100, "upstream": upstream })),
        (Kind::Secrets, json!({ "id": "vault/1", "uri": "http://a:1", "prefix": "p", "token": "t" })),
    ]
}

/// Pseudo-random numbers, reproducible by their seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Changes one part of a value: replaces, removes or adds it.
fn mutate(value: &mut Value, random: &mut Random) {
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(70000),
        json!(""),
        json!("x y"),
        json!("bad"),
        json!("127.0.0.1"),
        json!([]),
        json!({}),
        json!(["a", "a"]),
        json!({ "disable": true }),
        json!([["arg_a", "??", 1]]),
        json!("/c"),
        json!("https"),
        json!("client"),
    ];
    let stop = random.below(4) == 0;
    match value {
        Value::Object(members) if !members.is_empty() && !stop => {
            let at = random.below(members.len());
            let name = members.keys().nth(at).cloned().unwrap_or_default();
            match random.below(12) {
                0 => drop(members.shift_remove(&name)),
                1 => {
                    let fresh = ["_meta", "extra", "desc", "id", "nonesuch", "tls"][random.below(6)];
                    members.insert(fresh.into(), odd[random.below(odd.len())].clone());
                }
                _ => mutate(&mut members[&name], random),
            }
        }
        Value::Array(items) if !items.is_empty() && !stop => {
            let at = random.below(items.len());
            mutate(&mut items[at], random);
        }
        other => *other = odd[random.below(odd.len())].clone(),
    }
}

#[test]
fn a_reference_that_this_node_cannot_follow_is_refused_where_it_is_written() {
    let consumer = |key: &str| json!({ "username": "x", "plugins": { "key-auth": { "key": key } } });
    let refused = |why: &str| {
        let of = "invalid plugins configuration: failed to check the configuration of plugin key-auth err";
        format!("{of}: \"key\" cannot be resolved: {why}")
    };
    let unset = "the environment variable \"KEY\" is not set for this node; set it and start the node again";
    check(Kind::Consumers, consumer("$env://KEY"), &refused(unset));
    // The manager may be missing for now; the compiler reports it, and the key opens nothing.
    check(Kind::Consumers, consumer("$secret://vault/1/a/b"), "");
    let mut with_key = state();
    with_key.variables = Arc::new(|name| (name == "KEY").then(|| "open sesame".to_owned()));
    assert_eq!(object(&with_key, Kind::Consumers, &consumer("$env://KEY")), Ok(()));
}

fn compiler() -> Compiler {
    let state = state();
    let env = CompilerEnv {
        node: NodeFacts { workers: 1, ..NodeFacts::default() },
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 1,
        closes_broken: false,
        missing: state.missing.clone(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: load_certificate(),
        sinks: None,
    };
    Compiler::new(state.registry, Arc::new(Carry::default()), env)
}

/// The compiler's error about the object itself, as opposed to unsupported features and missing references.
fn quarantined(kind: Kind, value: &Value) -> Option<String> {
    let exceptions = ["in this version", "not supported", "does not exist", "there is no consumer"];
    let id = match kind {
        Kind::Credentials => "jack/credentials/c",
        Kind::PluginMetadata => value["id"].as_str().unwrap_or("none"),
        _ => "x",
    };
    let compiled = compiler().apply(vec![ConfigChange::Put(Resource::new(kind, id, value))], 1);
    let mut errors = compiled.problems.into_iter().filter(|problem| problem.level == ProblemLevel::Error);
    errors.find(|one| !exceptions.iter().any(|part| one.message.contains(part))).map(|one| one.to_string())
}

#[test]
fn validation_agrees_with_the_compiler() {
    let state = state();
    let (mut accepted, mut refused) = (0, 0);
    for (kind, good) in good() {
        assert_eq!(object(&state, kind, &good), Ok(()), "{} {good}", kind.name());
        for seed in 1..300_u64 {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut value = good.clone();
            for _ in 0..=random.below(3) {
                mutate(&mut value, &mut random);
            }
            let (validated, compiled) = (object(&state, kind, &value), quarantined(kind, &value));
            match (&validated, &compiled) {
                (Ok(()), None) => accepted += 1,
                (Err(_), Some(_)) => refused += 1,
                // The compiler stops at an unsupported object before it has found all errors.
                (Err(_), None) if unserved(kind, &value) => refused += 1,
                // The compiler runs a plugin in spite of unknown members of `_meta`.
                (Err(message), None) if message.contains("\"_meta\" validation failed: additional") => {
                    refused += 1
                }
                _ => panic!("{} {value}\njudged   {validated:?}\ncompiled {compiled:?}", kind.name()),
            }
        }
    }
    assert!(accepted > 100 && refused > 300, "{accepted} accepted, {refused} refused");
}

fn unserved(kind: Kind, value: &Value) -> bool {
    let compiled = compiler().apply(vec![ConfigChange::Put(Resource::new(kind, "x", value))], 1);
    compiled.problems.iter().any(|problem| {
        problem.level == ProblemLevel::Error
            && (problem.message.contains("in this version") || problem.message.contains("not supported"))
    })
}

#[test]
fn refusals_have_remedies_beside_the_message_of_the_contract() {
    let hint =
        |kind, value: &Value| super::object(&state(), kind, value).err().and_then(|refused| refused.hint);
    let nodes = json!([{ "host": "a.test", "port": "80", "weight": 1 }]);
    for (value, expected) in [
        (
            json!({ "type": "round-robin", "nodes": {} }),
            "did you mean \"roundrobin\"? allowed: \"roundrobin\"",
        ),
        (json!({ "nodes": {}, "retries": "2" }), "write the number without quotes"),
        (json!({ "nodes": nodes }), "nodes[0].port: wrong type: expected integer, got string"),
    ] {
        let found = hint(Kind::Upstreams, &value).unwrap_or_default();
        assert!(found.starts_with(expected), "{value}: {found}");
    }
    let found = hint(Kind::Routes, &json!({ "uri": "/a" }));
    assert_eq!(found.as_deref(), Some("add one of: plugins, upstream, upstream_id, service_id, script"));
}

#[test]
fn a_field_that_a_probe_cannot_send_is_refused_at_its_path() {
    let upstream = |line: &str| json!({ "nodes": { "127.0.0.1:80": 1 }, "checks": { "active": { "req_headers": ["A: 1", line] } } });
    for (line, message) in [
        ("Content-Length: 5", "Content-Length has no effect: the body of the probe has 0 bytes"),
        (
            "transfer-encoding: chunked",
            "transfer-encoding has no effect: a probe sends its body with a Content-Length",
        ),
        ("X: a\r\nY: b", "the value of X has control characters: the field is not sent"),
        ("A B: c", "the text before the colon is no name of a header: the field is not sent"),
    ] {
        let split = json!({ "rules": [{ "weighted_upstreams": [{ "upstream": upstream(line) }] }] });
        for (kind, value, under) in [
            (Kind::Upstreams, upstream(line), ""),
            (Kind::Services, json!({ "upstream": upstream(line) }), "upstream."),
            (
                Kind::Routes,
                with_plugin("traffic-split", split),
                "plugins.traffic-split.rules[0].weighted_upstreams[0].upstream.",
            ),
        ] {
            let refused = super::object(&state(), kind, &value).unwrap_err();
            let expected = format!("invalid configuration: {message}");
            assert_eq!(
                (refused.message, refused.path),
                (expected, format!("{under}checks.active.req_headers[1]"))
            );
            // An export that contains it can be imported.
            assert_eq!(super::restorable_object(&state(), kind, &value), Ok(()));
        }
    }
    check(Kind::Upstreams, upstream("Content-Length: 0"), "");
}
