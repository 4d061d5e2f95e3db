use std::sync::Arc;

use yumen_config::Kind;
use yumen_plugin::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, HttpFetch, SecretFetch,
};

use super::{FetchFailure, FetchedDocuments, FetchedResult, RequestedFetch};
use crate::compile::names::ObjectName;
use crate::compile::tables::InputEffect;

fn request(delivery: FetchDelivery) -> FetchRequest {
    let fetch = HttpFetch {
        url: "https://idp.test/keys".to_owned(),
        fields: Vec::new(),
        verify: true,
        ca_pem: None,
        proxy: None,
        timeout_ms: 1000,
    };
    FetchRequest {
        source: FetchSource::Http(Box::new(fetch)),
        format: FetchFormat { name: "text", bytes_max: 10, parse: |_| Err(String::new()) },
        delivery,
        refresh: FetchRefresh { interval_s: 60 },
    }
}

fn secret() -> FetchRequest {
    let fetch = SecretFetch { manager: "vault/1".into(), settings: "{}".into(), key: "jack/key".into() };
    FetchRequest { source: FetchSource::Secret(Box::new(fetch)), ..request(FetchDelivery::Rebuild) }
}

fn owner(id: &str) -> ObjectName {
    ObjectName::new(Kind::Routes, id)
}

fn requested(request: &FetchRequest, cell: &Arc<FetchedCell>) -> Vec<RequestedFetch> {
    vec![RequestedFetch { request: Arc::new(request.clone()), cell: cell.clone(), path: "plugins.p".into() }]
}

fn value() -> FetchedResult {
    FetchedResult { value: Some(Arc::new(1_u8)), ..FetchedResult::default() }
}

fn failing(is_absent: bool) -> FetchedResult {
    FetchedResult {
        failure: Some(FetchFailure { message: "refused".into(), is_absent }),
        ..FetchedResult::default()
    }
}

fn ids(names: &[ObjectName]) -> Vec<&str> {
    names.iter().map(|name| &*name.id).collect()
}

#[test]
fn a_value_stages_its_users_only_if_they_are_built_from_it() {
    for (delivery, expected) in [(FetchDelivery::Rebuild, vec!["a", "b"]), (FetchDelivery::InPlace, vec![])] {
        let (mut table, cell, request) =
            (FetchedDocuments::default(), Arc::<FetchedCell>::default(), request(delivery));
        table.require(&owner("a"), requested(&request, &cell), 1);
        table.require(&owner("b"), requested(&request, &cell), 2);
        assert_eq!(table.len(), 1, "equal requests are one");
        let InputEffect { restaged, .. } = table.set(&request, value());
        assert_eq!(ids(&restaged), expected, "{delivery:?}");
        assert_eq!(cell.generation(), 1);
    }
}

#[test]
fn a_value_that_nobody_requires_any_more_is_dropped() {
    let (mut table, cell, request) =
        (FetchedDocuments::default(), Arc::<FetchedCell>::default(), request(FetchDelivery::Rebuild));
    table.require(&owner("a"), requested(&request, &cell), 1);
    table.release_others(&owner("a"), &[]);
    assert!(!table.has_owner(&owner("a")));
    // Required again within the change, it stays.
    table.require(&owner("b"), requested(&request, &cell), 2);
    assert!(!table.remove_unused());
    table.release_others(&owner("b"), &[]);
    assert!(table.remove_unused());
    assert_eq!((table.len(), table.set(&request, value()).restaged.len()), (0, 0));
    assert_eq!(cell.generation(), 0);
}

#[test]
fn failures_are_problems_of_the_users() {
    let (mut table, cell, request) =
        (FetchedDocuments::default(), Arc::<FetchedCell>::default(), request(FetchDelivery::Rebuild));
    table.require(&owner("a"), requested(&request, &cell), 1);
    let problems = |table: &FetchedDocuments| -> Vec<String> {
        let all = table.problems_of(&owner("a"));
        all.iter().map(|one| format!("{:?} {}: {}", one.level, one.path, one.message)).collect()
    };
    let effect = table.set(&request, failing(false));
    assert_eq!((ids(&effect.reported), ids(&effect.restaged)), (vec!["a"], vec!["a"]));
    assert_eq!(problems(&table), ["Error plugins.p: https://idp.test/keys cannot be fetched: refused"]);
    let effect = table.set(&request, failing(false));
    assert!(effect.reported.is_empty() && effect.restaged.is_empty(), "a repeated failure is no news");
    table.set(&request, value());
    assert!(problems(&table).is_empty());
    let effect = table.set(&request, failing(false));
    assert!(effect.restaged.is_empty(), "the value stays in use");
    assert_eq!(problems(&table), ["Warning plugins.p: https://idp.test/keys cannot be refreshed: refused"]);
    table.set(&request, failing(true));
    assert_eq!(problems(&table), ["Error plugins.p: https://idp.test/keys has ended: refused"]);
    assert_eq!(table.failing_owners().count(), 1);
}

#[test]
fn a_secret_without_a_value_is_a_problem_of_the_refused_object_alone() {
    let (mut table, cell) = (FetchedDocuments::default(), Arc::<FetchedCell>::default());
    table.require(&owner("a"), requested(&secret(), &cell), 1);
    assert_eq!(ids(&table.set(&secret(), failing(true)).restaged), ["a"], "staged again for the new reason");
    assert!(table.problems_of(&owner("a")).is_empty());
    assert_eq!(table.failing_owners().count(), 1);
}
