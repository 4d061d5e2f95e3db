//! Order and phases of plugins, and the effect of a consumer on both.

use std::sync::Arc;

use serde_json::json;

use super::{PluginChain, PluginInstance, PluginMeta};
use crate::Consumer;
use crate::test_exchange::with_exchange;
use crate::{ConditionExpr, LocalResponse, PhaseSet, Plugin, VarInputs};

struct Idle(PhaseSet);

impl Plugin for Idle {
    fn phases(&self) -> PhaseSet {
        self.0
    }
}

fn instance(name: &'static str, priority: i32, phases: PhaseSet, origin: &str) -> Arc<PluginInstance> {
    Arc::new(PluginInstance {
        plugin: Arc::new(Idle(phases)),
        name,
        priority,
        phases,
        meta: PluginMeta::default(),
        origin: origin.into(),
        is_auth: false,
        prefers_route: false,
        reads: VarInputs::default(),
    })
}

fn consumer(plugins: Vec<Arc<PluginInstance>>) -> Consumer {
    Consumer {
        username: "jack".into(),
        group_id: None,
        custom_id: None,
        labels: Box::default(),
        written: None,
        plugins: plugins.into(),
        switched_off: Box::default(),
    }
}

fn names(list: &[Arc<PluginInstance>]) -> Vec<&'static str> {
    list.iter().map(|instance| instance.name).collect()
}

#[test]
fn higher_priorities_come_first_and_equal_ones_by_name() {
    let phases = PhaseSet::ACCESS;
    let plugins = [("low", -5), ("b", 10), ("a", 10), ("high", 99)];
    let chain =
        PluginChain::new(plugins.map(|(name, priority)| instance(name, priority, phases, "routes/1")));
    assert_eq!(names(chain.all()), ["high", "a", "b", "low"]);
    assert_eq!(names(chain.access()), ["high", "a", "b", "low"]);
    assert!(chain.has("low") && !chain.has("lo") && !chain.is_empty());
    assert!(PluginChain::default().is_empty());
}

#[test]
fn each_phase_has_just_those_that_take_part() {
    let all = [
        ("rewrite", PhaseSet::REWRITE),
        ("access", PhaseSet::ACCESS),
        ("upstream", PhaseSet::UPSTREAM_REQUEST),
        ("head", PhaseSet::RESPONSE_HEAD),
        ("body", PhaseSet::RESPONSE_BODY),
        ("log", PhaseSet::LOG),
        ("both", PhaseSet::REWRITE | PhaseSet::LOG),
        ("none", PhaseSet::NONE),
    ];
    let chain = PluginChain::new(all.map(|(name, phases)| instance(name, 0, phases, "routes/1")));
    assert_eq!(names(chain.rewrite()), ["both", "rewrite"]);
    assert_eq!(names(chain.access()), ["access"]);
    assert_eq!(names(chain.upstream_request()), ["upstream"]);
    assert_eq!(names(chain.response_head()), ["head"]);
    assert_eq!(names(chain.response_body()), ["body"]);
    assert_eq!(names(chain.log()), ["both", "log"]);
    assert_eq!(chain.all().len(), 8);
}

#[test]
fn chains_behind_one_another_keep_their_own_order() {
    let phases = PhaseSet::ACCESS;
    let chain = PluginChain::concat(vec![
        instance("first", 1, phases, "global_rules/1"),
        instance("second", 100, phases, "global_rules/2"),
    ]);
    assert_eq!(names(chain.access()), ["first", "second"]);
}

#[test]
fn a_consumers_plugin_wins_by_name_and_a_new_one_rewrites_late() {
    let phases = PhaseSet::REWRITE | PhaseSet::ACCESS;
    let route =
        PluginChain::new([instance("shared", 5, phases, "routes/1"), instance("own", 3, phases, "routes/1")]);
    let jack = consumer(vec![
        instance("new", 4, phases, "consumers/jack"),
        instance("access-only", 1, PhaseSet::ACCESS, "consumers/jack"),
        instance("shared", 5, phases, "consumers/jack"),
    ]);
    let merged = route.with_consumer(&jack);
    assert_eq!(names(merged.access()), ["shared", "new", "own", "access-only"]);
    assert_eq!(&*merged.access()[0].origin, "consumers/jack");
    assert_eq!(names(merged.rewrite_in_consumer()), ["new"]);
    assert_eq!(&*route.access()[0].origin, "routes/1", "the route's chain is as it was");
    assert!(route.rewrite_in_consumer().is_empty());
}

#[test]
fn plugin_disabled_by_a_consumer_runs_in_no_phase() {
    let phases = PhaseSet::REWRITE | PhaseSet::ACCESS | PhaseSet::LOG;
    let route =
        PluginChain::new([instance("shared", 5, phases, "routes/1"), instance("own", 3, phases, "routes/1")]);
    let jack = Consumer { switched_off: ["shared".into()].into(), ..consumer(Vec::new()) };
    assert!(jack.changes_plugins() && !consumer(Vec::new()).changes_plugins());
    let merged = route.with_consumer(&jack);
    assert_eq!(names(merged.access()), ["own"]);
    assert_eq!(names(merged.log()), ["own"]);
    assert!(merged.rewrite_in_consumer().is_empty());
}

#[test]
fn answers_are_dressed_as_the_settings_ask() {
    let check = |error_response, expected_type: &str, expected: &str| {
        let mut plugin = Arc::into_inner(instance("a", 0, PhaseSet::NONE, "routes/1")).unwrap();
        plugin.meta.error_response = error_response;
        let response = plugin.apply_error_response(LocalResponse::message(403, "no"));
        assert_eq!(response.status, 403);
        let types: Vec<_> = response.fields().iter().collect();
        assert_eq!(types, [(&b"Content-Type"[..], expected_type.as_bytes())]);
        assert_eq!(std::str::from_utf8(&response.body).unwrap(), expected);
    };
    check(None, "application/json", "{\"message\":\"no\"}\n");
    check(Some(json!("Go away")), "text/plain; charset=utf-8", "Go away");
    check(Some(json!({"code": 1})), "application/json", "{\"code\":1}\n");
}

#[test]
fn a_filter_is_asked_once_for_each_plugin() {
    let mut filtered = Arc::into_inner(instance("a", 0, PhaseSet::ACCESS, "routes/1")).unwrap();
    filtered.meta.filter = Some(ConditionExpr::parse(&json!([["http_x_run", "==", "yes"]])).unwrap());
    let always = instance("b", 0, PhaseSet::ACCESS, "routes/1");
    with_exchange(false, "GET / HTTP/1.0\nX-Run: yes", |ex| {
        assert!(ex.admits(&filtered) && ex.admits(&always));
        ex.request.fields.remove("x-run");
        assert!(ex.admits(&filtered), "the first verdict stands for the whole exchange");
    });
    with_exchange(false, "GET / HTTP/1.0", |ex| assert!(!ex.admits(&filtered) && ex.admits(&always)));
}

#[test]
fn a_stand_in_that_a_filter_skips_is_asked_again_in_the_next_phase() {
    struct Refusing;
    impl Plugin for Refusing {
        fn phases(&self) -> PhaseSet {
            PhaseSet::REWRITE | PhaseSet::ACCESS
        }
        fn is_stand_in(&self) -> bool {
            true
        }
    }
    let mut filtered = Arc::into_inner(instance("a", 0, PhaseSet::ACCESS, "routes/1")).unwrap();
    filtered.plugin = Arc::new(Refusing);
    filtered.meta.filter = Some(ConditionExpr::parse(&json!([["http_x_role", "==", "admin"]])).unwrap());
    with_exchange(false, "GET / HTTP/1.0", |ex| {
        assert!(!ex.admits(&filtered));
        ex.request.fields.set("X-Role", b"admin");
        assert!(ex.admits(&filtered), "another plugin has set the field");
        ex.request.fields.remove("X-Role");
        assert!(ex.admits(&filtered), "a refusal stands");
    });
}

#[test]
fn a_chain_needs_the_body_where_one_of_its_plugins_or_the_consumers_does() {
    let looking = |name| {
        let instance = Arc::try_unwrap(instance(name, 1, PhaseSet::ACCESS, "routes/1")).unwrap();
        Arc::new(PluginInstance { reads: VarInputs { body: true, answer: false }, ..instance })
    };
    let plain = || instance("b", 1, PhaseSet::ACCESS, "routes/1");
    assert!(!PluginChain::new([plain()]).needs_body());
    assert!(PluginChain::new([plain(), looking("a")]).needs_body());
    assert!(PluginChain::new([plain()]).with_consumer(&consumer(vec![looking("a")])).needs_body());
    assert!(!PluginChain::new([looking("b")]).with_consumer(&consumer(vec![plain()])).needs_body());
}

#[test]
fn a_chain_keeps_what_was_sent_for_plugins_that_look_into_it_later() {
    let check = |reads, phases, expected| {
        let instance = Arc::try_unwrap(instance("a", 1, phases, "routes/1")).unwrap();
        let chain = PluginChain::new([Arc::new(PluginInstance { reads, ..instance })]);
        assert_eq!(chain.reads_sent_head(), expected, "{reads:?} {phases:?}");
    };
    let looks = VarInputs { body: false, answer: true };
    check(looks, PhaseSet::LOG, true);
    check(looks, PhaseSet::RESPONSE_HEAD | PhaseSet::RESPONSE_BODY, true);
    check(looks, PhaseSet::RESPONSE_HEAD, false);
    check(VarInputs { body: true, answer: false }, PhaseSet::LOG, false);
}
