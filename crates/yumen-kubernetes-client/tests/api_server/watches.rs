//! Streams of lines, and the task around the watch machine.

use std::time::Duration;

use tokio::sync::mpsc;
use yumen_kubernetes_client::{
    ApiClient, ApiError, RawObjectChange, WatchOutput, WatchReport, WatchSet, WatchStage, WatchTarget,
};

use crate::server::{CHUNKED, LAST_CHUNK, ScriptEnd, TestServer, chunk};

fn kind() -> WatchTarget {
    WatchTarget::new("g.example", "things", "Thing", &["v1"])
}

/// Lines up to the end of a watch: the lines, and the error if the end was one.
async fn read_lines(client: &ApiClient) -> (Vec<String>, Option<ApiError>) {
    let mut stream = client.watch(&kind(), "v1", "7").await.unwrap();
    let mut lines = Vec::new();
    loop {
        match stream.next_line().await {
            Ok(Some(line)) => lines.push(String::from_utf8(line.to_vec()).unwrap()),
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error)),
        }
    }
}

#[tokio::test]
async fn lines_do_not_depend_on_chunks_and_pieces() {
    let server = TestServer::start().await;
    let client = server.client();
    let whole =
        [chunk("{\"a\":1}\n{\"b\""), chunk(":2}\n"), chunk("\n{\"c\":\"\u{e9}\"}\r\n"), LAST_CHUNK.to_vec()]
            .concat();
    let bytes = [CHUNKED, &whole].concat();
    for cut in [1, 2, 3, 7, 16, bytes.len()] {
        let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
        server.script("GET", &pieces, ScriptEnd::Keep);
        let lines = read_lines(&client).await;
        assert_eq!(
            lines,
            (vec!["{\"a\":1}".to_owned(), "{\"b\":2}".to_owned(), "{\"c\":\"\u{e9}\"}".to_owned()], None)
        );
    }
    let target = server.with(|state| state.requests[0].target.clone());
    let expected =
        "/apis/g.example/v1/things?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=7";
    assert_eq!(target, expected);
}

#[tokio::test]
async fn a_watch_that_ends_early_is_an_error() {
    let server = TestServer::start().await;
    let client = server.client();
    let one = chunk("{\"a\":1}\n");
    // The connection closes without a last chunk, within a chunk, and within a line.
    for pieces in
        [vec![CHUNKED, &one], vec![CHUNKED, &one, b"ff\r\n{"], vec![CHUNKED, &one, b"1\r\n{\r\n", LAST_CHUNK]]
    {
        server.script("GET", &pieces, ScriptEnd::Close);
        let (lines, error) = read_lines(&client).await;
        assert_eq!(lines, ["{\"a\":1}"]);
        let error = error.unwrap();
        assert!(
            matches!(&error, ApiError::Unreachable(text) if text.starts_with("watch /apis/g.example/v1/things: ")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn silence_is_noticed() {
    let server = TestServer::start().await;
    server.script("GET", &[CHUNKED, &chunk("{\"a\"")], ScriptEnd::Hang);
    let mut stream = server.client().watch(&kind(), "v1", "7").await.unwrap();
    assert_eq!(stream.next_line_within(Duration::from_millis(30)).await, Err(None));
}

#[tokio::test]
async fn metadata_and_selectors_are_requested() {
    let server = TestServer::start().await;
    let client = server.client();
    let secrets = WatchTarget {
        namespace: Some("ops".to_owned()),
        field_selector: Some("type=kubernetes.io/tls".to_owned()),
        label_selector: Some("a in (b,c)".to_owned()),
        ..WatchTarget::new("", "secrets", "Secret", &["v1"]).metadata_only()
    };
    server.script_status("GET", 200, "{}");
    client.list_page(&secrets, "v1", Some(500), Some("t/1")).await.unwrap();
    let request = server.with(|state| state.requests[0].clone());
    let expected = "/api/v1/namespaces/ops/secrets?fieldSelector=type%3Dkubernetes.io%2Ftls&\
                    labelSelector=a%20in%20%28b%2Cc%29&limit=500&continue=t%2F1";
    assert_eq!(request.target, expected);
    assert_eq!(request.headers["accept"], "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    server.script("GET", &[CHUNKED, LAST_CHUNK], ScriptEnd::Keep);
    client.watch(&secrets, "v1", "1").await.unwrap();
    let request = server.with(|state| state.requests[1].clone());
    assert_eq!(request.headers["accept"], "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
}

fn object(name: &str, version: u64) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn line(kind: &str, name: &str, version: u64) -> Vec<u8> {
    chunk(&format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(name, version)))
}

/// The next event in short, with the index of the kind.
async fn next(reports: &mut mpsc::Receiver<WatchReport>) -> String {
    let report = tokio::time::timeout(Duration::from_secs(30), reports.recv()).await;
    let WatchReport { kind, output, .. } = report.expect("no event within 30 s").unwrap();
    match output {
        WatchOutput::Replaced(objects) => {
            let names: Vec<&str> = objects.iter().map(|object| &*object.name).collect();
            format!("{kind} ={}", names.join(" "))
        }
        WatchOutput::Changed(RawObjectChange::Put(object)) => format!("{kind} +{}", object.name),
        WatchOutput::Changed(RawObjectChange::Delete(object)) => format!("{kind} -{}", object.name),
        WatchOutput::Absent => format!("{kind} absent"),
        WatchOutput::Denied(message) => format!("{kind} denied: {message}"),
        WatchOutput::Failed(error) => format!("{kind} failed: {error}"),
    }
}

const RESOURCES: &str = r#"{"resources":[{"name":"things","kind":"Thing","namespaced":true}]}"#;

#[tokio::test]
async fn a_kind_is_listed_watched_and_resumed() {
    let server = TestServer::start().await;
    server.script_status("GET /apis/g.example/v1", 200, RESOURCES);
    let page = |token: &str, name: &str| {
        format!(
            r#"{{"metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{}]}}"#,
            object(name, 3)
        )
    };
    server.script_status("GET /apis/g.example/v1/things?limit=500", 200, &page("t", "a"));
    server.script_status("GET /apis/g.example/v1/things?limit=500", 200, &page("", "b"));
    let first = [line("ADDED", "c", 11), line("DELETED", "a", 12)].concat();
    server.script(
        "GET /apis/g.example/v1/things?watch",
        &[CHUNKED, &first, b"ff\r\n{\"type\""],
        ScriptEnd::Close,
    );
    server.script(
        "GET /apis/g.example/v1/things?watch",
        &[CHUNKED, &line("MODIFIED", "b", 15)],
        ScriptEnd::Hang,
    );
    let (sender, mut reports) = mpsc::channel(1);
    let set = WatchSet::start(&server.client(), vec![kind()], 1, &sender);
    for expected in ["0 =a b", "0 +c", "0 -a"] {
        assert_eq!(next(&mut reports).await, expected);
    }
    // The second script is for the watch, not for the group: it starts with the same path.
    let failed = next(&mut reports).await;
    assert!(failed.starts_with("0 failed: watch /apis/g.example/v1/things: "), "{failed}");
    assert_eq!(next(&mut reports).await, "0 +b");
    let targets: Vec<String> =
        server.with(|state| state.requests.iter().map(|request| request.target.clone()).collect());
    assert!(targets[2].ends_with("?limit=500&continue=t"), "{targets:?}");
    assert!(targets[4].ends_with("&resourceVersion=12"), "{targets:?}");
    let health = set.health(0).unwrap();
    assert_eq!(health.stage, WatchStage::Following);
    assert!(health.stale_ms.unwrap() < 30_000);
    assert_eq!(set.health(1), None);
}

#[tokio::test]
async fn kinds_start_one_after_another_and_absent_ones_do_not_block() {
    let server = TestServer::start().await;
    let (sender, mut reports) = mpsc::channel(16);
    let core = WatchTarget::new("", "services", "Service", &["v1"]);
    // The group of the first kind is not installed; the second kind may not be listed.
    let resources = r#"{"resources":[{"name":"services","kind":"Service","namespaced":true}]}"#;
    server.script_status("GET /api/v1", 200, resources);
    server.script_status("GET /api/v1/services", 403, r#"{"message":"no"}"#);
    let set = WatchSet::start(&server.client(), vec![kind(), core], 1, &sender);
    assert_eq!(next(&mut reports).await, "0 absent");
    let denied = "1 denied: list /api/v1/services: 403: no; grant verb \"list\" on resource \"services\" of API group \
                  \"\" in a ClusterRole";
    assert_eq!(next(&mut reports).await, denied);
    assert_eq!(set.health(0).unwrap().stage, WatchStage::Absent);
    assert_eq!(set.health(1).unwrap().stage, WatchStage::Denied);
    assert_eq!(set.health(0).unwrap().stale_ms, None);
    // The definition is installed: a notice about the group ends the pause.
    server.script_status("GET /apis/g.example/v1", 200, RESOURCES);
    let empty = r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#;
    server.script_status("GET /apis/g.example/v1/things?limit=500", 200, empty);
    server.script("GET /apis/g.example/v1/things?watch", &[CHUNKED], ScriptEnd::Hang);
    set.recheck_group("g.example");
    assert_eq!(next(&mut reports).await, "0 =");
}
