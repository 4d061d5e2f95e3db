//! The client against a real API server with its etcd: the answers that a test server only imitates.
//!
//! The programs are `etcd` on the path and `kube-apiserver` in `~/.cache/yumen-kubernetes/VERSION`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::KeyPair;
use tokio::sync::mpsc;
use yumen_kubernetes_client::{
    ApiClient, ApiError, ApiServerConfig, LeaseElection, LeaseSettings, LeaseView, ObjectAddress,
    ObjectPatch, PatchMethod, RawObject, RawObjectChange, StatusDecider, StatusReport, StatusWrite,
    StatusWriter, WatchOutput, WatchReport, WatchSet, WatchStage, WatchTarget,
};
use yumen_test::missing_prerequisite;

/// etcd and an API server on loopback; ended on drop.
struct TestCluster {
    directory: PathBuf,
    url: String,
    etcd_port: u16,
    children: Vec<Child>,
    /// Program and arguments of the API server, for a restart.
    api_server: (PathBuf, Vec<String>),
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn api_server_program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let cache = Path::new(&home).join(".cache/yumen-kubernetes");
    let versions = std::fs::read_dir(cache).ok()?.filter_map(Result::ok);
    versions.map(|version| version.path().join("kube-apiserver")).filter(|path| path.is_file()).max()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TestCluster {
    fn start() -> Option<TestCluster> {
        let Some(program) = api_server_program() else {
            missing_prerequisite("kube-apiserver is not in ~/.cache/yumen-kubernetes");
            return None;
        };
        let directory = std::env::temp_dir().join(format!("yumen-kubernetes-cluster-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let pair = KeyPair::generate().unwrap();
        let (private, public) = (directory.join("accounts.key"), directory.join("accounts.pub"));
        std::fs::write(&private, pair.serialize_pem()).unwrap();
        std::fs::write(&public, pair.public_key_pem()).unwrap();
        let tokens = directory.join("tokens.csv");
        std::fs::write(&tokens, "admin,admin,admin,\"system:masters\"\nguest,guest,guest\n").unwrap();
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        let url = format!("https://127.0.0.1:{port}");
        let mut cluster =
            TestCluster { directory, url, etcd_port, children: Vec::new(), api_server: Default::default() };
        let (etcd, peer) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peer_port}"));
        let data = cluster.directory.join("etcd");
        let started = cluster.spawn(
            Path::new("etcd"),
            &[
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        );
        if !started {
            missing_prerequisite("etcd cannot be started");
            return None;
        }
        let arguments = vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", cluster.directory.join("certs").display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", public.display()),
            format!("--service-account-signing-key-file={}", private.display()),
            format!("--token-auth-file={}", tokens.display()),
            "--authorization-mode=RBAC".to_owned(),
            // Tokens are answered by etcd, so that its compaction ends them at once.
            "--feature-gates=ListFromCacheSnapshot=false".to_owned(),
        ];
        assert!(cluster.spawn(&program, &arguments));
        cluster.api_server = (program, arguments);
        Some(cluster)
    }

    fn stop_api_server(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn restart_api_server(&mut self) {
        let (program, arguments) = self.api_server.clone();
        assert!(self.spawn(&program, &arguments));
    }

    /// Forgets the history before a version, by the JSON gateway of etcd.
    fn compact(&self, revision: &str) {
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        let mut socket = TcpStream::connect(("127.0.0.1", self.etcd_port)).unwrap();
        let head = "POST /v3/kv/compaction HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\ncontent-length: ";
        write!(socket, "{head}{}\r\n\r\n{body}", body.len()).unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }

    fn spawn(&mut self, program: &Path, arguments: &[String]) -> bool {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let log = std::fs::File::create(self.directory.join(format!("{name}.log"))).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        child.is_ok_and(|child| {
            self.children.push(child);
            true
        })
    }

    /// A client of a user, once the API server has written its certificate.
    fn client(&self, user: &str) -> Option<ApiClient> {
        let authority = std::fs::read_to_string(self.directory.join("certs/apiserver.crt")).ok()?;
        let config = ApiServerConfig::from_url(&self.url, Some(&authority), Some(user.to_owned())).ok()?;
        ApiClient::new(&config).ok()
    }

    /// Waits until the API server serves the namespace `default`, which it creates last.
    async fn ready(&mut self) -> ApiClient {
        let started = Instant::now();
        loop {
            if let Some(client) = self.client("admin")
                && client.get(&path("", "v1", "namespaces", None, "default")).await.is_ok()
            {
                return client;
            }
            let exited =
                self.children.iter_mut().any(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            if exited || started.elapsed() > Duration::from_secs(120) {
                let log =
                    std::fs::read_to_string(self.directory.join("kube-apiserver.log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                panic!("no API server: {tail:#?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn path(group: &str, version: &str, plural: &str, namespace: Option<&str>, name: &str) -> ObjectAddress {
    ObjectAddress {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    }
}

fn thing(name: &str) -> ObjectAddress {
    path("test.example", "v1", "things", Some("default"), name)
}

fn config_map(name: &str) -> ObjectAddress {
    path("", "v1", "configmaps", Some("default"), name)
}

const DEFINITION: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.test.example"},
    "spec": {
        "group": "test.example", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
        }]
    }
}"#;

/// Events of the watches, with the names of objects.
struct Events {
    reports: mpsc::Receiver<WatchReport>,
}

impl Events {
    /// Reads until an event satisfies the condition, for 60 s at most.
    async fn until(&mut self, mut is_wanted: impl FnMut(usize, &WatchOutput) -> bool) {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let WatchReport { kind, output, .. } = self.reports.recv().await.unwrap();
                if is_wanted(kind, &output) {
                    return;
                }
                seen.push(format!("{kind} {output:?}"));
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), wait).await;
        assert!(found.is_ok(), "not within 60 s; seen {seen:#?}");
    }

    async fn until_put(&mut self, kind: usize, name: &str) -> RawObject {
        let mut found = None;
        self.until(|index, output| match output {
            WatchOutput::Changed(RawObjectChange::Put(object)) if index == kind && &*object.name == name => {
                found = Some(object.clone());
                true
            }
            _ => false,
        })
        .await;
        found.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver, which takes minutes to build: make test-kubernetes"]
async fn a_real_api_server_is_listed_watched_and_written() {
    let Some(mut cluster) = TestCluster::start() else { return };
    let client = cluster.ready().await;
    check_objects_and_pages(&client).await;
    check_rights(&cluster).await;
    check_watches(&client).await;
    check_expiry(&cluster, &client).await;
    check_statuses(&client).await;
    check_lease(&client).await;
    check_outage(&mut cluster, &client).await;
}

/// Server-side apply, pages, preconditions.
async fn check_objects_and_pages(client: &ApiClient) {
    for number in 0..7 {
        let name = format!("map-{number}");
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"set":"seven"}}}},"data":{{"k":"secret-{number}"}}}}"#
        );
        let patch = ObjectPatch { method: PatchMethod::Apply, is_status: false, body: &body };
        client.patch(&config_map(&name), patch).await.unwrap();
    }
    let mut kind = WatchTarget::new("", "configmaps", "ConfigMap", &["v1"]).metadata_only();
    kind.label_selector = Some("set=seven".to_owned());
    let mut token = None;
    let mut pages = 0;
    loop {
        let page = client.list_page(&kind, "v1", Some(3), token.as_deref()).await.unwrap();
        let page: serde_json::Value = serde_json::from_slice(&page).unwrap();
        // Contents stay on the API server.
        assert!(!page.to_string().contains("secret-"), "{page}");
        pages += 1;
        token = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert_eq!(pages, 3);
    let old = client.get(&config_map("map-0")).await.unwrap();
    let body = r#"{"data":{"k":"other"}}"#;
    client
        .patch(&config_map("map-0"), ObjectPatch { method: PatchMethod::Merge, is_status: false, body })
        .await
        .unwrap();
    let body =
        format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"data":{{"k":"third"}}}}"#, old.resource_version);
    let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body: &body };
    assert!(matches!(client.patch(&config_map("map-0"), patch).await, Err(ApiError::Conflict(_))));
    assert!(matches!(client.delete(&config_map("map-0"), Some("other")).await, Err(ApiError::Conflict(_))));
    client.delete(&config_map("map-0"), Some(&old.uid)).await.unwrap();
    assert!(matches!(client.get(&config_map("map-0")).await, Err(ApiError::NotFound(_))));
}

/// A user without roles.
async fn check_rights(cluster: &TestCluster) {
    let guest = cluster.client("guest").unwrap();
    let kind = WatchTarget::new("", "secrets", "Secret", &["v1"]);
    let started = Instant::now();
    // The API server binds its own roles within seconds after its start.
    while guest.served_version(&kind).await != Ok(Some("v1".to_owned())) {
        assert!(started.elapsed() < Duration::from_secs(60), "no discovery for guests");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let error = guest.list_page(&kind, "v1", Some(500), None).await.unwrap_err();
    let repair = "grant verb \"list\" on resource \"secrets\" of API group \"\" in a ClusterRole";
    assert!(matches!(&error, ApiError::Denied(text) if text.ends_with(repair)), "{error}");
    let stranger = cluster.client("unknown").unwrap();
    let error = stranger.get(&config_map("map-1")).await.unwrap_err();
    assert!(matches!(error, ApiError::Unauthenticated(_)), "{error}");
}

/// A token and a position before the history of the API server.
async fn check_expiry(cluster: &TestCluster, client: &ApiClient) {
    let maps = WatchTarget::new("", "configmaps", "ConfigMap", &["v1"]);
    let page = client.list_page(&maps, "v1", Some(2), None).await.unwrap();
    let page: serde_json::Value = serde_json::from_slice(&page).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert!(client.list_page(&maps, "v1", Some(2), Some(token)).await.is_ok());
    let body = r#"{"data":{"k":"newer"}}"#;
    let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body };
    let newest = client.patch(&config_map("map-2"), patch).await.unwrap();
    cluster.compact(&newest.resource_version);
    let error = client.list_page(&maps, "v1", Some(2), Some(token)).await.unwrap_err();
    assert!(matches!(error, ApiError::Gone(_)), "{error}");
    // The history of a kind begins with its definition.
    let things = WatchTarget::new("test.example", "things", "Thing", &["v1"]);
    match client.watch(&things, "v1", "1").await {
        Err(error) => assert!(matches!(error, ApiError::Gone(_)), "{error}"),
        Ok(mut stream) => {
            let line = stream.next_line().await.unwrap().unwrap();
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(
                (line["type"].as_str(), line["object"]["code"].as_u64()),
                (Some("ERROR"), Some(410)),
                "{line}"
            );
        }
    }
}

/// A kind that exists, and one that is installed later.
async fn check_watches(client: &ApiClient) {
    let mut maps = WatchTarget::new("", "configmaps", "ConfigMap", &["v1"]).metadata_only();
    maps.label_selector = Some("set=seven".to_owned());
    let things = WatchTarget::new("test.example", "things", "Thing", &["v1"]);
    let definitions = WatchTarget::new(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["v1"],
    );
    let (sender, reports) = mpsc::channel(16);
    let mut events = Events { reports };
    let set = WatchSet::start(client, vec![maps, things, definitions.metadata_only()], 1, &sender);
    events
        .until(|kind, output| {
            kind == 0 && matches!(output, WatchOutput::Replaced(objects) if objects.len() == 6)
        })
        .await;
    events.until(|kind, output| kind == 1 && *output == WatchOutput::Absent).await;
    events.until(|kind, output| kind == 2 && matches!(output, WatchOutput::Replaced(_))).await;
    // An object that loses its label leaves the selection.
    let body = r#"{"metadata":{"labels":{"set":"other"}}}"#;
    client
        .patch(&config_map("map-1"), ObjectPatch { method: PatchMethod::Merge, is_status: false, body })
        .await
        .unwrap();
    let is_deletion = |kind: usize, output: &WatchOutput| {
        kind == 0
            && matches!(output, WatchOutput::Changed(RawObjectChange::Delete(object)) if &*object.name == "map-1")
    };
    events.until(is_deletion).await;
    let definition =
        path("apiextensions.k8s.io", "v1", "customresourcedefinitions", None, "things.test.example");
    client.create(&definition, DEFINITION).await.unwrap();
    // Each change of the definition is a reason to look; the last one shows that it is served.
    events
        .until(|kind, output| {
            if kind == 2 {
                set.recheck_group("test.example");
            }
            kind == 1 && matches!(output, WatchOutput::Replaced(objects) if objects.is_empty())
        })
        .await;
    let body = r#"{"apiVersion":"test.example/v1","kind":"Thing","metadata":{"name":"one"},"spec":{"a":1}}"#;
    client.create(&thing("one"), body).await.unwrap();
    let object = events.until_put(1, "one").await;
    assert!(!std::str::from_utf8(&object.json).unwrap().contains("managedFields"));
    assert!(set.health(1).unwrap().stale_ms.unwrap() < 60_000);
}

struct SteadyDecider;

impl StatusDecider for SteadyDecider {
    fn decide(&self, _: &ObjectAddress, _: &RawObject) -> Option<Box<str>> {
        Some(r#"{"decided":true}"#.into())
    }

    fn report(&self, _: &ObjectAddress, report: StatusReport) {
        assert!(matches!(report, StatusReport::Written(_)), "{report:?}");
    }
}

/// A write on the newest version, and one after a conflict.
async fn check_statuses(client: &ApiClient) {
    let writer = StatusWriter::start(client.clone(), LeaseView::always(), Arc::new(SteadyDecider));
    let newest = client.get(&thing("one")).await.unwrap();
    for status in [r#"{"first":1}"#, r#"{"second":2}"#] {
        let draft = StatusWrite {
            priority: 0,
            resource_version: Some(newest.resource_version.clone()),
            status: status.into(),
        };
        writer.submit(thing("one"), draft);
        let started = Instant::now();
        while writer.pending() > 0 {
            assert!(started.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let object = client.get(&thing("one")).await.unwrap();
    let object: serde_json::Value = serde_json::from_slice(&object.json).unwrap();
    assert_eq!(object["status"], serde_json::json!({"first": 1, "decided": true}));
    assert_eq!(object["spec"], serde_json::json!({"a": 1}));
}

/// A process that dies with the lease is followed within 19 s.
async fn check_lease(client: &ApiClient) {
    let settings = |identity: &str| LeaseSettings {
        namespace: "default".to_owned(),
        name: "yumen-controller".to_owned(),
        identity: identity.to_owned(),
    };
    let one = LeaseElection::start(client.clone(), settings("one"));
    let mut view = one.view();
    assert!(view.is_held() || view.changed().await == Some(true));
    let two = LeaseElection::start(client.clone(), settings("two"));
    let died = Instant::now();
    drop(one);
    let mut view = two.view();
    assert_eq!(view.changed().await, Some(true));
    // 15 s from the last renewal that the second process saw, and its pause of 2 s; the rest is the machine's.
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(25)).contains(&died.elapsed()),
        "{:?}",
        died.elapsed()
    );
    two.stop().await;
    let lease = path("coordination.k8s.io", "v1", "leases", Some("default"), "yumen-controller");
    let lease = client.get(&lease).await.unwrap();
    let lease: serde_json::Value = serde_json::from_slice(&lease.json).unwrap();
    // An empty holder may be left out.
    assert_eq!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), "");
}

/// Objects stay while the API server is down, and changes arrive after its return.
async fn check_outage(cluster: &mut TestCluster, client: &ApiClient) {
    let things = WatchTarget::new("test.example", "things", "Thing", &["v1"]);
    let (sender, reports) = mpsc::channel(16);
    let mut events = Events { reports };
    let set = WatchSet::start(client, vec![things], 1, &sender);
    events.until(|_, output| matches!(output, WatchOutput::Replaced(objects) if objects.len() == 1)).await;
    cluster.stop_api_server();
    events.until(|_, output| matches!(output, WatchOutput::Failed(ApiError::Unreachable(_)))).await;
    assert_eq!(set.health(0).unwrap().stage, WatchStage::Failing);
    cluster.restart_api_server();
    cluster.ready().await;
    let body = r#"{"spec":{"a":2}}"#;
    let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body };
    let started = Instant::now();
    // Custom kinds are served some moments after the API server itself.
    while let Err(error) = client.patch(&thing("one"), patch).await {
        assert!(started.elapsed() < Duration::from_secs(60), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut is_replaced = false;
    events
        .until(|_, output| match output {
            // An API server whose history begins after the position lists again.
            WatchOutput::Replaced(objects) => {
                is_replaced = true;
                assert_eq!(objects.len(), 1);
                std::str::from_utf8(&objects[0].json).unwrap().contains(r#""a":2"#)
            }
            WatchOutput::Changed(RawObjectChange::Put(object)) => {
                std::str::from_utf8(&object.json).unwrap().contains(r#""a":2"#)
            }
            WatchOutput::Changed(RawObjectChange::Delete(_)) | WatchOutput::Absent => panic!("{output:?}"),
            _ => false,
        })
        .await;
    assert!(is_replaced || set.health(0).unwrap().stage == WatchStage::Following);
}
