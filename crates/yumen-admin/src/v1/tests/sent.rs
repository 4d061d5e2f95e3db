//! Requests: no part is dropped silently, and names are understood or refused.

use super::*;

#[tokio::test]
async fn duplicate_members_are_refused_by_name() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let route = r#"{"id":"2","uri":"/b","plugins":{"key-auth":{}},"plugins":{}}"#;
    for (target, body, named) in [
        ("apply", r#"{"put":{"routes":[]},"put":{"services":[]}}"#.to_owned(), "\"put\""),
        ("apply", r#"{"put":{"routes":[],"routes":[]}}"#.to_owned(), "\"put.routes\""),
        ("apply", r#"{"delete":["routes/1"],"delete":[]}"#.to_owned(), "\"delete\""),
        ("apply", r#"{"expected_revision":1,"expected_revision":9}"#.to_owned(), "\"expected_revision\""),
        ("apply", "put: {}\nput: {}\n".to_owned(), "\"put\""),
        ("apply", format!(r#"{{"put":{{"routes":[{route}]}}}}"#), "\"put.routes[0].plugins\""),
        ("import", r#"{"routes":[],"routes":[]}"#.to_owned(), "\"routes\""),
        ("import", "routes: []\nroutes: []\n".to_owned(), "\"routes\""),
        ("import", format!("routes:\n- {route}\n"), "\"plugins\""),
        ("plan", format!(r#"{{"routes":[{route}]}}"#), "\"plugins\""),
    ] {
        let (status, answer, _) = fixture.send("POST", &format!("/yumen/v1/{target}"), &body).await;
        let message =
            answer["errors"][0]["error"].as_str().or(answer["error_msg"].as_str()).unwrap_or_default();
        let expected = format!("{named} is written more than once");
        assert_eq!((status, message.ends_with(&expected)), (400, true), "{target} {body}: {answer}");
    }
    let (_, answer, _) = fixture.send("POST", "/yumen/v1/import", &format!("routes:\n- {route}\n")).await;
    assert_eq!(answer["errors"][0]["object"], "routes/2");
    assert_eq!(fixture.store.state().revision, Revision(1));
}

#[tokio::test]
async fn a_body_of_json_that_says_something_else_is_not_read_as_yaml() {
    let fixture = Fixture::new();
    let (status, answer, _) = fixture.send("POST", "/yumen/v1/apply", r#"{"put": []}"#).await;
    let message = "invalid request body: invalid type: sequence, expected a map";
    assert_eq!((status, answer["error_msg"].as_str()), (400, Some(message)));
}

#[tokio::test]
async fn metadata_of_an_unknown_plugin_is_refused() {
    let fixture = Fixture::new();
    let item = r#"{"plugin_metadata":[{"id":"nope"}]}"#;
    for (target, body) in [("apply", format!(r#"{{"put":{item}}}"#)), ("import", item.to_owned())] {
        let (status, answer, _) = fixture.send("POST", &format!("/yumen/v1/{target}"), &body).await;
        let expected = json!([{ "object": "plugin_metadata/nope", "error": "invalid plugin name" }]);
        assert_eq!((status, &answer["errors"]), (400, &expected), "{target}");
    }
}

#[tokio::test]
async fn an_id_beside_a_consumers_name_is_no_difference() {
    let fixture = Fixture::new();
    fixture.put(Kind::Consumers, "fz", json!({ "username": "fz", "id": 65536 })).await;
    let (_, document, _) = fixture.ask("GET", "/yumen/v1/export?format=json").await;
    let (_, answer, _) = fixture.send("POST", "/yumen/v1/import", &document.to_string()).await;
    assert_eq!(answer, json!({ "revision": 1, "put": 0, "deleted": 0, "unchanged": 1 }));
}

#[tokio::test]
async fn the_history_of_an_object_is_found_by_either_name_of_it() {
    let fixture = Fixture::new();
    fixture.put(Kind::Credentials, "u/credentials/c", json!({})).await;
    for name in ["consumers/u/credentials/c", "credentials/u/credentials/c"] {
        let (_, body, _) = fixture.ask("GET", &format!("/yumen/v1/revisions?object={name}")).await;
        assert_eq!(body["revisions"][0]["revision"], 1, "{name}: {body}");
    }
    for name in ["route/1", "routes", "routes/", "1"] {
        let (status, body, _) = fixture.ask("GET", &format!("/yumen/v1/revisions?object={name}")).await;
        let message = format!("object: \"{name}\" is not an object name such as routes/1");
        assert_eq!((status, body["error_msg"].as_str()), (400, Some(message.as_str())));
    }
}

#[tokio::test]
async fn a_revision_that_is_still_to_come_is_not_one_that_is_gone() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "1", json!({ "uri": "/a" })).await;
    let message = "revision 7 does not exist yet: the newest is 1";
    for (method, target) in [
        ("GET", "revisions/7"),
        ("GET", "diff?from=7"),
        ("GET", "diff?from=1&to=7"),
        ("POST", "revisions/7/rollback"),
    ] {
        let (status, body, _) = fixture.ask(method, &format!("/yumen/v1/{target}")).await;
        assert_eq!((status, body["error_msg"].as_str()), (404, Some(message)), "{target}");
    }
    assert_eq!(fixture.ask("POST", "/yumen/v1/revisions/0/rollback").await.0, 410);
}

#[tokio::test]
async fn a_share_that_is_no_number_is_refused() {
    let fixture = Fixture::new();
    for share in ["nan", "-1"] {
        let (status, body, _) =
            fixture.send("POST", &format!("/yumen/v1/plan?changed_max={share}"), "{}").await;
        assert_eq!(status, 400, "{share}: {body}");
    }
}
