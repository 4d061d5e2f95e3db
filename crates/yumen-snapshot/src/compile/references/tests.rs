use serde_json::{Value, json};
use yumen_config::Kind;

use super::super::tests::{compiler, put, route};
use crate::compile::{CompileOutput, ObjectValidator};

/// Whose key this is, if anybody's.
fn consumer_of(compiled: &CompileOutput, key: &str) -> Option<String> {
    let found = compiled.snapshot.consumers.find("key-auth", key.as_bytes());
    found.map(|identity| identity.consumer.username.to_string())
}

fn consumer(name: &str, key: &str) -> crate::ConfigChange {
    let plugins = json!({ "key-auth": { "key": key } });
    put(Kind::Consumers, name, json!({ "username": name, "plugins": plugins }))
}

#[test]
fn a_key_that_refers_to_the_environment_is_what_stands_there() {
    for (written, key) in [
        ("$env://ALICE_KEY", Some("open sesame")),
        ("$ENV://ALICE_KEY", Some("open sesame")),
        ("$env://ALICE_KEY/", Some("open sesame")),
        ("$env://KEYS/bob", Some("of bob")),
        ("$env://KEYS/port", Some("80")),
        ("$env://UNSET", None),
        ("$env://", None),
        ("$env://KEYS/nothing", None),
        ("$env://KEYS/missing", None),
        ("$env://ALICE_KEY/member", None),
        ("$secret://vault/1/alice/key", None),
        ("$SECRET://vault/1/alice/key", None),
        (" $env://ALICE_KEY", Some(" $env://ALICE_KEY")),
        ("$env:/ALICE_KEY", Some("$env:/ALICE_KEY")),
        ("$env", Some("$env")),
    ] {
        let mut compiler = compiler();
        let compiled = compiler.apply(vec![consumer("alice", written)], 1);
        if let Some(key) = key {
            assert_eq!(consumer_of(&compiled, key).as_deref(), Some("alice"), "{written}");
        }
        let is_literal = key == Some(written);
        assert_eq!(consumer_of(&compiled, written).is_some(), is_literal, "{written} must open nothing");
        assert_eq!(compiler.problems().is_empty(), key.is_some(), "{written}: {:?}", compiler.problems());
    }
}

#[test]
fn key_with_an_unresolved_reference_ends_the_previous_key_and_names_the_remedy() {
    let mut compiler = compiler();
    compiler.apply(vec![consumer("alice", "$env://ALICE_KEY")], 1);
    let compiled = compiler.apply(vec![consumer("alice", "$env://UNSET")], 2);
    assert_eq!(consumer_of(&compiled, "open sesame"), None, "the text replaces this key");
    let [problem] = &compiler.problems()[..] else { panic!("{:?}", compiler.problems()) };
    assert_eq!((&*problem.object, &*problem.path), ("consumers/alice", "plugins.key-auth.key"));
    let message = "\"key\" cannot be resolved: the environment variable \"UNSET\" is not set for this node; \
                   set it and start the node again";
    assert_eq!(problem.message, message);
    // Keys are compared as they are in force.
    compiler.apply(vec![consumer("alice", "$env://ALICE_KEY"), consumer("bob", "open sesame")], 3);
    assert!(compiler.problems()[0].message.starts_with("duplicate key"), "{:?}", compiler.problems());
}

#[test]
fn references_are_followed_wherever_settings_stand() {
    let plugins = |text: &str| json!({ "plugins": { "first": { "text": text } } });
    let meta =
        |text: &str| json!({ "first": { "text": "", "_meta": { "filter": [["arg_a", "==", text]] } } });
    let credential = |text: &str| json!({ "plugins": { "key-auth": { "key": text } } });
    type Put = Box<dyn Fn(&str) -> crate::ConfigChange>;
    let table: [(&str, Put); 6] = [
        ("routes/a at plugins.first.text", Box::new(move |text| route("a", plugins(text)))),
        (
            "routes/a at plugins.first._meta.filter[0][2]",
            Box::new(move |text| route("a", json!({ "plugins": meta(text) }))),
        ),
        ("services/a at plugins.first.text", Box::new(move |text| put(Kind::Services, "a", plugins(text)))),
        (
            "global_rules/a at plugins.first.text",
            Box::new(move |text| put(Kind::GlobalRules, "a", plugins(text))),
        ),
        (
            "plugin_metadata/first at deep[1].text",
            Box::new(|text| put(Kind::PluginMetadata, "first", json!({ "deep": ["", { "text": text }] }))),
        ),
        (
            "credentials/alice/credentials/a at plugins.key-auth.key",
            Box::new(move |text| put(Kind::Credentials, "alice/credentials/a", credential(text))),
        ),
    ];
    for (path, put) in table {
        for (text, is_sound) in [("$env://ALICE_KEY", true), ("$env://UNSET", false)] {
            let mut compiler = compiler();
            compiler.apply(vec![consumer("alice", "of alice"), put(text)], 1);
            let messages: Vec<String> =
                compiler.problems().iter().map(|one| format!("{} at {}", one.object, one.path)).collect();
            let expected = if is_sound { vec![] } else { vec![path] };
            assert_eq!(messages, expected, "{text}");
        }
    }
}

#[test]
fn what_does_not_run_need_not_be_resolved() {
    let off = json!({ "first": { "text": "$env://UNSET", "_meta": { "disable": true } } });
    let inactive = json!({ "later": { "client_secret": "$secret://vault/1/a/b" } });
    for plugins in [off, inactive] {
        let mut compiler = compiler();
        let compiled = compiler.apply(vec![route("a", json!({ "plugins": plugins }))], 1);
        let errors = compiled.problems.iter().any(|one| one.level == yumen_base::ProblemLevel::Error);
        assert!(!errors, "{:?}", compiled.problems);
    }
}

#[test]
fn what_a_reference_stands_for_is_told_to_nobody() {
    let meta = json!({ "filter": [["arg_a", "$env://ALICE_KEY", 1]] });
    let mut compiler = compiler();
    compiler.apply(vec![route("a", json!({ "plugins": { "first": { "text": "", "_meta": meta } } }))], 1);
    let message = &compiler.problems()[0].message;
    assert!(message.contains("$env://ALICE_KEY") && !message.contains("open sesame"), "{message}");
}

#[test]
fn values_are_masked_by_their_places_and_only_long_ones_by_search() {
    let resolved = |path: &str, value: &str| super::ResolvedReference {
        path: path.to_owned(),
        written: format!("$env://{}", value.to_uppercase()),
        value: value.to_owned(),
    };
    let followed = super::ResolvedReferences {
        resolved: vec![
            resolved("mode", "on"),
            resolved("list[1]", "1"),
            resolved("key", "s3cr3t"),
            resolved("longer", "s3cr3t-2"),
        ],
        awaited: Vec::new(),
    };
    for (path, message, expected) in [
        // The subject of the error.
        ("mode", "\"on\" is unknown", "the value of $env://ON is refused"),
        ("list", "[0,1] has no address", "the value of $env://1 is refused"),
        ("", "mode: on is unknown", "the value of $env://ON is refused"),
        // The same text elsewhere, and within words.
        ("key", "\"on\" is unknown", "\"on\" is unknown"),
        ("mode", "only one of 10 options", "only one of 10 options"),
        ("other", "s3cr3t and s3cr3t-2", "$env://S3CR3T and $env://S3CR3T-2"),
    ] {
        assert_eq!(followed.mask(path, message.to_owned()), expected, "{path}: {message}");
    }
}

#[test]
fn certificates_may_stand_in_the_environment() {
    let ssl = |cert: &str, status: u8| {
        let object = json!({ "cert": cert, "key": "$env://PEM", "sni": "a.test", "status": status });
        put(Kind::Ssls, "1", object)
    };
    for (cert, status, message) in [
        ("$env://PEM", 1, ""),
        ("$env://BAD_PEM", 1, "not a certificate"),
        ("$env://UNSET", 1, "the environment variable \"UNSET\" is not set for this node"),
        ("$env://UNSET", 0, ""),
        ("$secret://vault/1/a/b", 1, "$secret://vault/1/a/b: secret manager vault/1 does not exist"),
    ] {
        let mut compiler = compiler();
        let compiled = compiler.apply(vec![ssl(cert, status)], 1);
        let shows = compiled.snapshot.certificate("a.test").is_some();
        assert_eq!(shows, message.is_empty() && status == 1, "{cert}");
        let problem = compiler.problems().first().map(|one| one.message.clone()).unwrap_or_default();
        assert!(
            problem.starts_with(message) && problem.is_empty() == message.is_empty(),
            "{cert}: {problem}"
        );
    }
}

#[test]
fn the_doors_judge_references_as_the_compiler_does() {
    let compiler = compiler();
    let validator = ObjectValidator {
        registry: &compiler.context.registry,
        missing: &compiler.context.env.missing,
        load_certificate: &compiler.context.env.load_certificate,
        variables: &compiler.context.env.variables,
    };
    let verdict = |key: &str| {
        let object: Value = json!({ "username": "alice", "plugins": { "key-auth": { "key": key } } });
        validator.validate(Kind::Consumers, &object).is_ok()
    };
    assert_eq!(
        [verdict("$env://ALICE_KEY"), verdict("$env://UNSET"), verdict("$secret://vault/1/a/b")],
        // The manager and the value may arrive later; until then, the compiler reports and refuses the object.
        [true, false, true]
    );
}

#[test]
fn a_secret_without_a_manager_is_an_error_everywhere() {
    let secret = "$secret://vault/1/a/b";
    let mut compiler = compiler();
    let plugins = json!({ "first": { "text": secret }, "key-auth": {} });
    let compiled =
        compiler.apply(vec![route("a", json!({ "plugins": plugins })), consumer("alice", secret)], 1);
    let found: Vec<String> = compiler.problems().iter().map(ToString::to_string).collect();
    let [of_route, of_consumer] = &found[..] else { panic!("{found:?}") };
    assert!(of_consumer.starts_with("error: consumers/alice at plugins.key-auth.key"), "{found:?}");
    let error = "error: routes/a at plugins.first.text: \"text\" cannot be resolved: $secret://vault/1/a/b: secret \
                 manager vault/1 does not exist; create secrets/vault/1";
    assert!(of_route.starts_with(error), "{of_route}");
    assert_eq!(consumer_of(&compiled, secret), None, "everybody knows the reference");
}

#[test]
fn a_function_in_lua_has_no_effect_and_is_reported() {
    let mut compiler = compiler();
    let first = |meta: Value| json!({ "plugins": { "first": { "text": "", "_meta": meta } } });
    let lua = "return function(conf, ctx) end";
    let on = route("a", first(json!({ "pre_function": lua })));
    let off = route("b", first(json!({ "pre_function": lua, "disable": true })));
    compiler.apply(vec![on, off], 1);
    let found: Vec<String> = compiler.problems().iter().map(ToString::to_string).collect();
    let expected = "warning: routes/a at plugins.first._meta.pre_function: Lua functions are not supported: the plugin \
                    runs without this one\n  hint: remove it";
    assert_eq!(found, [expected]);
}
