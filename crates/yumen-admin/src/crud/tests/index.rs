//! The index against a naive reader of the whole state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use yumen_config::Kind;
use yumen_plugin::PluginRegistry;
use yumen_plugins::BUILTIN;
use yumen_store::{Authorship, Draft, MemoryMedium, ResourceKey, Store, StoreState, commit};

use super::{ADMIN, Api};
use crate::index::FactIndex;
use crate::index::facts::{self, ObjectFact};

fn naive(registry: &PluginRegistry, state: &StoreState) -> BTreeMap<ObjectFact, BTreeSet<ResourceKey>> {
    let mut by_fact: BTreeMap<ObjectFact, BTreeSet<ResourceKey>> = BTreeMap::new();
    for (key, entry) in state.entries() {
        for fact in facts::of_text(registry, key, &entry.json) {
            by_fact.entry(fact).or_default().insert(key.clone());
        }
    }
    by_fact
}

fn check(index: &FactIndex, registry: &PluginRegistry, state: &StoreState) {
    let known = index.catch_up(registry, state);
    let expected = naive(registry, state);
    assert_eq!(known.len(), expected.len());
    for (fact, keys) in &expected {
        let found: BTreeSet<ResourceKey> = known.stating(fact).cloned().collect();
        assert_eq!(&found, keys, "{fact:?}");
        for kind in Kind::ALL {
            let first = keys.iter().find(|key| key.kind == kind);
            assert_eq!(known.first_stating(fact, kind), first, "{fact:?}");
        }
    }
}

/// One write: a kind, one of few ids, and the new text, if any.
fn write() -> impl Strategy<Value = (Kind, u8, Option<String>)> {
    let kinds = prop::sample::select(&Kind::ALL[..]);
    let text = (0..4u8, 0..4u8, 0..6u8).prop_map(|(one, other, shape)| match shape {
        0 => format!(r#"{{"upstream_id":"{one}","service_id":{other}}}"#),
        1 => format!(r#"{{"plugin_config_id":"{one}","group_id":"{other}"}}"#),
        2 => format!(r#"{{"plugins":{{"key-auth":{{"key":"{one}"}},"jwt-auth":{{"key":"{other}"}}}}}}"#),
        3 => format!(
            r#"{{"plugins":{{"grpc-transcode":{{"proto_id":{one}}},"traffic-split":{{"rules":[
                {{"weighted_upstreams":[{{"upstream_id":"{one}"}},{{"weight":1}},{{"upstream_id":{other}}}]}},{{}}]}}}}}}"#
        ),
        4 => format!(r#"{{"protocol":{{"superior_id":"{one}"}},"upstream_id":"{other}"}}"#),
        _ => "not JSON".to_owned(),
    });
    (kinds, 0..6u8, prop::option::weighted(0.7, text))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn index_agrees_with_a_full_scan(
        batches in prop::collection::vec(prop::collection::vec(write(), 1..8), 1..12),
        back in any::<prop::sample::Index>(),
    ) {
        let registry = PluginRegistry::new(BUILTIN);
        let store = MemoryMedium::store(1000).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (index, mut states) = (FactIndex::default(), vec![StoreState::default()]);
        for batch in batches {
            let write = move |draft: &mut Draft| -> Result<(), ()> {
                for (kind, id, text) in &batch {
                    match text {
                        Some(text) => draft.put(ResourceKey::new(*kind, id.to_string()), text.as_str().into(), None),
                        None => drop(draft.delete(*kind, &id.to_string())),
                    }
                }
                Ok(())
            };
            runtime.block_on(commit(&store, Authorship::by("test"), write)).unwrap().unwrap();
            states.push(store.state());
            check(&index, &registry, &store.state());
        }
        // a batch that could not be made durable is rolled back
        check(&index, &registry, &states[back.index(states.len())]);
        check(&index, &registry, &store.state());
    }
}

/// Prints the cost of writes and pages among many objects; asserts nothing about it.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are for whoever asks with --nocapture")]
async fn writes_among_ten_thousand_consumers() {
    const CONSUMERS: usize = 10_000;
    let api = Api::new();
    let fill = |draft: &mut Draft| -> Result<(), ()> {
        for i in 0..CONSUMERS {
            let json = format!(r#"{{"username":"u{i}","plugins":{{"key-auth":{{"key":"k{i}"}}}}}}"#);
            draft.put(ResourceKey::new(Kind::Consumers, format!("u{i}")), json.into(), None);
            let json = format!(r#"{{"uri":"/{i}","plugins":{{}},"id":"{i}"}}"#);
            draft.put(ResourceKey::new(Kind::Routes, i.to_string()), json.into(), None);
        }
        Ok(())
    };
    commit(&*api.state.store, Authorship::by("test"), fill).await.unwrap().unwrap();
    let start = Instant::now();
    let state = api.state.store.state();
    drop(api.state.index.catch_up(&Arc::new(PluginRegistry::new(BUILTIN)), &state));
    println!("reading {} objects: {:?}", state.len(), start.elapsed());
    let start = Instant::now();
    for i in 0..100 {
        let body =
            format!(r#"{{"username":"u{i}","plugins":{{"key-auth":{{"key":"k{}"}}}}}}"#, CONSUMERS + i);
        let answer = api.send("PUT /apisix/admin/consumers", &[("x-api-key", ADMIN)], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    println!("a PUT of a consumer: {:?}", start.elapsed() / 100);
    let start = Instant::now();
    let page = api.ask("GET /routes?page=50&page_size=100", "").await;
    println!("a page of 100: {:?}, {} bytes", start.elapsed(), page.text.len());
    assert_eq!(page.json()["list"].as_array().unwrap().len(), 100);
    let start = Instant::now();
    let filtered = api.ask("GET /routes?page=1&page_size=10&uri=/99", "").await.json();
    println!("a filtered page: {:?}", start.elapsed());
    assert_eq!(filtered["total"], 111);
}
