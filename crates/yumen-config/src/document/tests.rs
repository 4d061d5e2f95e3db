//! Documents: their resources and problems; no input makes the reader panic.

use serde_json::{Value, json};

use super::{parse, parse_literally, to_json, to_yaml, unreadable_section};
use crate::resource::{Kind, Resource, RouteSpec, decode, defects, is_position_id};

fn environment(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("1980".into()),
        "HOST" => Some("example.com".into()),
        _ => None,
    }
}

fn read(text: &str) -> (Vec<(String, Value)>, Vec<String>) {
    let (resources, problems) = parse(text, &environment);
    let resources = resources
        .iter()
        .map(|resource| (resource.to_string(), serde_json::from_str(&resource.json).expect("compact JSON")))
        .collect();
    (resources, problems.iter().map(ToString::to_string).collect())
}

fn check(text: &str, resources: &[(&str, Value)], problems: &[&str]) {
    let (found, found_problems) = read(text);
    let expected: Vec<_> = resources.iter().map(|(id, value)| ((*id).to_owned(), value.clone())).collect();
    assert_eq!(found, expected, "{text}");
    assert_eq!(found_problems, problems, "{text}");
}

#[test]
fn yaml_and_json_give_the_same_resources() {
    let expected = [
        ("routes/1", json!({"id": 1, "uri": "/a", "upstream": {"nodes": {"127.0.0.1:80": 1}}})),
        ("consumers/jack", json!({"username": "jack"})),
    ];
    let yaml = "routes:\n- id: 1\n  uri: /a\n  upstream: {nodes: {\"127.0.0.1:80\": 1}}\nconsumers:\n- username: jack\n#END\n";
    check(yaml, &expected, &[]);
    let json = r#" {"routes": [{"id": 1, "uri": "/a", "upstream": {"nodes": {"127.0.0.1:80": 1}}}],
        "consumers": [{"username": "jack"}]}"#;
    check(json, &expected, &[]);
}

#[test]
fn yaml_scalars_keep_their_types() {
    let yaml =
        "routes:\n- id: \"1\"\n  a: 1\n  b: true\n  c: null\n  d: \"1\"\n  e: 1.5\n  f: no\n  g: ~\n  1: x\n";
    let value =
        json!({"id": "1", "a": 1, "b": true, "c": null, "d": "1", "e": 1.5, "f": "no", "g": null, "1": "x"});
    check(yaml, &[("routes/1", value)], &[]);
}

#[test]
fn anchors_and_merge_keys_are_followed() {
    let yaml = "upstreams:\n- &u\n  id: a\n  type: chash\n- <<: *u\n  id: b\n";
    let expected = [
        ("upstreams/a", json!({"id": "a", "type": "chash"})),
        ("upstreams/b", json!({"id": "b", "type": "chash"})),
    ];
    check(yaml, &expected, &[]);
}

#[test]
fn aliases_cannot_explode() {
    let mut yaml = String::from("x:\n- &a0 [1,1,1,1,1,1,1,1,1,1]\n");
    for i in 1..12 {
        yaml.push_str(&format!("- &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    }
    yaml.push_str("routes:\n- id: 1\n  vars: *a11\n");
    let (resources, problems) = read(&yaml);
    assert!(resources.is_empty());
    assert!(problems[0].contains("repetition limit"), "{problems:?}");
}

#[test]
fn aliases_cannot_repeat_a_long_text_without_end() {
    let long = "x".repeat(200_000);
    let yaml = format!("x: &a {long}\nroutes:\n- id: 1\n  vars: [{}]\n", vec!["*a"; 20_000].join(","));
    let (resources, problems) = read(&yaml);
    assert!(resources.is_empty());
    assert!(problems[0].contains("repeat too much text"), "{problems:?}");
    let error = crate::duplicate_keys::from_yaml(yaml.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("repeat too much text"), "{error}");
}

#[test]
fn nesting_without_end_is_a_problem() {
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    for text in [format!("routes:\n- id: 1\n  vars: {deep}\n"), format!("{{\"routes\": [{deep}]}}")] {
        let (resources, problems) = read(&text);
        assert!(resources.is_empty());
        assert!(problems[0].contains("recursion limit"), "{problems:?}");
    }
}

#[test]
fn the_end_marker_is_the_last_line_and_elsewhere_a_comment() {
    let both = [("routes/1", json!({"id": 1})), ("routes/2", json!({"id": 2}))];
    check("routes:\n- id: 1\n#END\n- id: 2\n", &both, &[]);
    check("routes:\n- id: 1\n- id: 2\n#END \n\n", &both, &[]);
    check("{\"routes\": [{\"id\": 1}, {\"id\": 2}]}\n#END", &both, &[]);
    check("routes:\n- id: 1", &[("routes/1", json!({"id": 1}))], &[]);
    for nothing in ["#END\n", "# only\n\n#END", "routes:\n", "routes: []\n", "{}", "{\"routes\": {}}", "~"] {
        check(nothing, &[], &[]);
    }
}

#[test]
fn variables_are_replaced_and_typed() {
    let yaml = "routes:\n- id: 1\n  port: ${{PORT}}\n  url: \"http://${{ HOST }}:${{PORT}}/\"\n  off: ${{NONE:=false}}\n  \"${{HOST}}\": 1\n  open: \"${{\"\n";
    let value = json!({"id": 1, "port": 1980, "url": "http://example.com:1980/", "off": false, "example.com": 1, "open": "${{"});
    check(yaml, &[("routes/1", value)], &[]);
    let yaml = "routes:\n- id: 1\n  plugins: {a: {key: [\"${{MISSING}}\"]}}\n- id: 2\n";
    let broken = json!({
        "id": 1,
        "plugins": { "a": { "key": ["${{MISSING}}"] } },
        "$broken": [{
            "path": "plugins.a.key[0]",
            "message": "the environment variable \"MISSING\" is not set",
            "hint": "set it, or write ${{MISSING:=default}}",
        }],
    });
    check(yaml, &[("routes/1", broken), ("routes/2", json!({"id": 2}))], &[]);
}

/// The first route of a text, where each variable has the value that stands for it here.
fn first_route(text: &str, variables: &[(&str, &str)]) -> Value {
    let lookup =
        |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
    let (resources, problems) = parse(text, &lookup);
    assert_eq!(problems, [], "{text}");
    serde_json::from_str(&resources[0].json).unwrap()
}

/// Checks the member `a` of a route for a value of the variable `V`.
fn check_variable(written: &str, value: &str, expected: Value) {
    let text = format!("routes:\n- id: 1\n  a: {written}\n  b: 2\n");
    let route = first_route(&text, &[("V", value)]);
    assert_eq!(route, json!({ "id": 1, "a": expected, "b": 2 }), "{written} with {value:?}");
}

#[test]
fn quotes_around_a_variable_decide_about_its_type() {
    for (written, value, expected) in [
        ("${{V}}", "80", json!(80)),
        ("\"${{V}}\"", "80", json!("80")),
        ("'${{ V }}'", "true", json!("true")),
        ("${{V}}", "1.5", json!(1.5)),
        ("${{V}}", "true", json!(true)),
        ("${{V}}", "\"80\"", json!("80")),
        ("90${{V}}", "80", json!(9080)),
        ("${{V}}${{V}}  # twice", "8", json!(88)),
        ("${{V}}:${{V}}", "8", json!("8:8")),
        ("host ${{V}}", "8", json!("host 8")),
        ("http://h:${{V}}/${{V}}", "8", json!("http://h:8/8")),
        ("[${{V}}, \"${{V}}\", ${{V}}]", "8", json!([8, "8", 8])),
        ("{x: ${{V}},y: \"${{V}}\"}", "8", json!({ "x": 8, "y": "8" })),
        ("\"x: ${{V}}\"", "8", json!("x: 8")),
        ("|\n    ${{V}}\n    x: ${{V}}", "8", json!("8\nx: 8\n")),
        ("{${{V}}: 1, x${{V}}: 2}", "8", json!({ "8": 1, "x8": 2 })),
        ("\n    ${{V}}", "8", json!(8)),
        ("\n  - ${{V}}", "8", json!([8])),
        // An empty variable is set, so the default does not replace it. YAML reads an absent value as null.
        ("${{V:=9}}", "", json!(null)),
        ("${{V}}", " ", json!(null)),
        ("${{W:=}}", "", json!(null)),
        ("${{V}}${{V}}", "", json!(null)),
        ("${{V}}", "null", json!(null)),
        ("${{V}}", "~", json!(null)),
        ("[a, ${{V}}]", "", json!(["a", null])),
        ("{x: ${{V}}}", "~", json!({ "x": null })),
        ("\"${{V}}\"", "", json!("")),
        ("'${{V}}'", "null", json!("null")),
        ("${{V}}", "\"~\"", json!("~")),
        ("x${{V}}", "", json!("x")),
        ("nul${{V}}", "l", json!(null)),
        ("${{W:=9}}", "", json!(9)),
        ("${{W:={\"x\": [1]}}} # json", "", json!({ "x": [1] })),
        ("${{-V}} ${{}}", "8", json!("${{-V}} ${{}}")),
    ] {
        check_variable(written, value, expected);
    }
}

#[test]
fn a_value_is_one_value_whatever_its_characters() {
    for value in [
        "x\n  c: 3",
        "x # y",
        "x: y",
        "\"",
        "'a",
        "*x",
        "&x y",
        "!x",
        "- a",
        "a, b",
        "}",
        "${{V}}",
        "| x",
        "%",
    ] {
        for written in ["${{V}}", "\"${{V}}\"", "[${{V}}]", "x${{V}}"] {
            let bare = if written.starts_with('x') { format!("x{value}") } else { value.to_owned() };
            let expected = if written.starts_with('[') { json!([bare]) } else { json!(bare) };
            check_variable(written, value, expected);
        }
    }
    // A JSON object or list is that object or list, and is closed where it ends.
    for (value, expected) in [
        ("{\"x\": {\"y\": \"z\\n\"}}", json!({ "x": { "y": "z\n" } })),
        ("[1, \"a\"]", json!([1, "a"])),
        ("{x: 1}", json!({ "x": 1 })),
        ("{\"x\": 1}\nc: 2", json!("{\"x\": 1}\nc: 2")),
        ("{\"x\": 1, \"x\": 2}", json!("{\"x\": 1, \"x\": 2}")),
    ] {
        check_variable("${{V}}", value, expected.clone());
        check_variable("\"${{V}}\"", value, json!(value));
    }
}

#[test]
fn variables_stand_for_lists_names_and_nothing_in_comments() {
    let text = "# ${{MISSING}}\n${{KIND}}: ${{ALL}} # or ${{OTHER}}\n#END\n";
    let route = first_route(text, &[("KIND", "routes"), ("ALL", "[{\"id\": 7}]")]);
    assert_eq!(route, json!({ "id": 7 }));
    let item = first_route("routes:\n- ${{R}}\n", &[("R", "{id: 8, uri: /x}")]);
    assert_eq!(item, json!({ "id": 8, "uri": "/x" }));
    let (resources, problems) = read("routes: ${{MISSING}}\n${{GONE}}: []\n");
    assert!(resources.is_empty());
    let expected = [
        "error: file at routes: the environment variable \"MISSING\" is not set\n  hint: set it, or write ${{MISSING:=default}}",
        "error: file: the environment variable \"GONE\" is not set\n  hint: set it, or write ${{GONE:=default}}",
        "warning: file at ${{GONE}}: unknown section \"${{GONE}}\" is ignored",
    ];
    assert_eq!(problems, expected);
    // The marks of this module in a text are text.
    let odd = "700000000000000000000 \u{e000}0\u{e000}";
    let route = first_route(&format!("routes:\n- id: 1\n  a: \"{odd} ${{{{V}}}}\"\n"), &[("V", "8")]);
    assert_eq!(route["a"], format!("{odd} 8"));
}

#[test]
fn a_flow_mapping_and_raw_line_breaks_in_json_are_documents() {
    check("{routes: [{id: 1, uri: /a}]}\n#END", &[("routes/1", json!({"id": 1, "uri": "/a"}))], &[]);
    let json = "{\"protos\": [{\"id\": \"1\", \"content\": \"syntax;\n\tmessage\"}]}";
    check(json, &[("protos/1", json!({"id": "1", "content": "syntax;\n\tmessage"}))], &[]);
    let (_, problems) = read("{\"protos\": [{\"content\": \"a\nb\"},\n x]}");
    assert_eq!(
        problems,
        [
            "error: file: expected value at line 3 column 2\n  hint: write a JSON value: texts are in double quotes"
        ]
    );
}

/// The resources of a text, and the paths of their defects.
fn defects_of(text: &str) -> Vec<(String, Vec<String>)> {
    let (resources, problems) = parse(text, &environment);
    assert_eq!(problems, [], "{text}");
    let paths = |one: &Resource| defects(&one.json).into_iter().map(|defect| defect.path).collect();
    resources.iter().map(|one| (one.to_string(), paths(one))).collect()
}

#[test]
fn an_object_with_a_variable_that_is_not_set_is_there_and_is_broken() {
    let yaml = "routes:\n- id: 1\n  uri: /a\n  desc: \"${{A}}\"\n  plugins: {x: {\"${{B}}\": \"${{PORT}}\", y: \"${{C}}\"}}\n";
    let (resources, problems) = parse(yaml, &environment);
    assert_eq!(problems, []);
    let messages: Vec<String> = defects(&resources[0].json).into_iter().map(|one| one.message).collect();
    let unset = |name| format!("the environment variable \"{name}\" is not set");
    assert_eq!(messages, ["A", "C", "B"].map(unset));
    let refused = decode::<RouteSpec>(&resources[0].json).unwrap_err();
    assert_eq!((refused.path.as_str(), refused.message), ("desc", unset("A")));
    // Other variables resolve all the same; an unset variable in an overridden member is no defect.
    let value: Value = serde_json::from_str(&resources[0].json).unwrap();
    assert_eq!(value["plugins"]["x"]["${{B}}"], "1980");
    let merged = "routes:\n- <<: {uri: \"${{A}}\"}\n  id: 1\n  uri: /a\n";
    check(merged, &[("routes/1", json!({ "id": 1, "uri": "/a" }))], &[]);
}

#[test]
fn an_item_without_an_id_is_known_by_its_place() {
    let yaml = "routes:\n- uri: /a\n- id: 7\n  uri: /b\n- uri: /c\n  id: ~\nglobal_rules:\n- plugins: {}\n";
    let expected = [
        ("routes/routes#1", json!({ "uri": "/a" })),
        ("routes/7", json!({ "id": 7, "uri": "/b" })),
        ("routes/routes#3", json!({ "uri": "/c" })),
        ("global_rules/global_rules#1", json!({ "plugins": {} })),
    ];
    check(yaml, &expected, &[]);
    // Positions count across all lists of a kind.
    let json = r#"{"routes": [{"uri": "/a"}], "routes": [{"uri": "/b"}]}"#;
    let expected = [("routes/routes#1", json!({ "uri": "/a" })), ("routes/routes#2", json!({ "uri": "/b" }))];
    let messages = "warning: file at routes: \"routes\" is written more than once; all its items count\n  hint: write one list: other readers take the last alone";
    check(json, &expected, &[messages]);
}

#[test]
fn object_with_a_duplicate_member_is_broken_and_reported() {
    let yaml = "routes:\n- id: 1\n  plugins: {key-auth: {}}\n  plugins: {}\n- id: 2\n  <<: {uri: /a}\n  <<: {desc: b}\n- id: 3\n";
    let json = r#"{"routes": [{"id": 1, "plugins": {"key-auth": {}}, "plugins": {}}, {"id": 2, "<<": 1, "<<": 2}, {"id": 3}]}"#;
    for text in [yaml, json] {
        let broken = |id: &str, path: &str| (format!("routes/{id}"), vec![path.to_owned()]);
        let expected = [broken("1", "plugins"), broken("2", "<<"), ("routes/3".to_owned(), vec![])];
        assert_eq!(defects_of(text), expected, "{text}");
        let (resources, problems) = parse_literally(text);
        assert_eq!(resources, [Resource::new(Kind::Routes, "3", &json!({ "id": 3 }))]);
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "error: routes/1 at plugins: \"plugins\" is written more than once\n  hint: leave one of them",
            "error: routes/2 at <<: \"<<\" is written more than once\n  hint: write the merged mappings as one list: <<: [*a, *b]",
        ];
        assert_eq!(messages, expected, "{text}");
    }
}

#[test]
fn name_that_a_variable_makes_a_duplicate_breaks_the_object() {
    let defects = |text: &str| {
        let lookup = |name: &str| ["plugins", "x"].get(usize::from(name == "X")).map(|one| (*one).to_owned());
        let (resources, problems) = parse(text, &lookup);
        assert_eq!(problems, [], "{text}");
        defects(&resources[0].json)
    };
    for (item, expected) in [
        ("plugins: {key-auth: {}}, ${{V}}: {}", vec!["plugins"]),
        ("${{V}}: {}, plugins: {key-auth: {}}", vec!["plugins"]),
        ("plugins: {}, \"${{V}}\": {}", vec!["plugins"]),
        ("plugins: {}, \"plug${{V}}\": {}", vec![]),
        ("${{V}}: {}, '${{ V }}': {}", vec!["plugins"]),
        ("plugins: {a: {x: 1, ${{X}}: 2}}", vec!["plugins.a.x"]),
        ("plugins: {a: {_meta: {x: 1, \"${{X}}\": 2}}}", vec!["plugins.a._meta.x"]),
        ("vars: [[{x: 1, ${{X}}: 2}]]", vec!["vars[0][0].x"]),
        ("${{V}}: {x: 1, ${{X}}: 2}, plugins: {}", vec!["${{V}}.x", "plugins"]),
        ("${{V}}: {}, ${{X}}: {}", vec![]),
    ] {
        let found = defects(&format!("routes: [{{id: 1, {item}}}]"));
        let paths: Vec<&str> = found.iter().map(|one| &*one.path).collect();
        assert_eq!(paths, expected, "{item}");
    }
    let json = r#"{"routes": [{"id": 1, "plugins": {"key-auth": {}}, "${{V}}": {}}]}"#;
    let found = defects(json);
    assert_eq!(found[0].path, "plugins");
    assert_eq!(found[0].message, "\"plugins\" is written more than once");
    let hint = "leave one of them, or give the variable in the name another value";
    assert_eq!(found[0].hint.as_deref(), Some(hint));
}

#[test]
fn duplicate_section_is_reported() {
    let (_, problems) = parse_literally(r#"{"routes": [{"id": 1}], "services": [], "routes": []}"#);
    let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["error: file at routes: \"routes\" is written more than once"]);
}

#[test]
fn positional_id_cannot_be_written() {
    let yaml = "routes:\n- id: routes#2\n- uri: /a\n";
    assert_eq!(
        defects_of(yaml),
        [("routes/routes#1".to_owned(), vec!["id".to_owned()]), ("routes/routes#2".to_owned(), vec![])]
    );
    assert!(is_position_id(Kind::Routes, "routes#2") && !is_position_id(Kind::Routes, "arr_2"));
    assert!(!is_position_id(Kind::Consumers, "consumers#2"), "who is called so");
}

#[test]
fn an_item_with_an_id_that_is_none_or_another_s_is_there_and_is_broken() {
    let yaml = "plugin_configs:\n- 5\n- id: \"a/b\"\n- id: [1]\n- id: 1\n- id: \"1\"\n- id: \"${{MISSING}}\"\n- id: 2\n";
    let broken = |position: usize, path: &str| {
        (format!("plugin_configs/plugin_configs#{position}"), vec![path.into()])
    };
    let good = |id: &str| (format!("plugin_configs/{id}"), vec![]);
    let expected = [
        broken(1, ""),
        broken(2, "id"),
        broken(3, "id"),
        good("1"),
        broken(5, "id"),
        broken(6, "id"),
        good("2"),
    ];
    assert_eq!(defects_of(yaml), expected);
    let (resources, _) = parse(yaml, &environment);
    let messages: Vec<String> = [4, 5].map(|at| defects(&resources[at].json)[0].message.clone()).into();
    let unset = "the environment variable \"MISSING\" is not set";
    assert_eq!(messages, ["item 5 has the id \"1\" of item 4, which was there before", unset]);
}

#[test]
fn submitted_items_need_ids() {
    let (resources, problems) =
        parse_literally("routes:\n- 5\n- uri: /a\n- id: a/b\n- id: ..\n- id: 1\n- id: 1\n");
    assert_eq!(resources, [Resource::new(Kind::Routes, "1", &json!({ "id": 1 }))]);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let expected = [
        "error: routes[0]: an item must be an object",
        "error: routes[1] at id: property \"id\" is required\n  hint: every item of a document needs its own id",
        "error: routes[2] at id: \"a/b\" is not a valid id\n  hint: 1 to 64 of a-z A-Z 0-9 - _ . are allowed",
        "error: routes[3] at id: \"..\" is not a valid id\n  hint: clients remove the parts . and .. from a URL: rename it",
        "error: routes/1 at id: duplicate id: the first object is used",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn broken_objects_stay_broken_in_exports_and_positional_ones_get_ids() {
    let yaml = "routes:\n- uri: /a\n  plugins: {}\n- uri: /b\n  plugins: {}\n  desc: \"${{A}}\"\n- id: arr_1\n  uri: /c\n  plugins: {}\n- id: arr_1\n  uri: /d\n  plugins: {}\n";
    let (resources, _) = parse(yaml, &environment);
    let (again, problems) = parse_literally(&to_yaml(&resources).unwrap());
    assert_eq!(problems, []);
    let reported: Vec<(String, bool)> =
        again.iter().map(|one| (one.id.to_string(), decode::<RouteSpec>(&one.json).is_ok())).collect();
    let expected = [("arr_1_", true), ("arr_2", false), ("arr_1", true), ("arr_4", false)];
    assert_eq!(reported, expected.map(|(id, is_good)| (id.to_owned(), is_good)));
    // Variables resolve where the file is read.
    let (again, _) = parse(&to_yaml(&resources).unwrap(), &|_| Some("set".to_owned()));
    assert!(again.iter().all(|one| defects(&one.json).is_empty()), "{again:?}");
}

#[test]
fn object_marked_as_broken_is_broken() {
    for mark in [json!(1), json!([]), json!([{}]), json!(null)] {
        let written = json!({ "uri": "/a", "$broken": mark }).to_string();
        assert_eq!(decode::<RouteSpec>(&written).unwrap_err().path, "$broken");
    }
    assert!(
        decode::<RouteSpec>(&json!({ "uri": "/a", "plugins": {}, "desc": "$broken" }).to_string()).is_ok()
    );
}

#[test]
fn one_bad_item_never_blocks_another() {
    let yaml = "consumers:\n- 5\n- plugins: {}\n- username: \"a/b\"\n- username: jack\n- username: jack\n- username: jill\nservices: 7\nsecrets:\n- {}\n";
    let expected =
        [("consumers/jack", json!({"username": "jack"})), ("consumers/jill", json!({"username": "jill"}))];
    let problems = [
        "error: consumers[0]: an item must be an object",
        "error: consumers[1] at username: property \"username\" is required\n  hint: a consumer is identified by its username",
        "error: consumers[2] at id: \"a/b\" is not a valid id\n  hint: 1 to 64 of a-z A-Z 0-9 - _ . are allowed",
        "error: consumers/jack at id: duplicate id: the first object is used",
        "error: file at services: \"services\" must be a list\n  hint: each item starts with \"- \" in YAML",
        "error: secrets[0] at id: property \"id\" is required\n  hint: every item of a document needs its own id",
    ];
    check(yaml, &expected, &problems);
}

#[test]
fn credentials_and_special_ids_are_understood() {
    let yaml = "consumers:\n- username: jack\n- id: jack/credentials/one\n  plugins: {}\ncredentials:\n- id: two\n  username: jack\n- id: three\nsecrets:\n- id: vault/1\nplugin_metadata:\n- id: http-logger\n  modifiedIndex: 3\nroutes_conf_version: 4\n";
    let expected = [
        ("consumers/jack", json!({"username": "jack"})),
        ("credentials/jack/credentials/one", json!({"id": "jack/credentials/one", "plugins": {}})),
        ("credentials/jack/credentials/two", json!({"id": "two"})),
        ("secrets/vault/1", json!({"id": "vault/1"})),
        ("plugin_metadata/http-logger", json!({"id": "http-logger"})),
    ];
    let problem = "error: credentials[1] at username: property \"username\" is required\n  hint: or write the id as user/credentials/id";
    check(yaml, &expected, &[problem]);
}

#[test]
fn unknown_sections_are_reported_with_a_hint() {
    let near =
        "warning: file at route: unknown section \"route\" is ignored\n  hint: did you mean \"routes\"?";
    check("route: [{id: 1}]\nroutes: [{id: 2}]\n", &[("routes/2", json!({"id": 2}))], &[near]);
    check("whatever: 1\n", &[], &["warning: file at whatever: unknown section \"whatever\" is ignored"]);
}

#[test]
fn list_of_plugins_has_no_effect() {
    let warning = "warning: file at plugins: the list \"plugins\" has no effect: every plugin of this version is enabled\n  hint: remove it; objects enable a plugin by its settings in their plugins";
    check("plugins:\n- name: x\nroutes: [{id: 2}]\n", &[("routes/2", json!({"id": 2}))], &[warning]);
}

#[test]
fn mapping_in_place_of_a_list_fails_its_section_alone() {
    for (section, form) in [
        ("plugin_metadata: {http-logger: {log_format: {}}}", "- id: http-logger"),
        ("routes: {a: {uri: /a}}", "- id: a"),
        ("routes: {uri: /a, id: 1}", "- uri: ..."),
        ("consumers: {jack: {}}", "- username: jack"),
    ] {
        let name = section.split(':').next().unwrap();
        let problem = format!(
            "error: file at {name}: \"{name}\" must be a list\n  hint: write every object as a list item: \"{form}\", with the other members below it, indented by two spaces"
        );
        let text = format!("{section}\nservices: [{{id: 2}}]\n");
        check(&text, &[("services/2", json!({"id": 2}))], &[&problem]);
        let (_, problems) = parse(&text, &|_| None);
        assert_eq!(problems.iter().map(unreadable_section).collect::<Vec<_>>(), [Kind::from_name(name)]);
    }
    assert_eq!(parse("routes:\n- [", &|_| None).1.iter().find_map(unreadable_section), None);
}

#[test]
fn global_rule_that_is_no_object_makes_its_section_unreadable() {
    let hint = "write it as \"- id: ...\", with the other members below it, indented by two spaces";
    for item in ["x", "7", "true", "~", "[{id: g, plugins: {}}]"] {
        let text = format!("global_rules:\n- {{id: a, plugins: {{}}}}\n- {item}\n");
        let problem = format!(
            "error: file at global_rules: item 2 of \"global_rules\" must be an object\n  hint: {hint}"
        );
        check(&text, &[("global_rules/a", json!({ "id": "a", "plugins": {} }))], &[&problem]);
        let (_, problems) = parse(&text, &|_| None);
        assert_eq!(problems.iter().find_map(unreadable_section), Some(Kind::GlobalRules));
    }
    let unset = "error: file at global_rules: the environment variable \"MISSING\" is not set\n  hint: set it, or write ${{MISSING:=default}}";
    check("global_rules:\n- ${{MISSING}}\n", &[], &[unset]);
    // An object that nothing refers to closes nothing.
    assert_eq!(parse("routes: [x]\n", &|_| None).1, []);
}

#[test]
fn an_empty_document_needs_its_end_mark() {
    for text in ["", " \n\t", "\u{feff}", "# a comment\n", "#END of it\n", "---\n"] {
        let (resources, problems) = read(text);
        assert!(resources.is_empty(), "{text}");
        assert_eq!(problems.len(), 1, "{text:?}");
        assert!(problems[0].starts_with("error: file: the document is empty"), "{problems:?}");
    }
    for text in ["#END", "# nothing yet\n#END\n", "routes: []\n", "{}"] {
        check(text, &[], &[]);
    }
}

#[test]
fn a_text_that_cannot_be_parsed_is_one_problem_with_its_place() {
    for text in
        ["routes:\n- id: 1\n  uri: [\n", "{\"routes\": [\n{\"id\": 1},\n]}", "{} x", "- 1\n", "routes: 'a"]
    {
        let (resources, problems) = read(text);
        assert!(resources.is_empty(), "{text}");
        assert_eq!(problems.len(), 1, "{text}");
        assert!(problems[0].starts_with("error: file: "), "{problems:?}");
    }
    for text in ["routes:\n- id: 1\n  uri: [\n", "{\"routes\": [\n{\"id\": 1},\n]}"] {
        assert!(read(text).1[0].contains("line ") && read(text).1[0].contains("column "), "{text}");
    }
}

#[test]
fn export_reads_back_unchanged() {
    let resources = [
        Resource::new(Kind::Routes, "1", &json!({"id": "1", "uri": "/a", "n": 1, "t": "true", "s": "#END"})),
        Resource::new(Kind::Consumers, "jack", &json!({"username": "jack"})),
        Resource::new(Kind::Credentials, "jack/credentials/a", &json!({"id": "jack/credentials/a"})),
    ];
    let yaml = to_yaml(&resources).unwrap();
    assert_eq!(parse(&yaml, &|_| None), (resources.to_vec(), Vec::new()), "{yaml}");
}

#[test]
fn a_resource_that_cannot_be_read_is_named_and_not_left_out() {
    let deep = format!("{}{}", r#"{"a":"#.repeat(200), "}".repeat(200)).replace(":}", ":{}}");
    for json in [deep.as_str(), "[]", "{"] {
        let resources = [
            Resource::new(Kind::Routes, "1", &json!({ "id": "1" })),
            Resource { kind: Kind::Routes, id: "2".into(), json: json.into() },
        ];
        let problem = to_yaml(&resources).unwrap_err().to_string();
        assert!(problem.starts_with("error: routes/2: the stored text cannot be read: "), "{problem}");
    }
}

/// A reproducible pseudo-random sequence: pure crates have no source of randomness.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn mutated_documents_never_bring_the_reader_down() {
    let seeds = [
        "routes:\n- &a\n  id: 1\n  uri: \"/${{PORT}}\"\n  plugins: {x: [1, 2.5, true, ~]}\n- <<: *a\n  id: 2\nconsumers:\n- username: jack\n#END\n",
        r#"{"routes":[{"id":1,"uri":"/a","host":"${{HOST:=é}}"}],"secrets":[{"id":"vault/1"}],"x":null}"#,
    ];
    let mut state = 7;
    for round in 0..4000 {
        let mut bytes = seeds[round % 2].as_bytes().to_vec();
        for _ in 0..=next(&mut state) % 6 {
            let at = next(&mut state) % bytes.len().max(1);
            if bytes.is_empty() {
                break;
            }
            match next(&mut state) % 4 {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, b"{}[]:-#&*$\"'\n ~<>|!%@\t\0"[next(&mut state) % 23]),
                2 => bytes[at] = (next(&mut state) % 256) as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let (resources, problems) = parse(&text, &environment);
        for resource in &resources {
            assert!(serde_json::from_str::<Value>(&resource.json).is_ok(), "{text}");
            let value = serde_json::from_str(&resource.json).expect("just parsed");
            // Validation must terminate on any input.
            let _ = crate::resource::check(resource.kind, value);
        }
        assert!(problems.iter().all(|problem| !problem.message.is_empty()), "{text}");
    }
}

#[test]
fn text_like_a_variable_or_merge_key_reads_back_unchanged() {
    let plugins = [
        json!({ "echo": { "body": "${{HOST}} ${{X:=1}}", "${{HOST}}": "${{PORT}}" } }),
        json!({ "echo": { "<<": { "a": 1 }, "b": "#END", "c": "a\n#END\n" } }),
        json!({ "echo": { "<<": [{ "a": 1 }] } }),
        json!({ "echo": { "body": "\u{feff}a" } }),
    ];
    for plugins in plugins {
        let route = json!({ "id": "1", "uri": "/a", "plugins": plugins });
        let resources = vec![Resource::new(Kind::Routes, "1", &route)];
        let text = to_yaml(&resources).unwrap();
        assert_eq!(parse_literally(&text), (resources, Vec::new()), "{text}");
    }
}

#[test]
fn a_text_that_only_looks_like_a_merge_key_stays_yaml() {
    let route = json!({ "id": "1", "uri": "/a", "plugins": { "echo": { "body": "<<", "b": "\"<<\"" } } });
    let resources = vec![Resource::new(Kind::Routes, "1", &route)];
    let text = to_yaml(&resources).unwrap();
    assert!(text.starts_with("routes:\n"), "{text}");
    assert_eq!(parse_literally(&text), (resources, Vec::new()), "{text}");
}

#[test]
fn json_export_is_json_and_reads_back() {
    let route = json!({ "id": "1", "uri": "/a", "plugins": { "echo": { "<<": { "a": "#END" } } } });
    let resources = vec![Resource::new(Kind::Routes, "1", &route)];
    let text = to_json(&resources).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["routes"][0]["plugins"]["echo"]["<<"]["a"], "#END");
    assert_eq!(parse_literally(&text), (resources, Vec::new()), "{text}");
}

#[test]
fn only_yaml_has_merge_keys() {
    let merged = json!({ "id": "1", "uri": "/a" });
    check("routes:\n- {id: \"1\", <<: {uri: /a}}\n", &[("routes/1", merged)], &[]);
    let route = json!({ "id": "1", "<<": { "uri": "/a" } });
    check(r#"{"routes":[{"id":"1","<<":{"uri":"/a"}}]}"#, &[("routes/1", route)], &[]);
}

#[test]
fn a_mark_of_the_byte_order_says_nothing() {
    let expected = [("routes/1", json!({ "id": 1 }))];
    check("\u{feff}routes:\n- id: 1\n", &expected, &[]);
    check("\u{feff}{\"routes\":[{\"id\":1}]}", &expected, &[]);
    check("\u{feff}#END\n", &[], &[]);
}
