use serde_json::{Value, json};
use yumen_config::{Kind, Resource, document};

use super::super::tests::{answer, closing_compiler, compiler, get, nodes, put, route};

#[test]
fn what_is_disabled_is_off_however_broken_it_is() {
    let mut compiler = compiler();
    let pem = |text: &str| format!("{text:x<128}");
    let ssl = |cert: &str, status: u32| {
        put(
            Kind::Ssls,
            "1",
            json!({ "cert": pem(cert), "key": pem("key"), "sni": "a.test", "status": status }),
        )
    };
    let written = |text: &str, status: Value| {
        route(
            "a",
            json!({ "plugins": { "first": { "text": text } }, "upstream": nodes("10.0.0.1"), "status": status }),
        )
    };
    let mut check = |text: &str, status: Value, expected: &str, hint: Option<&str>| {
        let number = status.as_u64().unwrap_or(0) as u32;
        let compiled = compiler.apply(vec![written(text, status), ssl(text, number)], 1);
        assert_eq!(get(&compiled, "/a"), expected, "{text}");
        assert_eq!(
            compiled.snapshot.certificate("a.test").is_some(),
            expected == "a 10.0.0.1:80 first@routes/a",
            "{text}"
        );
        for name in ["routes/a", "ssls/1"] {
            let problem = compiled.problems.iter().find(|one| *one.object == *name);
            let found = problem.and_then(|one| one.hint.as_deref()).unwrap_or_default();
            // The remedy of the error precedes its effect.
            assert!(found.ends_with(hint.unwrap_or_default()), "{name} {text}: {found}");
            assert_eq!(found.is_empty(), hint.is_none(), "{name} {text}: {found}");
            assert!(problem.is_none_or(|one| one.last_good == (expected != "-")), "{name} {text}");
        }
    };
    let hint = Some("the last good version stays active until it is fixed");
    let off = Some("disabled by its status");
    check("good", json!(1), "a 10.0.0.1:80 first@routes/a", None);
    check("bad", json!(1), "a 10.0.0.1:80 first@routes/a", hint);
    check("bad", json!(0), "-", off);
    check("good", json!(1), "a 10.0.0.1:80 first@routes/a", None);
    check("bad", json!("0"), "-", off);
    check("good", json!(0), "-", None);
    check("bad", json!(0), "-", off);
}

#[test]
fn a_word_where_a_boolean_is_wanted_is_told_how_to_write_it() {
    let advice = "write true or false: yes, no, on and off are texts, in YAML as well";
    for value in [
        json!({ "enable_websocket": "yes", "upstream": nodes("10.0.0.1") }),
        json!({ "plugins": { "first": { "_meta": { "disable": "on" } } }, "upstream": nodes("10.0.0.1") }),
    ] {
        let compiled = compiler().apply(vec![route("a", value.clone())], 1);
        let hint = compiled.problems.first().and_then(|problem| problem.hint.as_deref());
        assert!(hint.is_some_and(|hint| hint.starts_with(advice)), "{value}: {:?}", compiled.problems);
    }
}

#[test]
fn what_was_in_force_before_the_process_began_is_the_last_good_version() {
    let written = |text: &str, status: u32| {
        let plugins = json!({ "first": { "text": text } });
        json!({ "uri": "/a", "plugins": plugins, "upstream": nodes("10.0.0.1"), "status": status })
    };
    let begun_from = |former: &str, now: &str, status: u32| {
        let mut compiler = compiler();
        compiler.begin_from(vec![Resource::new(Kind::Routes, "a", &written(former, 1))]);
        let compiled = compiler.apply(vec![route("a", written(now, status))], 1);
        let standing: Vec<String> = compiler.last_good().map(|(one, _)| one.json.to_string()).collect();
        (get(&compiled, "/a"), compiled.problems.iter().any(|one| one.last_good), standing.len())
    };
    let good = "a 10.0.0.1:80 first@routes/a".to_owned();
    assert_eq!(begun_from("good", "bad", 1), (good.clone(), true, 1));
    assert_eq!(begun_from("good", "good", 1), (good, false, 0));
    assert_eq!(begun_from("good", "bad", 0), ("-".to_owned(), false, 0), "disabled is disabled");
    assert_eq!(begun_from("bad", "bad", 1), ("a 503".to_owned(), false, 0), "this version has no use for it");
}

/// Compiles texts one after another, as a file says them: what a request comes to, and what is told of it.
fn follow(steps: &[(&str, &str, &[&str])]) {
    let mut compiler = compiler();
    for (text, expected, problems) in steps {
        let (resources, unread) = document::parse(text, &|_| None);
        assert_eq!(unread, [], "{text}");
        let compiled = compiler.replace_all(resources, 1);
        assert_eq!(get(&compiled, "/a/b"), *expected, "{text}");
        let messages: Vec<String> = compiler.problems().iter().map(ToString::to_string).collect();
        assert_eq!(messages, *problems, "{text}");
    }
}

/// A route for everything, and items behind it.
macro_rules! beside_wide {
    ($item:expr) => {
        concat!("routes:\n- {id: wide, uri: /*, upstream: {nodes: {\"10.0.0.1:80\": 1}}}\n", $item)
    };
}

const SET: &str = "set it, or write ${{UNSET:=default}}";

#[test]
fn an_object_with_a_variable_that_is_not_set_never_opens() {
    let unset = "the environment variable \"UNSET\" is not set";
    let good = beside_wide!("- {id: a, uri: /a/*, plugins: {first: {text: x}}}\n");
    let broken = beside_wide!("- {id: a, uri: /a/*, desc: \"${{UNSET}}\", plugins: {first: {text: x}}}\n");
    let expected = format!(
        "error: routes/a at desc: {unset}\n  hint: {SET}; the last good version stays active until it is fixed"
    );
    let refused = format!(
        "error: routes/a at desc: {unset}\n  hint: {SET}; matching requests are answered 503 until it is fixed"
    );
    follow(&[
        (good, "a none first@routes/a", &[]),
        (broken, "a none first@routes/a", &[&expected]),
        (good, "a none first@routes/a", &[]),
    ]);
    follow(&[(broken, "a 503", &[&refused]), (good, "a none first@routes/a", &[])]);
    // Nobody knows which requests these are for.
    for field in ["uri: \"/a/${{UNSET}}\"", "uri: /a/*, host: \"${{UNSET}}\"", "uris: [/a/*, \"${{UNSET}}\"]"]
    {
        let text = format!("{}- {{id: a, {field}, plugins: {{}}}}\n", beside_wide!(""));
        let (resources, _) = document::parse(&text, &|_| None);
        let mut compiler = compiler();
        assert_eq!(get(&compiler.replace_all(resources, 1), "/a/b"), "wide 10.0.0.1:80", "{text}");
        let hint = compiler.problems()[0].hint.clone().unwrap();
        assert!(hint.ends_with("; matching requests go to other routes until it is fixed"), "{hint}");
    }
    // These say nothing of it.
    let text = beside_wide!("- {id: a, uri: /a/*, priority: \"${{UNSET}}\", name: \"${{UNSET}}\"}\n");
    let (resources, _) = document::parse(text, &|_| None);
    assert_eq!(get(&compiler().replace_all(resources, 1), "/a/b"), "a 503");
    // What is off is off.
    let text = beside_wide!("- {id: a, uri: /a/*, status: 0, desc: \"${{UNSET}}\"}\n");
    let (resources, _) = document::parse(text, &|_| None);
    assert_eq!(get(&compiler().replace_all(resources, 1), "/a/b"), "wide 10.0.0.1:80");
}

#[test]
fn a_service_with_a_variable_that_is_not_set_keeps_its_last_good_version() {
    let with = |desc: &str| {
        format!(
            "routes: [{{id: a, uri: /a/*, service_id: s}}]\nservices: [{{id: s, desc: \"{desc}\", plugins: {{first: {{text: x}}}}}}]\n"
        )
    };
    let expected = format!(
        "error: services/s at desc: the environment variable \"UNSET\" is not set\n  hint: {SET}; the last good version stays active until it is fixed"
    );
    let served = "a none first@services/s";
    follow(&[(&with("x"), served, &[]), (&with("${{UNSET}}"), served, &[&expected])]);
}

#[test]
fn an_item_without_an_id_of_its_own_never_opens() {
    let broken = beside_wide!("- {uri: /a/*, plugins: {first: {text: x}}}\n");
    let answered = "matching requests are answered 503 until it is fixed";
    let id = "hint: 1 to 64 of a-z A-Z 0-9 - _ . are allowed";
    let unfit = format!("error: routes/routes#2 at id: \"a b\" is not a valid id\n  {id}; {answered}");
    let twice = format!(
        "error: routes/routes#2 at id: item 2 has the id \"wide\" of item 1, which was there before\n  hint: give it its own id; {answered}"
    );
    let other = "error: routes/routes#2: an item must be an object\n  hint: matching requests go to other routes until it is fixed";
    follow(&[
        (broken, "routes#2 none first@routes/routes#2", &[]),
        // What had the place before was good, and may have been another.
        (beside_wide!("- {id: a b, uri: /a/*, plugins: {}}\n"), "routes#2 503", &[&unfit]),
        (beside_wide!("- {id: wide, uri: /a/*, plugins: {}}\n"), "routes#2 503", &[&twice]),
        (beside_wide!("- a\n"), "wide 10.0.0.1:80", &[other]),
        (beside_wide!("- {id: a, uri: /a/*, plugins: {}}\n"), "a none", &[]),
    ]);
}

#[test]
fn an_item_that_says_nothing_closes_no_stream() {
    let text = "stream_routes:\n- {id: z, upstream: {nodes: {\"10.0.0.1:80\": 1}}}\n- \n";
    let (resources, _) = document::parse(text, &|_| None);
    let mut compiler = compiler();
    let compiled = compiler.replace_all(resources, 1);
    assert_eq!(compiled.snapshot.streams.all().map(|route| &*route.info.id).collect::<Vec<_>>(), ["z"]);
    let hint = compiler.problems()[0].hint.clone().unwrap();
    assert!(hint.contains("go to other stream routes"), "{hint}");
}

#[test]
fn a_broken_route_is_for_the_hosts_of_its_service() {
    let of = |service: &str| {
        format!(
            "services:\n- {{id: s, hosts: [a.test]}}\n- {{id: broken, desc: \"${{{{UNSET}}}}\"}}\nroutes:\n- {{id: wide, uri: /*, plugins: {{}}}}\n- {{id: a, uri: /a/*, desc: \"${{{{UNSET}}}}\", {service}}}\n"
        )
    };
    for (service, expected) in [
        ("service_id: s", ["a 503", "wide none"]),
        // As one that is not broken: nobody knows which hosts it is for, and it may guard something.
        ("service_id: none", ["a 503"; 2]),
        ("service_id: broken", ["a 503"; 2]),
        ("service_id: \"${{UNSET}}\"", ["wide none"; 2]),
        ("host: a.test, service_id: none", ["a 503", "wide none"]),
        ("host: a.test, service_id: \"${{UNSET}}\"", ["a 503", "wide none"]),
        ("hosts: [a.test], service_id: x y", ["a 503", "wide none"]),
        ("host: a.test, servce_id: s", ["a 503", "wide none"]),
    ] {
        let (resources, _) = document::parse(&of(service), &|_| None);
        let compiled = compiler().replace_all(resources, 1);
        let found =
            ["a.test", "b.test"].map(|host| answer(&compiled.snapshot, &format!("GET http://{host}/a/b")));
        assert_eq!(found, expected, "{service}");
    }
}

#[test]
fn the_tenth_place_comes_behind_the_ninth() {
    let item = |position: usize| {
        format!("- {{uri: \"{}\", plugins: {{}}}}\n", if position < 9 { "/x" } else { "/a/*" })
    };
    let text = format!("routes:\n{}", (1..=10).map(item).collect::<String>());
    let (resources, _) = document::parse(&text, &|_| None);
    assert_eq!(get(&compiler().replace_all(resources, 1), "/a/b"), "routes#9 none");
}

#[test]
fn a_place_is_no_last_good_version() {
    let good = |paths: &[&str]| {
        let item = |path: &&str| format!("- {{uri: {path}, plugins: {{first: {{text: x}}}}}}\n");
        format!("{}{}", beside_wide!(""), paths.iter().map(item).collect::<String>())
    };
    // The route of /a/* has come to where that of /b was, and is broken.
    let moved = format!("{}- {{uri: /a/*, plugins: {{first: {{text: bad}}}}}}\n", good(&["/new"]));
    let mut compiler = compiler();
    for (text, expected) in
        [(good(&["/a/*", "/b"]), "routes#2 none first@routes/routes#2"), (moved, "routes#3 503")]
    {
        let (resources, _) = document::parse(&text, &|_| None);
        assert_eq!(get(&compiler.replace_all(resources, 1), "/a/b"), expected, "{text}");
    }
    assert!(!compiler.problems().iter().any(|one| one.last_good));
}

#[test]
fn all_defects_of_an_object_are_told_and_what_is_wrong_beside_them() {
    let text = beside_wide!(
        "- {id: wide, uri: /a/*, desc: \"${{UNSET}}\", priority: x, plugins: {first: {text: 5}}}\n"
    );
    let (resources, _) = document::parse(text, &|_| None);
    let mut compiler = compiler();
    compiler.replace_all(resources, 1);
    let paths: Vec<String> = compiler.problems().into_iter().map(|one| one.path).collect();
    assert_eq!(paths, ["id", "desc", "priority", "plugins.first.text"]);
}

#[test]
fn a_broken_object_of_owners_with_different_rights_closes() {
    let mut compiler = closing_compiler();
    let pem = |text: &str| format!("{text:x<128}");
    let ssl =
        |cert: &str| put(Kind::Ssls, "1", json!({ "cert": pem(cert), "key": pem("key"), "sni": "a.test" }));
    let with = |id: &str, header: Value, upstream: &str| {
        let headers = json!([header]);
        route(id, json!({ "match": { "headers": headers }, "upstream": nodes(upstream) }))
    };
    let sound = json!({ "name": "x-a", "is_absent": true });
    let wide = route("wide", json!({ "uri": "/*", "upstream": nodes("10.0.0.9") }));
    let first = vec![wide, with("a", sound.clone(), "10.0.0.1"), ssl("good")];
    let compiled = compiler.apply(first, 1);
    assert_eq!(get(&compiled, "/a"), "a 10.0.0.1:80");
    assert!(compiled.snapshot.certificate("a.test").is_some());
    // A match that cannot be read: the route refuses what it matched.
    let broken = json!({ "name": "x-a", "regex": "([" });
    let compiled = compiler.apply(vec![with("a", broken, "10.0.0.2"), ssl("bad")], 2);
    assert_eq!(get(&compiled, "/a"), "a 503");
    assert!(compiled.snapshot.certificate("a.test").is_none());
    assert!(compiled.problems.iter().all(|problem| !problem.last_good), "{:?}", compiled.problems);
    let compiled = compiler.apply(vec![with("a", sound, "10.0.0.2"), ssl("good")], 3);
    assert_eq!(get(&compiled, "/a"), "a 10.0.0.2:80");
}
