use std::time::{Duration, Instant};

use yumen_store::{Draft, LastGoodVersion, MemoryMedium, ResourceKey, commit};

use super::*;
use crate::commands::offline;

const V1: &str = r#"{"id":"v1","uri":"/a","plugins":{"mocking":{"response_example":"1"}}}"#;
const OTHER: &str = r#"{"id":"o","uri":"/o","plugins":{"mocking":{"response_example":"o"}}}"#;

/// A policy test that expects a route at a path.
fn test(path: &str, route: &str) -> String {
    format!(r#"{{"request":{{"url":"{path}"}},"expect":{{"route":"{route}"}}}}"#)
}

fn write(
    store: &GuardedStore,
    mut decide: impl FnMut(&mut Draft) + Send + 'static,
) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let written = runtime.block_on(commit(store, Authorship::by("ann"), move |draft| {
        decide(draft);
        Ok::<(), ()>(())
    }));
    written.map(|decided| drop(decided.unwrap()))
}

fn put(store: &GuardedStore, kind: Kind, id: &'static str, json: &str) -> Result<(), StoreError> {
    let json: Arc<str> = json.into();
    write(store, move |draft| {
        draft.put(ResourceKey::new(kind, id), json.clone(), None);
    })
}

#[test]
fn only_tests_that_a_write_breaks_hold_it_back() {
    let store = MemoryMedium::store(100).unwrap();
    let store = GuardedStore::new(
        Arc::new(store),
        Arc::new(TrialCompiler::new(&offline::compiler(&Default::default()), Default::default())),
        Arc::default(),
    );
    put(&store, Kind::Routes, "o", OTHER).unwrap();
    put(&store, Kind::Tests, "o", &test("/o", "o")).unwrap();
    let both = |draft: &mut Draft| {
        let end_ms = draft.now_ms() + 1;
        draft.put(ResourceKey::new(Kind::Routes, "v1"), V1.into(), Some(end_ms));
        draft.put(ResourceKey::new(Kind::Tests, "v1"), test("/a", "v1").into(), None);
    };
    write(&store, both).unwrap();
    let begin = Instant::now();
    while store.state().get(Kind::Routes, "v1").is_some() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never expired");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The failing test does not block an unrelated write.
    put(&store, Kind::Routes, "p", &OTHER.replace("\"o\"", "\"p\"").replace("/o", "/p")).unwrap();
    let refused = |written: Result<(), StoreError>, object: &str| {
        let error = written.unwrap_err().to_string();
        assert!(error.contains(object), "{error}");
    };
    refused(put(&store, Kind::Routes, "o", &OTHER.replace("/o", "/elsewhere")), "tests/o");
    refused(put(&store, Kind::Tests, "p", &test("/p", "none")), "tests/p");
    refused(put(&store, Kind::Tests, "v1", &test("/a", "v2")), "tests/v1");
    put(&store, Kind::Tests, "v1", &test("/p", "p")).unwrap();
}

#[test]
fn tests_pass_on_last_good_versions() {
    let broken: Arc<str> = V1.replace("\"1\"", "[]").into();
    let versions = Arc::new(LastGoodVersions::default());
    let memory: Arc<dyn Store> = Arc::new(MemoryMedium::store(100).unwrap());
    let store = GuardedStore::new(
        memory,
        Arc::new(TrialCompiler::new(&offline::compiler(&Default::default()), Default::default())),
        versions.clone(),
    );
    let served = test("/a", "v1").replace("\"route\"", "\"status\":200,\"route\"");
    // A write that bypasses the guard.
    put(&store, Kind::Routes, "v1", &broken).unwrap();
    assert!(put(&store, Kind::Tests, "t", &served).is_err(), "nothing is in force in its place");
    let version =
        LastGoodVersion { key: ResourceKey::new(Kind::Routes, "v1"), json: V1.into(), instead_of: broken };
    versions.report(store.state().revision, vec![version]);
    put(&store, Kind::Tests, "t", &served).unwrap();
    let before = OTHER.replace("/o", "/a").replace("{\"id\"", "{\"priority\":9,\"id\"");
    let refused = put(&store, Kind::Routes, "o", &before).unwrap_err().to_string();
    assert!(refused.contains("tests/t"), "{refused}");
}
