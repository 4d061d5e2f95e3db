use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::visit;

#[test]
fn references_are_found_with_their_paths() {
    let object = json!({
        "plugins": { "key-auth": { "key": "$secret://vault/1/jack/key" }, "first": { "list": ["a", "$SECRET://aws/1/a"] } },
        "desc": "like $secret://vault/1/a/b",
        "key": "$env://KEY",
    });
    let mut found = BTreeMap::new();
    visit(&object, "", &mut |path, reference| drop(found.insert(path.to_owned(), reference.to_owned())));
    let expected = [
        ("plugins.first.list[1]", "$SECRET://aws/1/a"),
        ("plugins.key-auth.key", "$secret://vault/1/jack/key"),
    ];
    let expected = expected.map(|(path, reference)| (path.to_owned(), reference.to_owned()));
    assert_eq!(found, expected.into());
    visit(&Value::Null, "", &mut |_, _| panic!("no reference"));
}
