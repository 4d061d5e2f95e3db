use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, NestedPluginFault, NestedPlugins, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    PluginRegistry,
};

use super::{MultiAuth, MultiAuthSettings};
use crate::testing::PluginBench;

/// Builds nested plugins as the compiler does.
struct BuiltinPlugins<'b> {
    registry: PluginRegistry,
    bench: &'b PluginBench,
}

impl NestedPlugins for BuiltinPlugins<'_> {
    fn build(&self, _: &str, name: &str, settings: Value) -> Result<Arc<dyn Plugin>, NestedPluginFault> {
        match self.registry.get(name) {
            None if name == "saml-auth" => Err(NestedPluginFault::Unavailable),
            None => Err(NestedPluginFault::Unknown),
            Some(registered) if !registered.kind.may_nest => Err(NestedPluginFault::NotAuthentication),
            Some(_) => self.bench.build(name, settings).map_err(NestedPluginFault::Settings),
        }
    }
}

fn build(bench: &PluginBench, auth_plugins: Value) -> Result<Arc<dyn Plugin>, InvalidSettings> {
    let config: MultiAuthSettings = serde_json::from_value(json!({ "auth_plugins": auth_plugins })).unwrap();
    let nested = BuiltinPlugins { registry: PluginRegistry::new(crate::BUILTIN), bench };
    let setup = PluginBuildContext {
        carry: &bench.carry,
        owner: "routes/1",
        metadata: None,
        node: &bench.node,
        objects: None,
        sinks: None,
        nested: Some(&nested),
    };
    Ok(Arc::new(MultiAuth::build(config, &setup)?))
}

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "key-auth", json!({"key": "secret"}), None);
    bench.add_key(&alice, "basic-auth", json!({"username": "alice", "password": "pw"}), None);
    bench
}

#[test]
fn the_first_plugin_that_accepts_wins() {
    let bench = bench();
    let plugin =
        build(&bench, json!([{"key-auth": {"hide_credentials": true}}, {"basic-auth": {}}])).unwrap();
    for (field, upstream) in [
        ("apikey: secret", Some(None)),
        ("Authorization: Basic YWxpY2U6cHc=", Some(None)),
        // The key of the refusing plugin stays in the request.
        ("apikey: wrong\nAuthorization: Basic YWxpY2U6cHc=", Some(Some("wrong"))),
        ("apikey: wrong", None),
        ("X-Other: 1", None),
    ] {
        let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\nHost: a\n{field}"));
        match upstream {
            Some(key) => {
                assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice"), "{field}");
                assert_eq!(reply.upstream_field("apikey").as_deref(), key, "{field}");
            }
            None => {
                assert_eq!(
                    (reply.status, reply.body.as_str()),
                    (401, "{\"message\":\"Authorization Failed\"}\n")
                );
                assert_eq!(reply.field("WWW-Authenticate"), None);
            }
        }
    }
}

/// The fields that pass to the upstream after key-auth has accepted a request with them, of those that are named.
fn passed(bench: &PluginBench, other: &Value, names: &[&str]) -> Vec<String> {
    let mut passed = Vec::new();
    for auth_plugins in [json!([other, {"key-auth": {}}]), json!([{"key-auth": {}}, other])] {
        let plugin = build(bench, auth_plugins).unwrap();
        let forged: String = names.iter().map(|name| format!("\n{name}: forged")).collect();
        let request = format!("GET / HTTP/1.1\nHost: a\napikey: secret{forged}");
        let reply = bench.run(&plugin, &request);
        assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice"), "{other}");
        assert_eq!(bench.run(&plugin, "GET / HTTP/1.1\nHost: a\nAuthorization: Bearer x").status, 401);
        passed.extend(
            names.iter().filter(|name| reply.upstream_field(name).is_some()).map(|name| (*name).to_owned()),
        );
    }
    passed.sort_unstable();
    passed.dedup();
    passed
}

#[test]
fn identity_fields_of_the_client_do_not_pass_beside_openid_connect() {
    let bench = bench();
    let names = ["X-Userinfo", "X_Access_Token", "X-Raw-ID-Token", "X-Consumer-Custom-ID", "Authorization"];
    for (in_authorization, expected) in [(false, vec!["Authorization"]), (true, vec![])] {
        let settings = json!({"client_id": "me", "discovery": "https://idp.test/.well-known/openid-configuration",
            "bearer_only": true, "use_jwks": true, "access_token_in_authorization_header": in_authorization});
        assert_eq!(passed(&bench, &json!({ "openid-connect": settings }), &names), expected);
    }
}

#[test]
fn identity_fields_of_the_client_do_not_pass_beside_other_plugins() {
    let mut bench = bench();
    bench.objects = Some(Box::new(crate::testing::InlineUpstreams));
    let bank = bench.add_consumer("bank");
    let credential = json!({ "appid": "bank", "server": "http://wolf.test", "header_prefix": "X-Bank-" });
    bench.add_key(&bank, "wolf-rbac", credential, None);
    let names = ["X-Bank-UserId", "x_bank_username", "X-Bank-Nickname", "X-UserId"];
    assert_eq!(passed(&bench, &json!({ "wolf-rbac": {} }), &names), ["X-UserId"]);
    let jwe = json!({ "jwe-decrypt": { "header": "X-Token", "forward_header": "X-Text" } });
    assert_eq!(passed(&bench, &jwe, &["X-Text", "x_text", "X-Token"]), ["X-Token"]);
    // Inside another multi-auth too.
    let inner = build(&bench, json!([{ "wolf-rbac": {} }, jwe])).unwrap();
    let vouched = ["X-Bank-Nickname", "X-Bank-UserId", "X-Bank-Username", "X-Text"];
    assert_eq!(inner.vouched_fields(&bench.consumers), vouched);
    // The credential of the accepting plugin passes, if another plugin would forward its own text in the field.
    let jwe = json!({ "jwe-decrypt": { "header": "X-Token", "forward_header": "Authorization" } });
    let plugin = build(&bench, json!([jwe, { "basic-auth": {} }, { "key-auth": {} }])).unwrap();
    let basic = "Authorization: Basic YWxpY2U6cHc=";
    for (field, expected) in
        [(basic, Some("Basic YWxpY2U6cHc=")), ("apikey: secret\nAuthorization: root", None)]
    {
        let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\nHost: a\n{field}"));
        assert_eq!(
            (reply.status, reply.upstream_field("Authorization").as_deref()),
            (200, expected),
            "{field}"
        );
    }
}

#[test]
fn plugins_that_cannot_authenticate_are_refused() {
    let bench = bench();
    for (auth_plugins, message) in [
        (json!([{"key-auth": {}}, {"none-such": {}}]), "none-such plugin did not found"),
        (json!([{"key-auth": {}}, {"limit-count": {}}]), "limit-count plugin is not supported"),
        (json!([{"key-auth": {"header": 1}}, {"basic-auth": {}}]), "plugin key-auth check schema failed: "),
    ] {
        let refused = build(&bench, auth_plugins.clone()).err().expect("refused");
        assert!(refused.message.starts_with(message), "{auth_plugins}: {}", refused.message);
    }
    // A plugin that this version does not run accepts nothing.
    let plugin = build(&bench, json!([{"saml-auth": {}}, {"key-auth": {}}])).unwrap();
    assert_eq!(bench.run(&plugin, "GET / HTTP/1.1\nHost: a\napikey: secret").status, 200);
    assert_eq!(bench.run(&plugin, "GET / HTTP/1.1\nHost: a").status, 401);
}

#[test]
fn plugin_that_lets_requests_pass_does_not_authenticate() {
    let mut bench = bench();
    let jane = bench.add_consumer("jane");
    let key = json!({"key": "k", "secret": "0123456789abcdef0123456789abcdef"});
    bench.add_key(&jane, "jwe-decrypt", key, None);
    let lenient = json!({"jwe-decrypt": {"header": "X-Token", "forward_header": "X-Text", "strict": false}});
    for auth_plugins in [json!([lenient, {"key-auth": {}}]), json!([{"key-auth": {}}, lenient])] {
        let plugin = build(&bench, auth_plugins.clone()).unwrap();
        for (field, status) in [("X-Other: 1", 401), ("X-Text: forged", 401), ("apikey: secret", 200)] {
            let request = format!("GET / HTTP/1.1\nHost: a\n{field}");
            assert_eq!(bench.run(&plugin, &request).status, status, "{auth_plugins} {field}");
            let mut ex = bench.exchange(&request);
            let is_refused = matches!(plugin.dry_run(PhaseSet::REWRITE, &mut ex), DryRunResult::Respond(_));
            assert_eq!(is_refused, status == 401, "{auth_plugins} {field}");
        }
    }
}

#[test]
fn pass_of_an_earlier_plugin_does_not_count() {
    let bench = bench();
    let plugin = build(&bench, json!([{"key-auth": {}}, {"basic-auth": {}}])).unwrap();
    let settings = json!({"header": "X-Token", "forward_header": "X-Text", "strict": false});
    let before = bench.plugin("jwe-decrypt", settings);
    let request = "GET / HTTP/1.1\nHost: a\napikey: secret";
    assert_eq!(bench.run_all(&[before, plugin], request).status, 200);
}
