//! The objects of a golden, stored and deleted in random orders, end in the same state as their translation at once.

mod cluster;

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use cluster::{CaseSettings, ModelCluster};

/// The objects of each golden, with all their versions.
fn pools() -> Vec<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let mut pools = Vec::new();
    for group in ["routes", "policy", "apisix", "ingress"] {
        for entry in std::fs::read_dir(folder.join(group)).expect("a folder of goldens") {
            let text = std::fs::read_to_string(entry.expect("a case").path()).expect("a readable case");
            let mut objects = cluster::documents(&text).expect("YAML");
            objects.retain(|object| object["metadata"]["name"].is_string());
            pools.push(objects);
        }
    }
    assert!(!pools.is_empty(), "no goldens");
    pools
}

fn name_of(object: &Value) -> String {
    let member = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, namespace) = (member(&object["kind"]), member(&object["metadata"]["namespace"]));
    let name = member(&object["metadata"]["name"]);
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_changes_does_not_matter(
        pool in any::<Index>(),
        batches in prop::collection::vec(
            prop::collection::vec((any::<Index>(), prop::bool::weighted(0.7)), 1..6),
            1..16,
        ),
    ) {
        let pools = pools();
        let pool = &pools[pool.index(pools.len())];
        let mut incremental = ModelCluster::new(CaseSettings::read(None));
        let mut present: BTreeMap<String, Value> = BTreeMap::new();
        for batch in &batches {
            // A batch has one change per object, as a step of the model cluster needs.
            let changes: BTreeMap<String, (&Value, bool)> = (batch.iter())
                .map(|(index, is_put)| (&pool[index.index(pool.len())], *is_put))
                .map(|(object, is_put)| (name_of(object), (object, is_put)))
                .collect();
            let (mut objects, mut deleted) = (Vec::new(), Vec::new());
            for (name, (object, is_put)) in changes {
                if is_put {
                    present.insert(name, object.clone());
                    objects.push(object.clone());
                } else if present.remove(&name).is_some() {
                    deleted.push(Value::from(name));
                }
            }
            incremental.step(objects, &deleted);
        }
        let mut fresh = ModelCluster::new(CaseSettings::read(None));
        fresh.step(incremental.all_objects(), &[]);
        prop_assert_eq!(incremental.state(), fresh.state());
    }
}
