//! Request sequences of known tools.

use serde_json::{Value, json};

use super::{ADMIN, Api, Case};

#[tokio::test]
async fn the_getting_started_sequence_works() {
    const CASES: &[Case] = &[
        (
            "PUT /routes/getting-started-ip",
            r#"{"id":"getting-started-ip","uri":"/ip","upstream":{"type":"roundrobin","nodes":{"httpbin.org:80":1}}}"#,
            201,
            r#"{"key":"/apisix/routes/getting-started-ip"}"#,
        ),
        (
            "PUT /routes",
            r#"{"id":"getting-started-headers","uri":"/headers","upstream":{"type":"roundrobin","nodes":{"httpbin.org:443":1,"mock.api7.ai:443":1},"pass_host":"node","scheme":"https"}}"#,
            201,
            "",
        ),
        ("PUT /consumers", r#"{"username":"tom","plugins":{"key-auth":{"key":"secret-key"}}}"#, 201, ""),
        (
            "PATCH /routes/getting-started-ip",
            r#"{"plugins":{"key-auth":{}}}"#,
            200,
            r#"{"value":{"plugins":{"key-auth":{}},"uri":"/ip"}}"#,
        ),
        (
            "PATCH /routes/getting-started-ip",
            r#"{"plugins":{"key-auth":{"_meta":{"disable":true}}}}"#,
            200,
            "",
        ),
        (
            "PATCH /routes/getting-started-ip",
            r#"{"plugins":{"limit-count":{"count":2,"time_window":10,"rejected_code":503,"key_type":"var","key":"remote_addr"}}}"#,
            200,
            r#"{"value":{"plugins":{"key-auth":{},"limit-count":{"count":2}}}}"#,
        ),
        ("GET /routes/getting-started-ip", "", 200, r#"{"value":{"uri":"/ip"}}"#),
        ("GET /routes", "", 200, r#"{"total":2}"#),
        ("DELETE /routes/getting-started-ip", "", 200, r#"{"deleted":"1"}"#),
    ];
    Api::new().run(CASES).await;
}

#[tokio::test]
async fn a_dashboard_lists_edits_and_deletes() {
    let api = Api::new();
    for i in 0..15 {
        let body = format!(
            r#"{{"name":"shop-{i}","type":"roundrobin","nodes":[{{"host":"127.0.0.1","port":80,"weight":1}}]}}"#
        );
        assert_eq!(api.ask("POST /upstreams", &body).await.status, 201);
    }
    let first = api.ask("GET /upstreams?page=1&page_size=10", "").await.json();
    assert_eq!((&first["total"], first["list"].as_array().unwrap().len()), (&json!(15), 10));
    let found = api.ask("GET /upstreams?page=1&page_size=10&name=shop-14", "").await.json();
    let row = &found["list"][0];
    let id = row["value"]["id"].as_str().unwrap();
    // the form sends back the object as received, without the times
    let mut edited = row["value"].clone();
    edited["desc"] = json!("edited");
    let edited = edited.as_object_mut().unwrap();
    edited.retain(|name, _| !name.ends_with("_time"));
    let put = api.ask(&format!("PUT /upstreams/{id}"), &Value::Object(edited.clone()).to_string()).await;
    assert_eq!((put.status, &put.json()["value"]["desc"]), (200, &json!("edited")));
    assert_eq!(api.ask(&format!("DELETE /upstreams/{id}"), "").await.status, 200);
    assert_eq!(api.ask("GET /upstreams?page=2&page_size=10", "").await.json()["total"], 14);
}

/// One object of a declarative tool: its path and its content.
type Wanted = (&'static str, &'static str);

/// Resources in the order in which such a tool writes them; it deletes in the opposite order.
const WANTED: &[Wanted] = &[
    (
        "upstreams/a9993e36",
        r#"{"name":"shop","labels":{"__ADC_NAME":"shop"},"type":"roundrobin","scheme":"http","nodes":[{"host":"127.0.0.1","port":80,"weight":100}]}"#,
    ),
    ("services/a9993e36", r#"{"name":"shop","upstream_id":"a9993e36"}"#),
    (
        "routes/da39a3ee",
        r#"{"name":"cart","uris":["/cart/*"],"methods":["GET"],"service_id":"a9993e36","labels":{"team":"shop"}}"#,
    ),
    ("ssls/84a51684", r#"{"snis":["shop.example"],"cert":"$env://CERT","key":"$env://KEY"}"#),
    ("consumers/tom", r#"{"username":"tom","labels":{"team":"shop"}}"#),
    ("consumers/tom/credentials/6b86b273", r#"{"name":"main","plugins":{"key-auth":{"key":"tom-key"}}}"#),
    ("global_rules/prometheus", r#"{"plugins":{"prometheus":{}}}"#),
    ("global_rules/request-id", r#"{"plugins":{"request-id":{}}}"#),
    ("plugin_metadata/http-logger", r#"{"log_format":{"host":"$host"}}"#),
];

const LISTS: [&str; 8] = [
    "routes",
    "services",
    "upstreams",
    "ssls",
    "consumers",
    "plugin_configs",
    "global_rules",
    "plugin_metadata",
];

/// Reads everything as such a tool does: lists, and the credentials of every consumer.
async fn dump(api: &Api) -> Vec<Value> {
    let mut found = Vec::new();
    for name in LISTS {
        let answer = api.ask(&format!("GET /{name}"), "").await;
        assert_eq!(answer.status, 200, "{name}");
        found.extend(answer.json()["list"].as_array().unwrap().clone());
    }
    for consumer in found.clone().iter().filter_map(|row| row["value"]["username"].as_str()) {
        let answer = api.ask(&format!("GET /consumers/{consumer}/credentials"), "").await;
        match answer.status {
            200 => found.extend(answer.json()["list"].as_array().unwrap().clone()),
            status => assert_eq!(status, 404),
        }
    }
    let streams = api.ask("GET /stream_routes", "").await;
    assert!(matches!(streams.status, 200 | 400));
    found
}

/// The writes that turn `found` into `WANTED`: keys with their body, without one for a deletion.
fn diff(found: &[Value]) -> Vec<(String, Option<&'static str>)> {
    let key = |row: &Value| row["key"].as_str().unwrap().trim_start_matches("/apisix/").to_owned();
    let mut changes = Vec::new();
    for (path, body) in WANTED {
        let expected: Value = serde_json::from_str(body).unwrap();
        let row = found.iter().find(|row| key(row) == *path);
        if !row.is_some_and(|row| matches_expected(&expected, &row["value"])) {
            changes.push(((*path).to_owned(), Some(*body)));
        }
    }
    let missing = found.iter().map(key).filter(|key| WANTED.iter().all(|(path, _)| path != key));
    changes.extend(missing.map(|key| (key, None)));
    changes
}

/// Equal apart from members that the gateway adds, and from private keys, which it does not return.
fn matches_expected(expected: &Value, found: &Value) -> bool {
    let strip = |value: &Value| {
        let mut object = value.as_object().unwrap().clone();
        object.retain(|name, _| !["id", "create_time", "update_time", "key"].contains(&name.as_str()));
        object
    };
    strip(expected) == strip(found)
}

async fn sync(api: &Api) -> usize {
    let changes = diff(&dump(api).await);
    let (puts, deletes): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, body)| body.is_some());
    for (path, body) in puts {
        // consumers are put without their name in the path
        let line = match path.strip_prefix("consumers/") {
            Some(name) if !name.contains('/') => "PUT /consumers".to_owned(),
            _ => format!("PUT /{path}"),
        };
        let answer = api.ask(&line, body.unwrap()).await;
        assert!(answer.status < 300, "{line}: {}", answer.text);
    }
    for (path, _) in deletes.iter().rev() {
        let answer = api.ask(&format!("DELETE /{path}"), "").await;
        assert_eq!(answer.status, 200, "DELETE {path}: {}", answer.text);
    }
    changes.len()
}

#[tokio::test]
async fn a_declarative_tool_pings_dumps_and_syncs_and_then_finds_nothing_to_do() {
    let api = Api::new();
    let ping = api.send("HEAD /apisix/admin/", &[("x-api-key", ADMIN)], "").await;
    assert_eq!((ping.status, ping.header("server")), (200, "APISIX/3.14.0"));
    assert_eq!(sync(&api).await, WANTED.len());
    let revision = api.state.store.state().revision;
    assert_eq!(sync(&api).await, 0);
    assert_eq!(api.state.store.state().revision, revision);
    for (line, body) in [
        ("PUT /routes/stray", r#"{"uri":"/stray","service_id":"a9993e36"}"#),
        ("PATCH /consumers/tom", ""),
        ("PUT /upstreams/a9993e36", r#"{"type":"roundrobin","nodes":{"127.0.0.1:81":1}}"#),
        ("DELETE /global_rules/request-id", ""),
    ] {
        api.ask(line, body).await;
    }
    assert_eq!(sync(&api).await, 3, "one to delete, one to repair, one to make again");
    assert_eq!(sync(&api).await, 0);
}
