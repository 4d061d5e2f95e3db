//! Translation goldens: `tests/goldens/*/*.yaml`. Each file is a sequence of documents:
//!
//! - objects, as in a cluster; `stringData` of Secrets is encoded, a missing creation time is 2026-01-01;
//! - `kind: Step` ends a delta; the objects after it are changes. Its `delete` lists objects, as `Gateway/shop/web`;
//! - `kind: Settings` before all objects: `mode`, `service_type`, `zone`, `publish_addresses`; `flags` of
//!   ingress-nginx and `take_over`, by which statuses of its class are written; `leads:
//!   false`, by which Services that the translation asks for are not created; `shows_objects: true` for whole objects;
//! - `kind: Expected` at the end: the deltas, one per step, as the process would apply and write them.
//!
//! `GOLDEN=name` runs the files whose path contains it. `GOLDEN_UPDATE=1` rewrites `Expected`; check the difference then.

mod cluster;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use cluster::{CaseSettings, ModelCluster};

#[test]
fn translations_are_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let filter = std::env::var("GOLDEN").unwrap_or_default();
    let mut files = Vec::new();
    for group in std::fs::read_dir(&folder).unwrap() {
        let entries = std::fs::read_dir(group.unwrap().path()).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.retain(|path| path.to_string_lossy().contains(&filter));
    files.sort();
    assert!(!files.is_empty(), "no golden matches `{filter}`");
    let failures: Vec<String> = files.iter().filter_map(check).collect();
    assert!(failures.is_empty(), "{}\nGOLDEN_UPDATE=1 rewrites", failures.join("\n"));
}

/// Compares one file. Returns the difference.
fn check(path: &PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(path).expect("a readable case");
    let documents = cluster::documents(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let deltas = translate(&documents);
    let expected = documents.last().filter(|document| document["kind"] == "Expected");
    let found = json!({ "kind": "Expected", "deltas": deltas });
    if expected == Some(&found) {
        return None;
    }
    if std::env::var_os("GOLDEN_UPDATE").is_some() {
        let objects = text.split("---\nkind: Expected\n").next().unwrap_or_default().trim_end();
        let written = serde_yaml_ng::to_string(&found).expect("YAML");
        std::fs::write(path, format!("{objects}\n---\n{written}")).expect("a writable case");
        return None;
    }
    let expected = serde_yaml_ng::to_string(&expected).expect("YAML");
    let found = serde_yaml_ng::to_string(&found).expect("YAML");
    let differs = expected.lines().zip(found.lines()).position(|(left, right)| left != right);
    let line = differs.unwrap_or(expected.lines().count().min(found.lines().count()));
    let near = |text: &str| text.lines().skip(line.saturating_sub(6)).take(12).collect::<Vec<_>>().join("\n");
    Some(format!("{}:\n--- expected\n{}\n--- found\n{}", path.display(), near(&expected), near(&found)))
}

fn translate(documents: &[Value]) -> Vec<Value> {
    let settings = documents.iter().find(|document| document["kind"] == "Settings");
    let mut cluster = ModelCluster::new(CaseSettings::read(settings));
    let (mut deltas, mut objects) = (Vec::new(), Vec::new());
    let mut deleted: Vec<Value> = Vec::new();
    for document in documents {
        match document["kind"].as_str() {
            Some("Settings" | "Expected") => {}
            Some("Step") => {
                deltas.push(cluster.step(std::mem::take(&mut objects), &deleted));
                deleted = document["delete"].as_array().cloned().unwrap_or_default();
            }
            _ => objects.push(document.clone()),
        }
    }
    deltas.push(cluster.step(objects, &deleted));
    deltas
}
