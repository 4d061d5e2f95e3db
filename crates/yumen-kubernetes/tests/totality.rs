//! No object makes the translation panic: every member of every object of the goldens is replaced by values of other
//! types and of other ranges, one at a time.

mod cluster;

use std::path::Path;

use serde_json::{Value, json};

use cluster::{CaseSettings, ModelCluster};

/// Members without which the model cluster cannot store an object.
const REQUIRED: [&str; 5] = ["/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace"];

#[test]
fn odd_values_do_not_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let mut count = 0;
    for group in std::fs::read_dir(folder).expect("a folder of goldens") {
        let entries = std::fs::read_dir(group.expect("a group of goldens").path()).expect("a folder");
        for path in entries.map(|entry| entry.expect("a case").path()) {
            let text = std::fs::read_to_string(&path).expect("a readable case");
            count += replace_members(&cluster::documents(&text).expect("YAML"));
        }
    }
    assert!(count > 1000, "{count} replacements");
}

/// Runs the first step of a case with every replacement. Returns their number.
fn replace_members(documents: &[Value]) -> usize {
    let settings = documents.iter().find(|document| document["kind"] == "Settings");
    let objects = documents.iter().filter(|document| document["kind"] != "Settings");
    let objects: Vec<&Value> =
        objects.take_while(|document| document["kind"] != "Step" && document["kind"] != "Expected").collect();
    let mut cluster = ModelCluster::new(CaseSettings::read(settings).without_schema());
    cluster.step(objects.iter().copied().cloned().collect(), &[]);
    let mut count = 0;
    for object in objects {
        let mut members = Vec::new();
        collect_members(object, String::new(), &mut members);
        members.retain(|member| !REQUIRED.contains(&member.as_str()));
        for member in members {
            for odd in odd_values() {
                let mut changed = object.clone();
                if let Some(value) = changed.pointer_mut(&member) {
                    *value = odd;
                }
                cluster.step(vec![changed], &[]);
                count += 1;
            }
        }
        cluster.step(vec![object.clone()], &[]);
    }
    count
}

fn odd_values() -> [Value; 9] {
    [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(65_536),
        json!(""),
        json!("*.\u{e9}..\u{0}/!"),
        json!([null, {}, [], "x"]),
        json!({ "a": { "b": [1] } }),
    ]
}

/// JSON pointers of all members and items.
fn collect_members(value: &Value, at: String, members: &mut Vec<String>) {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => {
            object.iter().map(|(name, member)| (format!("{at}/{}", escaped(name)), member)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| (format!("{at}/{index}"), item)).collect()
        }
        _ => Vec::new(),
    };
    for (at, member) in inner {
        members.push(at.clone());
        collect_members(member, at, members);
    }
}
