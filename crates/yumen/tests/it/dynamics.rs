//! Configuration changes under traffic.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Upstream, eventually};

/// A document with one route that responds with `version`.
fn version(version: usize) -> Value {
    let mock =
        json!({ "mocking": { "response_example": version.to_string(), "content_type": "text/plain" } });
    json!({ "routes": [{ "id": "v", "uri": "/version", "plugins": mock }] })
}

fn shown(gateway: &Gateway) -> String {
    gateway.get("/version").text()
}

#[test]
fn every_edit_comes_into_force() {
    let gateway = Gateway::start(&version(0));
    for i in 1..=9 {
        gateway.edit(&version(i));
        eventually("the edit is in force", 5, || shown(&gateway) == i.to_string());
    }
}

#[test]
fn a_file_written_in_place_is_noticed_too() {
    let gateway = Gateway::start(&version(0));
    let path = gateway.scratch.file("routes.yaml");
    for i in 1..=3 {
        std::fs::write(&path, version(i).to_string()).unwrap();
        eventually("the edit is in force", 3, || shown(&gateway) == i.to_string());
    }
}

#[test]
fn two_hundred_edits_under_traffic_fail_no_request_and_no_connection() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let document = |i: usize| {
        let upstream = if i.is_multiple_of(2) { a.alone() } else { b.alone() };
        let mut routes = version(i)["routes"].as_array().unwrap().clone();
        routes.push(json!({ "id": "all", "uri": "/*", "upstream": upstream }));
        json!({ "routes": routes })
    };
    let gateway = Gateway::start(&document(0));
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.http);
                while !over.load(Ordering::Acquire) {
                    // On one connection: a lost one fails the test.
                    let reply = client.get("/");
                    assert_eq!(reply.status, 200);
                    assert!(["a", "b"].contains(&reply.text().as_str()));
                    served.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        for i in 1..=200 {
            gateway.edit(&document(i));
            // Pacing of the edits.
            std::thread::sleep(Duration::from_millis(20));
        }
        eventually("the last edit is in force", 5, || shown(&gateway) == "200");
        over.store(true, Ordering::Release);
    });
    assert!(served.load(Ordering::Acquire) > 200);
    assert!(gateway.revision() > 50, "{}", gateway.revision());
}

#[test]
fn a_broken_edit_leaves_the_old_state_in_force_and_says_why() {
    let gateway = Gateway::start(&version(1));
    gateway.scratch.write("routes.yaml", "routes:\n- id: v\n  uri: [\n");
    let problems = || gateway.status_json("/yumen/v1/problems");
    eventually("the problem is shown", 5, || problems() != json!([]));
    assert_eq!(shown(&gateway), "1");
    assert_eq!((&problems()[0]["level"], &problems()[0]["object"]), (&json!("error"), &json!("file")));
    assert!(problems()[0]["message"].as_str().unwrap().contains("line"), "{}", problems());
    assert!(gateway.log().contains("resource file invalid"));
    gateway.apply(&version(2));
    assert_eq!((shown(&gateway).as_str(), problems()), ("2", json!([])));
}

#[test]
fn a_file_that_goes_or_loses_its_end_leaves_the_old_state_in_force() {
    let gateway = Gateway::start(&version(1));
    let problems = || gateway.status_json("/yumen/v1/problems");
    std::fs::remove_file(gateway.scratch.file("routes.yaml")).unwrap();
    eventually("the problem is shown", 5, || problems() != json!([]));
    assert_eq!(shown(&gateway), "1");
    gateway.edit(&version(1));
    eventually("all is well again", 5, || problems() == json!([]));
    gateway.scratch.write("routes.yaml", format!("{}\n#END\n", version(2)));
    eventually("the edit is in force", 5, || shown(&gateway) == "2");
    gateway.scratch.write("routes.yaml", "routes: []\n");
    eventually("the problem is shown", 5, || problems() != json!([]));
    assert_eq!(shown(&gateway), "2");
}

#[test]
fn a_file_that_was_refused_is_refused_again_when_it_is_back() {
    let gateway = Gateway::start(&version(1));
    let problems = || gateway.status_json("/yumen/v1/problems");
    let has_message =
        |words: &str| problems()[0]["message"].as_str().is_some_and(|message| message.contains(words));
    let broken = "routes:\n- id: v\n  uri: [\n";
    gateway.scratch.write("routes.yaml", broken);
    eventually("the problem is shown", 5, || has_message("line"));
    std::fs::remove_file(gateway.scratch.file("routes.yaml")).unwrap();
    eventually("the other problem is shown", 5, || has_message("deleted"));
    gateway.scratch.write("routes.yaml", broken);
    eventually("neither is shown any more", 5, || !has_message("deleted"));
    assert!(has_message("line"), "{}", problems());
    assert!(!gateway.log().contains("valid again"), "{}", gateway.log());
}

#[test]
fn a_broken_object_is_quarantined_and_its_siblings_are_not() {
    let upstream = Upstream::text("x");
    let good = |id: &str| json!({ "id": id, "uri": format!("/{id}"), "upstream": upstream.alone() });
    let broken = json!({ "id": "b", "uri": "/b", "upstream": { "nodes": { "127.0.0.1:1": -1 } } });
    let gateway = Gateway::start(&json!({ "routes": [good("a"), good("b")] }));
    // A route with a last good version is unaffected.
    gateway.apply(&json!({ "routes": [good("a"), broken, good("c")] }));
    for path in ["/a", "/b", "/c"] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
    }
    let problem = &gateway.status_json("/yumen/v1/problems")[0];
    assert_eq!((&problem["object"], &problem["level"]), (&json!("routes/b"), &json!("error")));
    assert!(problem["hint"].is_string());
    gateway.assert_metric("yumen_config_problems{level=\"error\"}", 1.0);
    // A route without a last good version refuses.
    let fresh = Gateway::start(&json!({ "routes": [good("a"), broken] }));
    assert_eq!((fresh.get("/a").status, fresh.get("/b").status), (200, 503));
}

#[test]
fn a_consumer_whose_group_goes_is_refused_until_it_is_back() {
    let upstream = Upstream::text("x");
    let document = |group: &str| {
        json!({
            "routes": [{ "id": "r", "uri": "/r", "plugins": { "key-auth": {} }, "upstream": upstream.alone() }],
            "consumers": [{ "username": "ann", "group_id": "g", "plugins": { "key-auth": { "key": "k" } } }],
            "consumer_groups": [{ "id": group, "plugins": { "ip-restriction": { "whitelist": ["127.0.0.1"] } } }],
        })
    };
    let gateway = Gateway::start(&document("g"));
    let ask = || gateway.get_with("/r", "apikey: k\r\n").status;
    assert_eq!(ask(), 200);
    gateway.apply(&document("other"));
    let reply = gateway.get_with("/r", "apikey: k\r\n");
    assert_eq!((reply.status, reply.text().contains("consumer group")), (503, true), "{reply:?}");
    assert_eq!(gateway.get("/r").status, 401);
    gateway.apply(&document("g"));
    assert_eq!(ask(), 200);
}

#[test]
fn environment_variables_are_filled_in() {
    let scratch = crate::harness::Scratch::new();
    let upstream = Upstream::text("x");
    let text = "routes:\n- id: 1\n  uri: ${{YUMEN_IT_PATH:=/default}}\n  upstream: {nodes: {\"127.0.0.1:PORT\": 1}}\n#END\n";
    let path = scratch.write("routes.yaml", text.replace("PORT", &upstream.address.port().to_string()));
    let gateway = Gateway::launch(scratch, &crate::harness::Options::default(), &["--file", &path]);
    assert_eq!(gateway.get("/default").text(), "x", "{}", gateway.log());
}

/// A document with a catch-all route, one further route, and global rules.
fn priority_beside_wildcard(upstream: &Upstream, item: &Value, rules: &Value) -> Value {
    let wide = json!({ "id": "wide", "uri": "/*", "upstream": upstream.alone() });
    json!({ "routes": [wide, item], "global_rules": rules })
}

#[test]
fn an_object_with_a_variable_that_is_not_set_does_not_open_what_it_guards() {
    let upstream = Upstream::text("x");
    let unset = "${{YUMEN_IT_UNSET}}";
    let guarded = |desc: &str| json!({ "id": "a", "uri": "/a/*", "desc": desc, "plugins": { "key-auth": {} }, "upstream": upstream.alone() });
    let rule =
        |address: &str| json!([{ "id": 1, "plugins": { "ip-restriction": { "blacklist": [address] } } }]);
    let document =
        |desc: &str, address: &str| priority_beside_wildcard(&upstream, &guarded(desc), &rule(address));
    let gateway = Gateway::start(&document("x", "192.0.2.1"));
    let ask = |gateway: &Gateway| (gateway.get("/").status, gateway.get("/a/b").status);
    assert_eq!(ask(&gateway), (200, 401));
    // A route with a last good version is unaffected.
    gateway.apply(&document(unset, "192.0.2.1"));
    assert_eq!(ask(&gateway), (200, 401));
    let problem = &gateway.status_json("/yumen/v1/problems")[0];
    assert_eq!((&problem["object"], &problem["path"]), (&json!("routes/a"), &json!("desc")));
    assert_eq!(problem["last_good"], true);
    gateway.apply(&document("x", "127.0.0.0/8"));
    assert_eq!(ask(&gateway), (403, 401));
    gateway.apply(&document("x", unset));
    assert_eq!(ask(&gateway), (403, 401));
    // A route without a last good version refuses.
    assert_eq!(ask(&Gateway::start(&document(unset, "192.0.2.1"))), (200, 503));
    assert_eq!(ask(&Gateway::start(&document("x", unset))), (503, 503));
}

#[test]
fn an_item_without_an_id_is_served_and_one_whose_id_will_not_do_is_refused() {
    let upstream = Upstream::text("x");
    let item = |id: Value| json!({ "id": id, "uri": "/a/*", "plugins": { "key-auth": {} }, "upstream": upstream.alone() });
    let rule = |id: Value| json!([{ "id": "1", "plugins": {} }, { "id": id, "plugins": { "ip-restriction": { "blacklist": [0] } } }]);
    let gateway = Gateway::start(&priority_beside_wildcard(&upstream, &item(json!("a")), &json!([])));
    for (id, expected) in [(json!(null), 401), (json!("a b"), 503), (json!("wide"), 503), (json!("a"), 401)] {
        gateway.apply(&priority_beside_wildcard(&upstream, &item(id.clone()), &json!([])));
        assert_eq!((gateway.get("/").status, gateway.get("/a/b").status), (200, expected), "{id}");
    }
    for id in [json!(null), json!("a b"), json!("1")] {
        gateway.apply(&priority_beside_wildcard(&upstream, &item(json!("a")), &rule(id.clone())));
        assert_eq!(gateway.get("/").status, 503, "{id}");
    }
}

#[test]
fn the_example_of_apisix_is_served_as_it_is() {
    let scratch = crate::harness::Scratch::new();
    let upstream = Upstream::text("x");
    let text = "routes:\n  -\n    uri: /hello\n    upstream:\n        nodes:\n            \"127.0.0.1:PORT\": 1\n        type: roundrobin\n#END\n";
    let path = scratch.write("routes.yaml", text.replace("PORT", &upstream.address.port().to_string()));
    let gateway = Gateway::launch(scratch, &crate::harness::Options::default(), &["--file", &path]);
    assert_eq!(gateway.get("/hello").text(), "x", "{}", gateway.log());
    assert_eq!(gateway.status_json("/yumen/v1/problems"), json!([]));
}
