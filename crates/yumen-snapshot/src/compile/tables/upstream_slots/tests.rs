use serde_json::json;
use yumen_config::{Kind, Resource};

use super::RESTING_MAX;
use crate::compile::ConfigChange;
use crate::compile::names::ObjectName;
use crate::testing::compiler;

#[test]
fn freed_slots_are_reused_unless_a_plugin_knows_them() {
    let mut compiler = compiler();
    let name = |id: &str| ObjectName::new(Kind::Upstreams, id);
    let put = |id: &str| {
        let value = json!({ "nodes": { "10.0.0.1:80": 1 } });
        ConfigChange::Put(Resource::new(Kind::Upstreams, id, &value))
    };
    compiler.apply(vec![put("a"), put("b")], 1);
    let slots = &mut compiler.upstreams;
    let [a, b] = ["a", "b"].map(|id| slots.slot_of(&name(id)).expect("placed"));
    slots.pin(&[a.0]);
    slots.remove(&name("a"));
    slots.remove(&name("b"));
    assert!(!slots.contains(&name("a")) && slots.upstream_of(&name("b")).is_none());
    compiler.apply(vec![put("c"), put("d")], 2);
    let [c, d] = ["c", "d"].map(|id| compiler.upstreams.slot_of(&name(id)).expect("placed"));
    assert_eq!(c, b);
    assert!(d != a && d != b);
    assert_eq!(compiler.upstreams.table().len(), 3);
}

#[test]
fn a_slot_that_plugins_knew_rests_before_it_is_reused() {
    let mut compiler = compiler();
    let name = |id: &str| ObjectName::new(Kind::Upstreams, id);
    let put = |id: &str| {
        let value = json!({ "nodes": { "10.0.0.1:80": 1 } });
        ConfigChange::Put(Resource::new(Kind::Upstreams, id, &value))
    };
    // A mirror whose upstream changes with each revision.
    let route = |to: &str| {
        let mirrors = json!([{ "upstream_id": to }]);
        let value = json!({ "uri": "/", "actions": { "mirrors": mirrors }, "upstream_id": to });
        ConfigChange::Put(Resource::new(Kind::Routes, "1", &value))
    };
    let mut last = String::new();
    for at in 0..RESTING_MAX + 100 {
        let id = at.to_string();
        let mut changes = vec![put(&id), route(&id)];
        if !last.is_empty() {
            changes.push(ConfigChange::Delete(Kind::Upstreams, last.as_str().into()));
        }
        compiler.apply(changes, at as u64);
        let slots = &compiler.upstreams;
        let slot = slots.slot_of(&name(&id)).expect("placed").0;
        assert!(!slots.resting.contains(&slot) && !slots.free.contains(&slot));
        last = id;
    }
    assert!(compiler.upstreams.table().len() <= RESTING_MAX + 4);
    assert_eq!(compiler.upstreams.pinned.len(), 1);
}
