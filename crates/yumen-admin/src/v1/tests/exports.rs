//! Exported documents and their import.

use super::*;

#[tokio::test]
async fn an_export_that_is_imported_writes_nothing_and_leaves_what_ends_its_end() {
    let fixture = Fixture::new();
    let write = async |id: &'static str, route: Value, lifetime_ms: Option<u64>| {
        let written = commit(&*fixture.store, Authorship::by("ann"), move |draft| {
            let at_ms = lifetime_ms.map(|lifetime_ms| draft.now_ms() + lifetime_ms);
            draft.put(ResourceKey::new(Kind::Routes, id), route.to_string().into(), at_ms);
            Ok::<(), ()>(())
        });
        written.await.unwrap().unwrap();
    };
    write("5", json!({ "id": 5, "uri": "/5", "plugins": {} }), None).await;
    write("brief", json!({ "id": "brief", "uri": "/brief", "plugins": {} }), Some(3_600_000)).await;
    let request = Request::builder().uri("/yumen/v1/export").body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    let export = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let export = String::from_utf8(export.to_vec()).unwrap();
    let comment = export.lines().next().unwrap();
    assert!(comment.starts_with("# routes/brief expires ") && comment.contains("Z; "), "{export}");
    let (status, answer, _) = fixture.send("POST", "/yumen/v1/import", &export).await;
    let expected = json!({ "revision": 2, "put": 0, "deleted": 0, "unchanged": 2, "ends": ["routes/brief"] });
    assert_eq!((status, &answer), (200, &expected));
    let changed = export.replace("/brief", "/longer");
    let (_, answer, _) = fixture.send("POST", "/yumen/v1/import", &changed).await;
    assert_eq!(answer, json!({ "revision": 3, "put": 1, "deleted": 0, "unchanged": 1 }));
    assert_eq!(fixture.store.state().get(Kind::Routes, "brief").unwrap().expires_ms, None);
}

#[tokio::test]
async fn response_names_quarantined_objects() {
    let fixture = Fixture::new();
    fixture.put(Kind::Routes, "8", json!({ "uri": "/old", "plugins": {} })).await;
    fixture.put(Kind::Routes, "9", json!({ "uri": "/old", "plugins": {} })).await;
    fixture.applied.send_replace(Revision(100));
    let put = |id: &str| format!(r#"{{"put":{{"routes":[{{"id":"{id}","uri":"/a","plugins":{{}}}}]}}}}"#);
    // The gateway of these tests reports an error for routes/9 and a warning for routes/8.
    for (target, body, expected) in [
        ("/yumen/v1/apply?wait=applied", put("9"), "quarantined"),
        ("/yumen/v1/apply?wait=applied&nodes=quorum", put("8"), "true"),
        (
            "/yumen/v1/import?wait=applied",
            r#"{"routes":[{"id":"9","uri":"/b","plugins":{}}]}"#.into(),
            "quarantined",
        ),
        ("/yumen/v1/apply?wait=applied", r#"{"delete":["routes/9"]}"#.into(), "true"),
        ("/yumen/v1/revisions/2/rollback?wait=applied", String::new(), "quarantined"),
    ] {
        let (status, answer, headers) = fixture.send("POST", target, &body).await;
        assert_eq!(
            (status, &headers["x-yumen-applied"]),
            (200, &expected.parse().unwrap()),
            "{body}: {answer}"
        );
    }
}

#[tokio::test]
async fn an_export_comes_back_as_it_was() {
    let fixture = Fixture::new();
    // The route refers to an object that was deleted by force.
    let route = json!({ "id": "1", "uri": "/a", "upstream_id": "gone", "desc": "${{HOME}} ${{X:=1}}" });
    fixture.put(Kind::Routes, "1", route).await;
    let merge = json!({ "uri": "/b", "plugins": { "response-rewrite": { "body": "${{HOME}}", "headers": { "<<": { "a": "b" } } } } });
    fixture.put(Kind::Routes, "2", merge).await;
    fixture
        .put(Kind::Ssls, "c", json!({ "type": "client", "cert": "c".repeat(200), "key": "k".repeat(200) }))
        .await;
    let upstream = json!({ "nodes": { "a:1": 1 }, "tls": { "client_cert_id": "c" } });
    fixture.put(Kind::Upstreams, "u", upstream).await;
    let request = Request::builder().uri("/yumen/v1/export").body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    let exported = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(exported.to_vec()).unwrap();
    let before = fixture.store.state().resources();
    // The last three were stored without their ids, so they are written once more.
    let (status, answer, _) = fixture.send("POST", "/yumen/v1/import?mode=replace", &text).await;
    assert_eq!((status, &answer["deleted"]), (200, &json!(0)), "{answer}\n{text}");
    let (_, answer, _) = fixture.send("POST", "/yumen/v1/import?mode=replace", &text).await;
    assert_eq!(answer, json!({ "revision": 5, "put": 0, "deleted": 0, "unchanged": 4 }));
    let plain = |resource: &Resource| {
        let mut object: serde_json::Map<String, Value> = serde_json::from_str(&resource.json).unwrap();
        ["id", "create_time", "update_time"].iter().for_each(|name| drop(object.shift_remove(*name)));
        (resource.to_string(), Value::Object(object))
    };
    let after = fixture.store.state().resources();
    assert_eq!(after.iter().map(plain).collect::<Vec<_>>(), before.iter().map(plain).collect::<Vec<_>>());
    // A reference that the import itself breaks is refused, even in an unchanged object.
    let without = r#"{"upstreams":[{"id":"u","nodes":{"a:1":1},"tls":{"client_cert_id":"c"}}]}"#;
    let (status, answer, _) = fixture.send("POST", "/yumen/v1/import?mode=replace", without).await;
    assert_eq!((status, &answer["errors"][0]["object"]), (400, &json!("upstreams/u")), "{answer}");
}
