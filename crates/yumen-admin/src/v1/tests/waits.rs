//! Waits of whole configurations, and the warnings in responses.

use super::*;

const CONFIGS: &str = "/apisix/admin/configs";

/// Replaces the whole configuration by one route; the response as status and header fields.
async fn replace(fixture: &Fixture, digest: &str, query: &str, id: &str) -> (u16, axum::http::HeaderMap) {
    let document = json!({ "routes": [{ "id": id, "uri": format!("/{digest}"), "plugins": {} }] });
    let request =
        Request::builder().method("PUT").uri(format!("{CONFIGS}{query}")).header("x-digest", digest);
    let request = request.body(Body::from(document.to_string())).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.headers().clone())
}

fn field<'h>(headers: &'h axum::http::HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_whole_configuration_waits_until_it_is_in_force() {
    // (revision in force, query, id of the route, status, X-Yumen-Applied, X-Yumen-Nodes)
    for (applied, query, id, status, expected, nodes) in [
        (100, "", "1", 202, "", ""),
        (100, "?wait=applied", "1", 202, "true", ""),
        (0, "?wait=applied&timeout=0.01", "1", 202, "false", ""),
        (100, "?wait=applied&nodes=all&timeout=0.01", "1", 202, "false", "2/3"),
        (100, "?wait=applied&nodes=quorum", "1", 202, "true", "2/3"),
        // The gateway of these tests reports an error for routes/9.
        (100, "?wait=applied", "9", 202, "quarantined", ""),
        // The milliseconds of APISIX: 200 if the configuration is applied.
        (100, "?wait=3000", "1", 200, "true", ""),
        (0, "?wait=10", "1", 202, "false", ""),
        (100, "?wait=0", "1", 202, "", ""),
        (100, "?wait=10&nodes=all", "1", 202, "false", "2/3"),
        (100, "?wait=3000", "9", 202, "quarantined", ""),
    ] {
        let fixture = Fixture::new();
        fixture.applied.send_replace(Revision(applied));
        fixture.put(Kind::Upstreams, "u", json!({ "nodes": { "a:1": 1 } })).await;
        let (got, headers) = replace(&fixture, "d1", query, id).await;
        let of_wait = (field(&headers, "x-yumen-applied"), field(&headers, "x-yumen-nodes"));
        assert_eq!((got, of_wait), (status, (expected, nodes)), "{query} {id}");
        assert_eq!(field(&headers, "x-yumen-revision"), "2", "{query}");
    }
}

#[tokio::test]
async fn a_known_document_is_waited_for_and_its_broken_objects_reported_again() {
    let fixture = Fixture::new();
    assert_eq!(replace(&fixture, "d1", "", "9").await.0, 202);
    let (status, headers) = replace(&fixture, "d1", "?wait=applied&timeout=0.01", "9").await;
    assert_eq!((status, field(&headers, "x-yumen-applied")), (204, "false"));
    fixture.applied.send_replace(Revision(100));
    for query in ["?wait=applied", "?wait=1000"] {
        let (status, headers) = replace(&fixture, "d1", query, "9").await;
        assert_eq!((status, field(&headers, "x-yumen-applied")), (204, "quarantined"), "{query}");
    }
}

#[tokio::test]
async fn an_invalid_wait_leaves_no_document_behind() {
    let fixture = Fixture::new();
    for (path, query, named) in [
        (CONFIGS, "?wait=60001", "\"60001\" is not a whole number of milliseconds"),
        (CONFIGS, "?wait=1.5", "\"1.5\" is not a whole number of milliseconds"),
        (CONFIGS, "?wait=1s", "\"1s\" is not a whole number of milliseconds"),
        (CONFIGS, "?wait=aplied", "or a number of milliseconds"),
        (CONFIGS, "?wait=1000&timeout=5", "timeout: "),
        (CONFIGS, "?wait=1000&nodes=most", "\"most\""),
        ("/yumen/v1/import", "?wait=1000", "\"1000\" is invalid; allowed: \"applied\""),
    ] {
        let method = if path == CONFIGS { "PUT" } else { "POST" };
        let (status, body, _) = fixture.send(method, &format!("{path}{query}"), "{}").await;
        let message = body["error_msg"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(named), "{path}{query}: {status} {message}");
        assert_eq!(fixture.store.state().revision, Revision(0), "{path}{query}");
    }
}

#[tokio::test]
async fn a_response_counts_the_warnings_about_written_objects_and_names_the_first() {
    let fixture = Fixture::new();
    fixture.applied.send_replace(Revision(100));
    let put = |id: &str| format!(r#"{{"put":{{"routes":[{{"id":"{id}","uri":"/a","plugins":{{}}}}]}}}}"#);
    // The gateway of these tests reports two warnings about routes/8.
    for (query, id, expected) in [
        ("?wait=applied", "8", ("2", "routes/8 at uri: odd ? text; write less")),
        ("?wait=applied", "7", ("", "")),
        ("?wait=applied&timeout=0", "9", ("", "")),
        ("", "8", ("", "")),
    ] {
        let (status, answer, headers) =
            fixture.send("POST", &format!("/yumen/v1/apply{query}"), &put(id)).await;
        assert_eq!(status, 200, "{answer}");
        let found = (field(&headers, "x-yumen-warnings"), field(&headers, "x-yumen-first-warning"));
        assert_eq!(found, expected, "{query} {id}");
    }
    let (_, headers) = replace(&fixture, "d1", "?wait=applied", "8").await;
    assert_eq!((field(&headers, "x-yumen-applied"), field(&headers, "x-yumen-warnings")), ("true", "2"));
}
