use serde_json::{Value, json};
use yumen_config::Kind;

use super::super::tests::{compiler, found, put};
use crate::Snapshot;
use crate::compile::tables::ScopedServerNames;
use crate::compile::{Compiler, ConfigChange};

fn long(text: &str) -> String {
    format!("{text:x<128}")
}

fn ssl(id: &str, names: Value, client: Option<Value>) -> ConfigChange {
    let mut value = json!({ "cert": long(id), "key": long("key"), "snis": names });
    if let Some(client) = client {
        value["client"] = client;
    }
    put(Kind::Ssls, id, value)
}

fn client_section(more: Value) -> Option<Value> {
    let mut client = json!({ "ca": long("ca") });
    client.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    Some(client)
}

/// One whose node fetches a certificate for `two.test`.
fn fetching() -> Compiler {
    let mut compiler = compiler();
    compiler.downstream.server_names = ScopedServerNames::new(vec!["acme-two".into()].into());
    compiler
}

/// Whose certificate is shown for `two.test`, and which paths are served without one of the client.
fn shown(snapshot: &Snapshot) -> (String, bool, bool) {
    let shown = snapshot.certificate("two.test").unwrap();
    let is_open = |path: &[u8]| shown.client.as_ref().is_none_or(|client| client.skips(path));
    (shown.id.to_string(), is_open(b"/"), is_open(b"/public"))
}

#[test]
fn a_fetched_certificate_is_shown_under_the_rules_of_the_object_that_else_were_found() {
    let mut compiler = fetching();
    let fetched = || ssl("acme-two", json!(["two.test"]), None);
    let mut apply = |change: ConfigChange| {
        let snapshot = compiler.apply(vec![change], 1).snapshot;
        let (id, root, public) = shown(&snapshot);
        assert_eq!(snapshot.certificate("two.test").unwrap().rules.is_some(), !root, "{id}");
        (id, root, public)
    };
    let acme = |root, public| ("acme-two".to_owned(), root, public);
    let other = |id: &str, root, public| (id.to_owned(), root, public);
    assert_eq!(apply(ssl("m", json!(["*"]), client_section(json!({})))), other("m", false, false));
    assert_eq!(apply(fetched()), acme(false, false), "the default's rules");
    let skips = client_section(json!({ "skip_mtls_uri_regex": ["^/public"] }));
    assert_eq!(apply(ssl("w", json!(["*.test"]), skips.clone())), acme(false, true), "those of a wildcard");
    assert_eq!(apply(ssl("w", json!(["*.test"]), None)), acme(true, true), "it changes");
    assert_eq!(apply(ConfigChange::Delete(Kind::Ssls, "w".into())), acme(false, false), "it goes");
    // Whatever comes first in the order of ids.
    for id in ["1", "z"] {
        assert_eq!(apply(ssl(id, json!(["two.test"]), skips.clone())), acme(false, true), "{id}");
        assert_eq!(apply(ConfigChange::Delete(Kind::Ssls, id.into())), acme(false, false), "{id}");
    }
    assert_eq!(apply(fetched()), acme(false, false), "it is renewed");
    assert_eq!(apply(ssl("m", json!(["other.test"]), None)), acme(true, true), "nobody asks any more");
    assert_eq!(apply(ssl("z", json!(["two.test"]), skips)), acme(false, true));
    assert_eq!(apply(ConfigChange::Delete(Kind::Ssls, "acme-two".into())), other("z", false, true));
}

#[test]
fn a_broken_object_that_asks_clients_closes_its_names_under_a_fetched_certificate_too() {
    let mut compiler = fetching();
    let fetched = ssl("acme-two", json!(["two.test"]), None);
    let broken = ssl("bad", json!(["*.test"]), client_section(json!({})));
    let snapshot = compiler.apply(vec![fetched, broken], 1).snapshot;
    assert_eq!(shown(&snapshot), ("acme-two".to_owned(), false, false));
    assert!(
        !snapshot.certificate("two.test").unwrap().keys.is_empty() && snapshot.requests_client_certificates()
    );
}

#[test]
fn object_with_an_acme_name_is_reported() {
    for id in ["1", "z"] {
        let mut compiler = fetching();
        let both = [ssl(id, json!(["two.test"]), None), ssl("acme-two", json!(["two.test"]), None)];
        compiler.apply(both.into(), 1);
        let problems = compiler.problems();
        assert_eq!(found(&problems), [format!("warning ssls/{id} at snis")]);
        assert_eq!(problems[0].message, "the certificate for two.test is that of ssls/acme-two");
    }
}

#[test]
fn name_opened_by_another_object_is_reported() {
    let closed = || ssl("a", json!(["two.test"]), client_section(json!({})));
    let problem_of = |last: Option<Value>| {
        let mut compiler = fetching();
        compiler.apply(vec![closed(), ssl("b", json!(["two.test"]), last)], 1);
        compiler.problems().iter().map(|problem| problem.message.clone()).collect::<Vec<_>>()
    };
    let shown = "the certificate for two.test is that of ssls/b";
    let opened = format!("{shown}: clients are not asked for certificates, as this object wants");
    assert_eq!(problem_of(None), [opened]);
    assert_eq!(problem_of(client_section(json!({}))), [shown]);
}
