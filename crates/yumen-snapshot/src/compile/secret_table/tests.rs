use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::ProblemLevel;
use yumen_config::{Kind, Resource};
use yumen_plugin::{FetchRequest, PluginChain};

use super::split;
use crate::compile::tests::{compiler, nodes, put, route};
use crate::compile::{CompileOutput, Compiler, ConfigChange, FetchFailure, FetchedResult, ObjectValidator};
use crate::testing::TestWorker;

const REFERENCE: &str = "$secret://vault/1/jack/key";

fn manager(token: &str) -> ConfigChange {
    let settings = json!({ "id": "vault/1", "uri": "http://127.0.0.1:8200", "prefix": "kv", "token": token });
    put(Kind::Secrets, "vault/1", settings)
}

fn consumer(name: &str, key: &str) -> ConfigChange {
    put(Kind::Consumers, name, json!({ "username": name, "plugins": { "key-auth": { "key": key } } }))
}

/// A route whose plugin `first` has this text.
fn written(id: &str, text: &str) -> ConfigChange {
    route(id, json!({ "plugins": { "first": { "text": text } }, "upstream": nodes("10.0.0.1") }))
}

fn owner(compiled: &CompileOutput, key: &str) -> Option<String> {
    let found = compiled.snapshot.consumers.find("key-auth", key.as_bytes());
    found.map(|identity| identity.consumer.username.to_string())
}

/// The only value that the compiler requires.
fn required(compiler: &Compiler) -> Arc<FetchRequest> {
    let all: Vec<Arc<FetchRequest>> = compiler.fetches().map(|(request, ..)| request.clone()).collect();
    let [one] = &all[..] else { panic!("{all:?}") };
    one.clone()
}

fn arrives(compiler: &mut Compiler, value: &str) -> CompileOutput {
    let request = required(compiler);
    let value = (request.format.parse)(value.as_bytes()).unwrap();
    let result = FetchedResult { value: Some(value), ..FetchedResult::default() };
    compiler.apply(vec![ConfigChange::Fetched(request, result)], 1)
}

fn fails(compiler: &mut Compiler, message: &str, is_absent: bool) -> CompileOutput {
    let failure = Some(FetchFailure { message: message.into(), is_absent });
    let change =
        ConfigChange::Fetched(required(compiler), FetchedResult { failure, ..FetchedResult::default() });
    compiler.apply(vec![change], 1)
}

fn problems(compiler: &Compiler) -> Vec<String> {
    compiler.problems().iter().map(|one| format!("{} at {}: {}", one.object, one.path, one.message)).collect()
}

#[test]
fn a_key_opens_when_its_value_arrives_and_follows_the_rotation() {
    let mut compiler = compiler().with_secrets();
    let compiled = compiler.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    assert_eq!(owner(&compiled, REFERENCE), None, "everybody knows the reference");
    let path = "consumers/jack at plugins.key-auth.key";
    let unresolved = |why: &str| format!("{path}: \"key\" cannot be resolved: {REFERENCE}: {why}");
    assert_eq!(problems(&compiler), [unresolved("vault/1 has not answered yet")]);
    fails(&mut compiler, "answered 403", false);
    assert_eq!(problems(&compiler), [unresolved("vault/1 has no value for it: answered 403")]);
    let compiled = arrives(&mut compiler, "open sesame");
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    assert!(problems(&compiler).is_empty(), "{:?}", problems(&compiler));
    let compiled = arrives(&mut compiler, "second");
    let owners = ["open sesame", "second", REFERENCE].map(|key| owner(&compiled, key));
    assert_eq!(owners, [None, Some("jack".to_owned()), None]);
}

#[test]
fn the_last_value_stays_while_the_manager_fails() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    arrives(&mut compiler, "open sesame");
    for (is_absent, level, verb) in
        [(false, ProblemLevel::Warning, "cannot be refreshed"), (true, ProblemLevel::Error, "has ended")]
    {
        let compiled = fails(&mut compiler, "refused", is_absent);
        assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
        let [problem] = &compiler.problems()[..] else { panic!("{:?}", compiler.problems()) };
        assert_eq!((problem.level, &*problem.path), (level, "plugins.key-auth.key"));
        assert_eq!(problem.message, format!("vault/1/jack/key {verb}: refused"));
    }
    // The consumer changes meanwhile.
    let compiled = compiler.apply(vec![consumer("jack", REFERENCE)], 1);
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    arrives(&mut compiler, "second");
    assert!(problems(&compiler).is_empty(), "{:?}", problems(&compiler));
}

#[test]
fn new_settings_of_the_manager_keep_the_value_until_it_answers() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    let before = required(&compiler);
    arrives(&mut compiler, "open sesame");
    let compiled = compiler.apply(vec![manager("another token")], 1);
    assert_ne!(required(&compiler), before, "fetched anew");
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    fails(&mut compiler, "refused", false);
    let compiled = arrives(&mut compiler, "second");
    assert_eq!(owner(&compiled, "second").as_deref(), Some("jack"));
}

#[test]
fn a_forgotten_value_ends_with_all_objects_that_were_built_from_it() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), consumer("jack", REFERENCE), written("a", REFERENCE)], 1);
    let compiled = arrives(&mut compiler, "open sesame");
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    let failure = Some(FetchFailure { message: "its value was forgotten".into(), is_absent: false });
    let result = FetchedResult { failure, forgets: true, ..FetchedResult::default() };
    let compiled = compiler.apply(vec![ConfigChange::Fetched(required(&compiler), result)], 1);
    assert_eq!([owner(&compiled, "open sesame"), owner(&compiled, REFERENCE)], [None, None]);
    let unresolved = |place: &str, name: &str| {
        format!(
            "{place}: \"{name}\" cannot be resolved: {REFERENCE}: vault/1 has no value for it: its value was forgotten"
        )
    };
    let expected = [
        unresolved("routes/a at plugins.first.text", "text"),
        unresolved("consumers/jack at plugins.key-auth.key", "key"),
    ];
    assert_eq!(problems(&compiler), expected);
    assert!(compiler.problems().iter().all(|one| !one.last_good), "{:?}", compiler.problems());
    let compiled = arrives(&mut compiler, "open sesame");
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    assert!(problems(&compiler).is_empty(), "{:?}", problems(&compiler));
}

#[test]
fn a_manager_that_is_missing_or_deleted_quarantines_its_users() {
    let mut compiler = compiler().with_secrets();
    let compiled = compiler.apply(vec![consumer("jack", REFERENCE)], 1);
    assert_eq!(owner(&compiled, REFERENCE), None);
    let missing = format!(
        "consumers/jack at plugins.key-auth.key: \"key\" cannot be resolved: {REFERENCE}: secret manager vault/1 does \
         not exist; create secrets/vault/1"
    );
    assert_eq!(problems(&compiler), [missing.as_str()]);
    // It heals by itself.
    compiler.apply(vec![manager("t")], 1);
    let compiled = arrives(&mut compiler, "open sesame");
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
    let compiled = compiler.apply(vec![ConfigChange::Delete(Kind::Secrets, "vault/1".into())], 1);
    assert_eq!(owner(&compiled, "open sesame"), None);
    assert_eq!(problems(&compiler), [missing.as_str()]);
}

#[test]
fn malformed_references_name_the_form() {
    for (reference, expected) in [
        ("vault/1/jack/key", Ok(("vault/1", "jack/key"))),
        ("aws/prod/key", Ok(("aws/prod", "key"))),
        ("vault", Err("write $secret://")),
        ("vault/1", Err("write $secret://")),
        ("vault//a/b", Err("write $secret://")),
        ("vault/1/", Err("write $secret://")),
        ("azure/1/a", Err("unknown secret manager azure")),
    ] {
        match (split(reference), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{reference}: {found}"),
            (found, _) => panic!("{reference}: {found:?}"),
        }
    }
}

#[test]
fn a_value_stages_only_its_users() {
    let mut compiler = compiler().with_secrets();
    let compiled = compiler.apply(vec![manager("t"), written("user", REFERENCE), written("other", "a")], 1);
    let bench = TestWorker::default();
    let chain = |compiled: &CompileOutput, path: &str| -> Option<*const PluginChain> {
        let mut ex = bench.exchange(&format!("GET {path}"));
        Some(Arc::as_ptr(&compiled.snapshot.router.find(&mut ex, &mut ())?.chain))
    };
    let other = chain(&compiled, "/other");
    let first = arrives(&mut compiler, "a text");
    let user = chain(&first, "/user");
    assert!(first.problems.is_empty(), "{:?}", first.problems);
    let second = arrives(&mut compiler, "another text");
    assert_ne!(chain(&second, "/user"), user);
    assert_eq!([chain(&first, "/other"), chain(&second, "/other")], [other, other]);
}

#[test]
fn a_value_that_the_plugin_refuses_leaves_the_last_good_version_and_appears_nowhere() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), written("a", REFERENCE)], 1);
    arrives(&mut compiler, "sound");
    arrives(&mut compiler, "bad");
    let [problem] = &compiler.problems()[..] else { panic!("{:?}", compiler.problems()) };
    assert!(problem.last_good && !problem.message.contains("\"bad\""), "{problem:?}");
    arrives(&mut compiler, "sound");
    assert!(problems(&compiler).is_empty(), "{:?}", problems(&compiler));
}

#[test]
fn no_value_is_required_when_its_last_user_is_gone() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    let number = compiler.input_number();
    arrives(&mut compiler, "open sesame");
    let compiled = compiler.apply(vec![consumer("jack", "plain")], 1);
    assert_eq!((compiler.fetches().count(), owner(&compiled, "plain").as_deref()), (0, Some("jack")));
    assert_ne!(compiler.input_number(), number);
    assert!(compiler.context.secrets.secrets.borrow().is_empty());
    // The next user waits for a value of its own time.
    let compiled = compiler.apply(vec![consumer("jack", REFERENCE)], 1);
    assert_eq!(owner(&compiled, "open sesame"), None);
}

#[test]
fn certificates_and_keys_follow_their_secrets() {
    let ssl =
        json!({ "cert": "$secret://vault/1/tls/cert", "key": "$secret://vault/1/tls/key", "sni": "a.test" });
    let mut compiler = compiler().with_secrets();
    let compiled = compiler.apply(vec![manager("t"), put(Kind::Ssls, "1", ssl)], 1);
    assert!(compiled.snapshot.certificate("a.test").is_none());
    let requests: Vec<Arc<FetchRequest>> = compiler.fetches().map(|(request, ..)| request.clone()).collect();
    assert_eq!(requests.len(), 2, "both are fetched at once");
    let changes = requests.into_iter().map(|request| {
        let value = Some((request.format.parse)(b"pem").unwrap());
        ConfigChange::Fetched(request, FetchedResult { value, ..FetchedResult::default() })
    });
    let compiled = compiler.apply(changes.collect(), 1);
    assert!(compiled.snapshot.certificate("a.test").is_some(), "{:?}", problems(&compiler));
}

#[test]
fn settings_of_a_manager_come_from_the_environment_but_from_no_other_manager() {
    for (token, expected) in [
        ("$env://ALICE_KEY", ""),
        ("$env://UNSET", "\"token\" cannot be resolved"),
        ("$secret://aws/1/token", "a secret manager cannot take its settings from a secret"),
    ] {
        let mut compiler = compiler().with_secrets();
        compiler.apply(vec![manager(token), consumer("jack", REFERENCE)], 1);
        let of_manager = compiler.problems().into_iter().find(|one| one.object == "secrets/vault/1");
        let message = of_manager.map(|one| one.message).unwrap_or_default();
        assert!(message.starts_with(expected) && message.is_empty() == expected.is_empty(), "{message}");
        assert_eq!(compiler.fetches().count(), usize::from(expected.is_empty()));
    }
}

#[test]
fn trials_and_validation_check_the_rest_of_the_settings() {
    let trial = |changes: Vec<ConfigChange>| {
        let mut compiler = compiler();
        compiler.apply(changes, 1);
        compiler.problems()
    };
    let errors =
        |changes| -> usize { trial(changes).iter().filter(|one| one.level == ProblemLevel::Error).count() };
    assert_eq!(errors(vec![manager("t"), consumer("jack", REFERENCE)]), 0);
    assert_eq!(errors(vec![consumer("jack", REFERENCE)]), 1, "the manager is missing");
    let compiler = compiler();
    let validator = ObjectValidator {
        registry: &compiler.context.registry,
        missing: &compiler.context.env.missing,
        load_certificate: &compiler.context.env.load_certificate,
        variables: &compiler.context.env.variables,
    };
    let is_valid = |key: Value| {
        let object = json!({ "username": "jack", "plugins": { "key-auth": key } });
        validator.validate(Kind::Consumers, &object).is_ok()
    };
    assert!(is_valid(json!({ "key": REFERENCE })));
    assert!(!is_valid(json!({ "key": 5 })));
}

#[test]
fn trials_see_the_values_of_the_configuration_in_force() {
    let mut live = compiler().with_secrets();
    live.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    arrives(&mut live, "open sesame");
    let mut trial = live.fresh();
    let resources = [manager("t"), consumer("jack", REFERENCE)].into_iter().map(|change| match change {
        ConfigChange::Put(resource) => resource,
        _ => Resource::new(Kind::Routes, "", &json!({})),
    });
    let compiled = trial.replace_all(resources.collect(), 1);
    assert_eq!(owner(&compiled, "open sesame").as_deref(), Some("jack"));
}

#[test]
fn an_empty_value_is_refused() {
    let mut compiler = compiler().with_secrets();
    compiler.apply(vec![manager("t"), consumer("jack", REFERENCE)], 1);
    let request = required(&compiler);
    assert!((request.format.parse)(b"").is_err());
    assert!((request.format.parse)(b"\xff").is_err());
    let value = (request.format.parse)(b"open sesame").unwrap();
    assert!(!format!("{value:?}").contains("sesame"));
}
