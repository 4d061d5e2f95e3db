use serde_json::{Value, json};

use super::{full_path, is_versioned, secret_in};

#[test]
fn the_secret_is_found_in_both_versions() {
    for (body, expected) in [
        (json!({ "data": { "key": "a" } }), json!({ "key": "a" })),
        (json!({ "data": { "data": { "key": "a" }, "metadata": { "version": 2 } } }), json!({ "key": "a" })),
        // A secret of version 1 with a member of that name.
        (json!({ "data": { "data": { "key": "a" } } }), json!({ "data": { "key": "a" } })),
        (json!({ "data": null }), Value::Null),
        (json!({}), Value::Null),
    ] {
        assert_eq!(secret_in(&body).cloned().unwrap_or_default(), expected, "{body}");
    }
}

#[test]
fn the_mount_is_followed_by_data_in_version_2() {
    for (prefix, mount, expected) in [
        (&["kv", "gateway"][..], None, "kv/gateway/jack"),
        (&["kv", "gateway"], Some(1), "kv/data/gateway/jack"),
        (&["kv", "gateway"], Some(2), "kv/gateway/data/jack"),
        (&["kv"], Some(9), "kv/data/jack"),
        (&[], None, "jack"),
    ] {
        assert_eq!(full_path(prefix, mount, "jack"), expected);
    }
    let warning = "Invalid path for a versioned K/V secrets engine. See the API docs.";
    assert!(is_versioned(&json!({ "errors": [], "warnings": [warning] })));
    assert!(!is_versioned(&json!({ "errors": [], "warnings": null })));
}
