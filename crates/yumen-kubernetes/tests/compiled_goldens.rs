//! The compiler has no objection to the routes, upstreams, plugins and consumers of the goldens.

mod compiler;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use yumen_config::{Kind, Resource};

#[test]
fn translated_resources_compile_without_problems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let mut count = 0;
    for group in std::fs::read_dir(folder).expect("a folder of goldens") {
        for entry in std::fs::read_dir(group.expect("a group").path()).expect("a group of goldens") {
            let path = entry.expect("a case").path();
            let text = std::fs::read_to_string(&path).expect("a readable case");
            let resources = first_resources(&documents(&text));
            count += resources.len();
            let mut problems = compiler::compile(resources).problems;
            let concerned = [
                "routes/",
                "stream_routes/",
                "upstreams/",
                "plugin_configs/",
                "plugin_metadata/",
                "global_rules/",
                "consumers/",
                "credentials/",
            ];
            problems.retain(|problem| !problem.message.starts_with("not in force yet"));
            problems.retain(|problem| concerned.iter().any(|kind| problem.object.starts_with(kind)));
            assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
        }
    }
    assert!(count > 100, "{count} resources");
}

fn documents(text: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
    all.collect::<Result<_, _>>().expect("YAML")
}

/// The resources of the first step of a case.
fn first_resources(documents: &[Value]) -> Vec<Resource> {
    let expected = documents.iter().find(|document| document["kind"] == "Expected");
    let resources = expected.and_then(|expected| expected["deltas"][0]["resources"].as_object());
    let resource = |(name, value): (&String, &Value)| {
        let (kind, id) = name.split_once('/').expect("kind and id");
        let kind = Kind::ALL.iter().copied().find(|one| one.name() == kind).expect("a kind");
        Resource::new(kind, id, value)
    };
    // A marked resource is broken on purpose.
    let is_whole = |(_, value): &(&String, &Value)| value.get("$broken").is_none();
    resources.into_iter().flatten().filter(is_whole).map(resource).collect()
}
