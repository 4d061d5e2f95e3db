use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use super::super::tests::{compiler, get, nodes, put, route};

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
            let told = compiled.problems.iter().find(|one| *one.object == *name);
            assert_eq!(told.and_then(|one| one.hint.as_deref()), hint, "{name} {text}");
            assert!(told.is_none_or(|one| one.last_good == (expected != "-")), "{name} {text}");
        }
    };
    let kept = Some("its last good version stays in force until it is mended");
    let off = Some("it is disabled, as its status says");
    check("good", json!(1), "a 10.0.0.1:80 first@routes/a", None);
    check("bad", json!(1), "a 10.0.0.1:80 first@routes/a", kept);
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
        assert_eq!(hint, Some(advice), "{value}: {:?}", compiled.problems);
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
