//! The compiler has no objection to the resources of the goldens, after each step.

mod compiler;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use yumen_config::{Kind, Resource};

#[test]
fn translated_resources_compile_without_problems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let (mut count, mut failures) = (0, Vec::new());
    for group in std::fs::read_dir(folder).expect("a folder of goldens") {
        for entry in std::fs::read_dir(group.expect("a group").path()).expect("a group of goldens") {
            let path = entry.expect("a case").path();
            let text = std::fs::read_to_string(&path).expect("a readable case");
            let mut resources = BTreeMap::new();
            for (step, delta) in deltas(&text).iter().enumerate() {
                apply(delta, &mut resources);
                count += resources.len();
                let problems = compiler::compile(resources.values().cloned().collect()).problems;
                let unexpected = problems.iter().filter(|one| !is_intended(&path, &one.message));
                failures.extend(unexpected.map(|one| format!("{} {step}: {one}", path.display())));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 300, "{count} resources");
}

/// Whether a problem is the purpose of a case.
fn is_intended(case: &Path, message: &str) -> bool {
    let intended = [
        ("traffic-policy.yaml", "does not exist or is broken"),
        ("route-match.yaml", "Lua functions are not supported"),
        ("apisix/upstream.yaml", "does not exist or is broken"),
        (
            "apisix/route-plugins.yaml",
            "plugin config shared/common!apisix-plugins does not exist or is broken",
        ),
        ("apisix/route-plugins.yaml", "is not available in this version"),
        ("apisix/apisix-consumer.yaml", "is not available in this version"),
    ];
    intended.iter().any(|(name, text)| case.ends_with(name) && message.contains(text))
}

/// The expected deltas of a case.
fn deltas(text: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
    let documents = all.collect::<Result<Vec<_>, _>>().expect("YAML");
    let expected = documents.iter().find(|document| document["kind"] == "Expected");
    expected.and_then(|expected| expected["deltas"].as_array().cloned()).expect("deltas")
}

fn apply(delta: &Value, resources: &mut BTreeMap<String, Resource>) {
    for (name, value) in delta["resources"].as_object().into_iter().flatten() {
        let (kind, id) = name.split_once('/').expect("kind and id");
        let kind = Kind::ALL.iter().copied().find(|one| one.name() == kind).expect("a kind");
        // A marked resource is broken on purpose.
        match value == "deleted" || value.get("$broken").is_some() {
            true => resources.remove(name),
            false => resources.insert(name.clone(), Resource::new(kind, id, value)),
        };
    }
}
