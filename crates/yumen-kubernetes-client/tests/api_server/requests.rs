//! Verbs, errors, credentials.

use std::fmt::Write as _;
use std::path::PathBuf;

use base64::Engine;
use serde_json::json;
use yumen_kubernetes_client::{
    ApiClient, ApiError, ApiServerConfig, ObjectAddress, ObjectPatch, PatchMethod,
};

use crate::server::{ScriptEnd, TestServer};

const EDGE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/edge";

pub(crate) fn edge() -> ObjectAddress {
    ObjectAddress {
        group: "gateway.networking.k8s.io".into(),
        version: "v1".into(),
        plural: "gateways".into(),
        namespace: Some("shop".into()),
        name: "edge".into(),
    }
}

fn edge_object() -> serde_json::Value {
    json!({"kind": "Gateway", "metadata": {"name": "edge", "namespace": "shop", "uid": "u1", "managedFields": [{}]}})
}

#[tokio::test]
async fn objects_are_read_changed_created_and_deleted() {
    let server = TestServer::start().await;
    server.put(EDGE, edge_object());
    let client = server.client();
    let object = client.get(&edge()).await.unwrap();
    assert_eq!(
        (&*object.namespace, &*object.name, &*object.uid, &*object.resource_version),
        ("shop", "edge", "u1", "1")
    );
    assert!(!std::str::from_utf8(&object.json).unwrap().contains("managedFields"));

    let merge = ObjectPatch { method: PatchMethod::Merge, is_status: true, body: r#"{"status":{"a":1}}"# };
    assert_eq!(&*client.patch(&edge(), merge).await.unwrap().resource_version, "2");
    let apply = ObjectPatch { method: PatchMethod::Apply, is_status: false, body: r#"{"spec":{"b":2}}"# };
    client.patch(&edge(), apply).await.unwrap();
    assert_eq!(
        client.create(&edge(), &edge_object().to_string()).await.unwrap_err(),
        ApiError::Conflict(
            "create /apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways: 409: exists".to_owned(),
        )
    );
    client.delete(&edge(), Some("u1")).await.unwrap();
    assert!(matches!(client.get(&edge()).await, Err(ApiError::NotFound(_))));
    client.create(&edge(), &edge_object().to_string()).await.unwrap();

    let requests = server.with(|state| state.requests.clone());
    for request in &requests {
        assert_eq!(request.headers["authorization"], "Bearer secret");
        assert!(request.headers["user-agent"].starts_with("yumen/"));
    }
    let line = |index: usize| {
        let request = &requests[index];
        let media_type = request.headers.get("content-type").map_or("", String::as_str);
        format!("{} {} {media_type} {}", request.method, request.target, request.body)
    };
    assert_eq!(
        line(1),
        format!(
            r#"PATCH {EDGE}/status?fieldManager=yumen application/merge-patch+json {{"status":{{"a":1}}}}"#
        )
    );
    assert_eq!(
        line(2),
        format!(
            r#"PATCH {EDGE}?fieldManager=yumen&force=true application/apply-patch+yaml {{"spec":{{"b":2}}}}"#
        )
    );
    let options = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u1"}}"#;
    assert_eq!(line(4), format!("DELETE {EDGE} application/json {options}"));
}

#[tokio::test]
async fn served_versions_come_from_discovery() {
    let server = TestServer::start().await;
    let client = server.client();
    assert_eq!(client.served_versions("g.example").await, Ok(Vec::new()));
    server.script_status(
        "GET /apis/g.example",
        200,
        r#"{"versions":[{"groupVersion":"g.example/v1","version":"v1"}]}"#,
    );
    let resources = r#"{"resources":[{"name":"things","kind":"Thing","namespaced":false}]}"#;
    server.script_status("GET /apis/g.example/v1", 200, resources);
    let served = client.served_versions("g.example").await.unwrap();
    assert_eq!(
        (served[0].version.as_str(), served[0].plural.as_str(), served[0].namespaced),
        ("v1", "things", false)
    );
}

#[tokio::test]
async fn errors_name_path_and_repair() {
    let server = TestServer::start().await;
    let client = server.client();
    let check = async |code: u16, body: &str, expected: &str| {
        server.script_status("GET", code, body);
        assert_eq!(client.get(&edge()).await.unwrap_err().to_string(), format!("get {EDGE}: {expected}"));
    };
    check(
        403,
        r#"{"message":"no"}"#,
        "403: no; grant verb \"get\" on resource \"gateways\" of API group \
         \"gateway.networking.k8s.io\" in a Role in namespace shop or a ClusterRole",
    )
    .await;
    check(
        401,
        r#"{"message":"Unauthorized"}"#,
        "401: Unauthorized; check the token or client certificate of the \
         kubeconfig user or service account",
    )
    .await;
    check(500, "", "500: no message").await;
    check(200, r#"{"metadata":{}}"#, "object without metadata.name or metadata.resourceVersion").await;
    check(200, "<html>", "malformed JSON at byte 0").await;
    server.script("GET", &[b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"], ScriptEnd::Close);
    let error = client.get(&edge()).await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Unreachable(text) if text.starts_with(&format!("get {EDGE}: "))),
        "{error}"
    );
    server.script(
        "GET",
        &[b"HTTP/1.1 429 X\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"],
        ScriptEnd::Keep,
    );
    assert!(matches!(client.get(&edge()).await, Err(ApiError::Throttled { after_ms: 7000, .. })));
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let (server, other) = (TestServer::start().await, TestServer::start().await);
    let config = ApiServerConfig::from_url(&server.url, Some(&other.ca_pem), None).unwrap();
    let error = ApiClient::new(&config).unwrap().get(&edge()).await.unwrap_err();
    assert!(matches!(&error, ApiError::Unreachable(text) if text.contains("certificate")), "{error}");
    assert_eq!(server.with(|state| state.requests.len()), 0);
}

#[tokio::test]
async fn a_silent_server_ends_in_a_timeout() {
    let server = TestServer::start().await;
    let config = server.config().with_request_timeout(std::time::Duration::from_millis(50));
    let client = ApiClient::new(&config).unwrap();
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{";
    for pieces in [&[][..], &[&head[..]]] {
        server.script("GET", pieces, ScriptEnd::Hang);
        let error = client.get(&edge()).await.unwrap_err();
        // The handshake may be the slow part: the bound covers it as well.
        assert_eq!(error.to_string(), format!("get {EDGE}: no response within 50ms"));
    }
}

/// A file in a directory of its own, removed on drop.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, text: &str) -> TemporaryFile {
        let path =
            std::env::temp_dir().join(format!("yumen-kubernetes-client-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn kubeconfig(server: &TestServer, cluster: &str, user: &str) -> String {
    let ca = base64::engine::general_purpose::STANDARD.encode(&server.ca_pem);
    let mut text = String::new();
    write!(
        text,
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u, namespace: ops}}}}]\n\
         clusters: [{{name: k, cluster: {{server: \"{}\", certificate-authority-data: {ca}{cluster}}}}}]\n\
         users: [{{name: u, user: {user}}}]\n",
        server.url
    )
    .unwrap();
    text
}

#[tokio::test]
async fn kubeconfig_tokens_and_exec_credentials_are_sent() {
    let server = TestServer::start().await;
    server.put(EDGE, edge_object());
    let credential = r#"{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"from-exec\"}}"#;
    let exec = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: echo, args: [\"{credential}\"], interactiveMode: Never}}}}"
    );
    for (name, user, expected) in
        [("token", "{token: from-file}", "Bearer from-file"), ("exec", &exec, "Bearer from-exec")]
    {
        let file = TemporaryFile::new(name, &kubeconfig(&server, "", user));
        let config = ApiServerConfig::from_kubeconfig(&file.0, None).await.unwrap();
        assert_eq!((config.namespace(), config.url()), ("ops", format!("{}/", server.url)));
        ApiClient::new(&config).unwrap().get(&edge()).await.unwrap();
        let authorization =
            server.with(|state| state.requests.last().unwrap().headers["authorization"].clone());
        assert_eq!(authorization, expected);
    }
}

#[tokio::test]
async fn a_renewed_kubeconfig_is_read_after_a_401() {
    let server = TestServer::start().await;
    server.put(EDGE, edge_object());
    let file = TemporaryFile::new("renewed", &kubeconfig(&server, "", "{token: old}"));
    let config = ApiServerConfig::from_kubeconfig(&file.0, None).await.unwrap();
    let client = ApiClient::new(&config).unwrap();
    std::fs::write(&file.0, kubeconfig(&server, "", "{token: new}")).unwrap();
    server.script_status("GET", 401, r#"{"message":"Unauthorized"}"#);
    assert!(matches!(client.get(&edge()).await, Err(ApiError::Unauthenticated(_))));
    client.get(&edge()).await.unwrap();
    let tokens: Vec<String> = server.with(|state| {
        state.requests.iter().map(|request| request.headers["authorization"].clone()).collect()
    });
    assert_eq!(tokens, ["Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn unusable_kubeconfigs_name_file_and_cause() {
    let server = TestServer::start().await;
    let check = async |name: &str, text: &str, context: Option<&str>, expected: &str| {
        let file = TemporaryFile::new(name, text);
        let error = ApiServerConfig::from_kubeconfig(&file.0, context).await.unwrap_err().to_string();
        let prefix = format!("kubeconfig {}: ", file.0.display());
        assert!(error.starts_with(&prefix) && error.contains(expected), "{error}");
    };
    check("syntax", "{", None, "").await;
    check("context", &kubeconfig(&server, "", "{}"), Some("other"), "other").await;
    let proxied = kubeconfig(&server, ", proxy-url: \"http://proxy.example:3128\"", "{}");
    check("proxy", &proxied, None, "proxy-url http://proxy.example:3128/ is not supported").await;
    let missing = ApiServerConfig::from_kubeconfig(std::path::Path::new("/nonexistent/config"), None).await;
    assert!(missing.unwrap_err().to_string().starts_with("kubeconfig /nonexistent/config: "));
}
