//! Requests to the API server: objects, pages, watches, discovery.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::client::{Body, Client};
use serde::Deserialize;

use crate::error::{ApiError, ApiVerb, RequestSubject};
use crate::kind::WatchTarget;
use crate::line_stream::{LineStream, error_chain};
use crate::object::{ObjectAddress, RawObject, collection_path, group_path, push_query, version_path};
use crate::server_config::ApiServerConfig;

/// The field manager of all writes.
const FIELD_MANAGER: &str = "yumen";
/// The most bytes of a response: a list without pages may hold thousands of objects.
const BODY_BYTES_MAX: usize = 1 << 30;
/// The most bytes of an error response.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// The shortest time between two reloads of credentials.
const RELOAD_PAUSE: Duration = Duration::from_secs(30);
/// The bound of a watch by the API server, in seconds. Load balancers and proxies often cut at 300 s.
const WATCH_TIMEOUT_S: &str = "290";

/// How a patch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchMethod {
    /// RFC 7396: members replace, `null` removes. A `metadata.resourceVersion` in it is a precondition.
    Merge,
    /// Server-side apply by the field manager `yumen`, taking over fields of others. Creates a missing object.
    Apply,
    /// Server-side apply for an object that does not exist: a field that another manager set meanwhile is a conflict.
    ApplyUnforced,
}

/// A change of one object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectPatch<'p> {
    /// How the body is applied.
    pub method: PatchMethod,
    /// Whether the subresource `status` is changed instead of the object.
    pub is_status: bool,
    /// The JSON text. Apply needs `apiVersion` and `kind` in it.
    pub body: &'p str,
}

/// A resource that the API server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedKind {
    /// The API version, `v1`.
    pub version: String,
    /// The resource, `httproutes`.
    pub plural: String,
    /// `HTTPRoute`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// A client of one API server. Clones share connections and credentials.
///
/// Create it within a Tokio runtime: the transport spawns a task.
#[derive(Clone)]
pub struct ApiClient {
    shared: Arc<SharedClient>,
}

struct SharedClient {
    config: ApiServerConfig,
    current: Mutex<CurrentClient>,
}

struct CurrentClient {
    client: Client,
    reloaded_at: Option<Instant>,
}

/// A request before its transport.
struct ApiRequest<'r> {
    subject: RequestSubject<'r>,
    method: Method,
    /// Path and query.
    target: String,
    accept: &'static str,
    /// Media type and body.
    content: Option<RequestContent<'r>>,
}

struct RequestContent<'r> {
    media_type: &'static str,
    body: &'r str,
}

impl ApiClient {
    /// A client without a connection yet.
    ///
    /// # Errors
    ///
    /// [`ApiError::Unusable`] if certificates, keys or exec credentials do not work.
    pub fn new(config: &ApiServerConfig) -> Result<ApiClient, ApiError> {
        let current = CurrentClient { client: config.connect()?, reloaded_at: None };
        Ok(ApiClient {
            shared: Arc::new(SharedClient { config: config.clone(), current: Mutex::new(current) }),
        })
    }

    /// Reads one object.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotFound`] if it does not exist, [`ApiError::Denied`] without the verb `get`.
    pub async fn get(&self, at: &ObjectAddress) -> Result<RawObject, ApiError> {
        let path = at.url_path();
        self.object_request(ApiVerb::Get, Method::GET, at, &path, path.clone(), None).await
    }

    /// Changes an object or its status.
    ///
    /// # Errors
    ///
    /// [`ApiError::Conflict`] if the body names another `metadata.resourceVersion` than the API server holds.
    pub async fn patch(&self, at: &ObjectAddress, patch: ObjectPatch<'_>) -> Result<RawObject, ApiError> {
        let mut path = at.url_path();
        if patch.is_status {
            path.push_str("/status");
        }
        let mut target = path.clone();
        push_query(&mut target, "fieldManager", FIELD_MANAGER);
        let media_type = match patch.method {
            PatchMethod::Merge => "application/merge-patch+json",
            PatchMethod::Apply | PatchMethod::ApplyUnforced => {
                if patch.method == PatchMethod::Apply {
                    push_query(&mut target, "force", "true");
                }
                // JSON is YAML; the media type for JSON is not served by all supported releases.
                "application/apply-patch+yaml"
            }
        };
        let content = RequestContent { media_type, body: patch.body };
        self.object_request(ApiVerb::Patch, Method::PATCH, at, &path, target, Some(content)).await
    }

    /// Creates an object from a whole JSON text; `at` gives kind and namespace.
    ///
    /// # Errors
    ///
    /// [`ApiError::Conflict`] if it exists already.
    pub async fn create(&self, at: &ObjectAddress, body: &str) -> Result<RawObject, ApiError> {
        let path = at.collection_path();
        let mut target = path.clone();
        push_query(&mut target, "fieldManager", FIELD_MANAGER);
        let content = RequestContent { media_type: "application/json", body };
        self.object_request(ApiVerb::Create, Method::POST, at, &path, target, Some(content)).await
    }

    /// Deletes an object; with `uid`, only that object and no later one of the same name.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotFound`] if it does not exist, [`ApiError::Conflict`] if it has another uid.
    pub async fn delete(&self, at: &ObjectAddress, uid: Option<&str>) -> Result<(), ApiError> {
        let path = at.url_path();
        let body = uid.map(|uid| {
            serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}).to_string()
        });
        let content = body.as_deref().map(|body| RequestContent { media_type: "application/json", body });
        let request = ApiRequest {
            subject: object_subject(ApiVerb::Delete, at, &path, &at.plural),
            method: Method::DELETE,
            target: path.clone(),
            accept: "application/json",
            content,
        };
        self.whole_response(request).await.map(|_| ())
    }

    /// The resources of a group in all versions that the API server serves; none if the group is not installed.
    ///
    /// # Errors
    ///
    /// [`ApiError::Denied`] if the identity may not use discovery.
    pub async fn served_versions(&self, group: &str) -> Result<Vec<ServedKind>, ApiError> {
        let path = group_path(group);
        let Some(text) = found(self.discovery(&path).await)? else { return Ok(Vec::new()) };
        let versions = group_versions(&text).map_err(|cause| discovery_subject(&path).malformed(&cause))?;
        let mut kinds = Vec::new();
        for version in versions {
            kinds.extend(self.served_kinds(group, &version).await?);
        }
        Ok(kinds)
    }

    /// The first version of [`WatchTarget::versions`] that the API server serves.
    ///
    /// # Errors
    ///
    /// Those of [`ApiClient::served_versions`].
    pub async fn served_version(&self, kind: &WatchTarget) -> Result<Option<String>, ApiError> {
        for version in &kind.versions {
            let served = self.served_kinds(&kind.group, version).await?;
            if served.iter().any(|one| one.plural == kind.plural) {
                return Ok(Some(version.clone()));
            }
        }
        Ok(None)
    }

    /// One page of a list as JSON; without `limit`, the whole list. The first page is a quorum read: it has no
    /// `resourceVersion`, so a lagging API server does not answer from its cache.
    ///
    /// # Errors
    ///
    /// [`ApiError::Gone`] if the token is older than the history, [`ApiError::NotFound`] if the kind is not served.
    pub async fn list_page(
        &self,
        kind: &WatchTarget,
        version: &str,
        limit: Option<u32>,
        continue_token: Option<&str>,
    ) -> Result<Bytes, ApiError> {
        let path = collection_path(&kind.group, version, &kind.plural, kind.namespace.as_deref());
        let mut target = selected(kind, &path);
        if let Some(limit) = limit {
            push_query(&mut target, "limit", &limit.to_string());
        }
        if let Some(token) = continue_token {
            push_query(&mut target, "continue", token);
        }
        let request = ApiRequest {
            subject: kind_subject(ApiVerb::List, kind, &path),
            method: Method::GET,
            target,
            accept: kind.list_accept(),
            content: None,
        };
        // Without pages the response may be a hundred times as long, and a bound that is too low would never let it end.
        let timeout = self.shared.config.request_timeout() * if limit.is_none() { 10 } else { 1 };
        self.response_within(timeout, request).await
    }

    /// Opens a watch from a position, with bookmarks. The API server ends it after 290 s.
    ///
    /// # Errors
    ///
    /// [`ApiError::Gone`] if the position is older than the history.
    pub async fn watch(
        &self,
        kind: &WatchTarget,
        version: &str,
        resource_version: &str,
    ) -> Result<LineStream, ApiError> {
        let path = collection_path(&kind.group, version, &kind.plural, kind.namespace.as_deref());
        let mut target = selected(kind, &path);
        push_query(&mut target, "watch", "true");
        push_query(&mut target, "allowWatchBookmarks", "true");
        push_query(&mut target, "timeoutSeconds", WATCH_TIMEOUT_S);
        push_query(&mut target, "resourceVersion", resource_version);
        let request = ApiRequest {
            subject: kind_subject(ApiVerb::Watch, kind, &path),
            method: Method::GET,
            target,
            accept: kind.watch_accept(),
            content: None,
        };
        let subject = request.subject;
        let timeout = self.shared.config.request_timeout();
        let response = match tokio::time::timeout(timeout, self.send(request)).await {
            Ok(response) => response?,
            Err(_) => return Err(subject.unreachable(&format!("no response within {timeout:?}"))),
        };
        Ok(LineStream::new(response.into_body(), format!("watch {path}")))
    }

    async fn object_request(
        &self,
        verb: ApiVerb,
        method: Method,
        at: &ObjectAddress,
        path: &str,
        target: String,
        content: Option<RequestContent<'_>>,
    ) -> Result<RawObject, ApiError> {
        let resource = if path.ends_with("/status") && verb == ApiVerb::Patch {
            format!("{}/status", at.plural)
        } else {
            at.plural.to_string()
        };
        let subject = object_subject(verb, at, path, &resource);
        let text = self
            .whole_response(ApiRequest { subject, method, target, accept: "application/json", content })
            .await?;
        RawObject::decode(&text).map_err(|cause| subject.malformed(&cause))
    }

    async fn served_kinds(&self, group: &str, version: &str) -> Result<Vec<ServedKind>, ApiError> {
        let path = version_path(group, version);
        let Some(text) = found(self.discovery(&path).await)? else { return Ok(Vec::new()) };
        version_kinds(&text, version).map_err(|cause| discovery_subject(&path).malformed(&cause))
    }

    async fn discovery(&self, path: &str) -> Result<Bytes, ApiError> {
        let request = ApiRequest {
            subject: discovery_subject(path),
            method: Method::GET,
            target: path.to_owned(),
            accept: "application/json",
            content: None,
        };
        self.whole_response(request).await
    }

    /// A response with its body, within the request timeout.
    async fn whole_response(&self, request: ApiRequest<'_>) -> Result<Bytes, ApiError> {
        self.response_within(self.shared.config.request_timeout(), request).await
    }

    async fn response_within(&self, timeout: Duration, request: ApiRequest<'_>) -> Result<Bytes, ApiError> {
        let subject = request.subject;
        let exchange = async {
            let body = self.send(request).await?.into_body();
            let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
            collected.map(|body| body.to_bytes()).map_err(|error| subject.unreachable(&error_chain(&*error)))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(subject.unreachable(&format!("no response within {timeout:?}"))),
        }
    }

    /// The head of a response with status 2xx.
    async fn send(&self, request: ApiRequest<'_>) -> Result<Response<Body>, ApiError> {
        let subject = request.subject;
        let http_request = build(request).map_err(|error| subject.malformed(&error.to_string()))?;
        let client = self.lock().client.clone();
        let response =
            client.send(http_request).await.map_err(|error| subject.unreachable(&error_chain(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        // An error body that fails or is too long leaves the status, which suffices.
        let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        if status.as_u16() == 401 {
            self.reload_credentials().await;
        }
        Err(subject.refused(status.as_u16(), retry_after.as_deref(), &body))
    }

    /// Builds the transport again after a 401, so that the next request uses renewed client certificates and files.
    async fn reload_credentials(&self) {
        {
            let mut current = self.lock();
            if current.reloaded_at.is_some_and(|at| at.elapsed() < RELOAD_PAUSE) {
                return;
            }
            current.reloaded_at = Some(Instant::now());
        }
        let connected = self.shared.config.reload().await.and_then(|fresh| fresh.connect());
        match connected {
            Ok(client) => self.lock().client = client,
            Err(error) => tracing::warn!(error = %error, "reload of API server credentials failed"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CurrentClient> {
        self.shared.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(request: ApiRequest<'_>) -> Result<Request<Body>, http::Error> {
    let builder = Request::builder()
        .method(request.method)
        .uri(request.target)
        .header(ACCEPT, request.accept)
        // The transport does not decompress.
        .header(ACCEPT_ENCODING, "identity");
    match request.content {
        Some(content) => builder
            .header(CONTENT_TYPE, content.media_type)
            .body(Body::from(content.body.as_bytes().to_vec())),
        None => builder.body(Body::empty()),
    }
}

/// The path with the selectors of the kind.
fn selected(kind: &WatchTarget, path: &str) -> String {
    let mut target = path.to_owned();
    if let Some(selector) = &kind.field_selector {
        push_query(&mut target, "fieldSelector", selector);
    }
    if let Some(selector) = &kind.label_selector {
        push_query(&mut target, "labelSelector", selector);
    }
    target
}

/// `None` for 404.
fn found(response: Result<Bytes, ApiError>) -> Result<Option<Bytes>, ApiError> {
    match response {
        Ok(text) => Ok(Some(text)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn object_subject<'s>(
    verb: ApiVerb,
    at: &'s ObjectAddress,
    path: &'s str,
    resource: &'s str,
) -> RequestSubject<'s> {
    RequestSubject { verb, path, group: &at.group, resource, namespace: at.namespace.as_deref() }
}

fn kind_subject<'s>(verb: ApiVerb, kind: &'s WatchTarget, path: &'s str) -> RequestSubject<'s> {
    RequestSubject {
        verb,
        path,
        group: &kind.group,
        resource: &kind.plural,
        namespace: kind.namespace.as_deref(),
    }
}

fn discovery_subject(path: &str) -> RequestSubject<'_> {
    RequestSubject { verb: ApiVerb::Get, path, group: "", resource: "", namespace: None }
}

/// The versions of an `APIGroup`, or of the `APIVersions` of the core group.
fn group_versions(text: &[u8]) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum VersionEntry {
        Core(String),
        Named { version: String },
    }
    #[derive(Deserialize)]
    struct GroupVersions {
        versions: Vec<VersionEntry>,
    }
    let group: GroupVersions = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let name = |entry| match entry {
        VersionEntry::Core(version) | VersionEntry::Named { version } => version,
    };
    Ok(group.versions.into_iter().map(name).collect())
}

/// The resources of an `APIResourceList` that can be watched; subresources are left out.
fn version_kinds(text: &[u8], version: &str) -> Result<Vec<ServedKind>, String> {
    #[derive(Deserialize)]
    struct ResourceEntry {
        name: String,
        kind: String,
        namespaced: bool,
    }
    #[derive(Deserialize)]
    struct ResourceEntries {
        resources: Vec<ResourceEntry>,
    }
    let list: ResourceEntries = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let whole = list.resources.into_iter().filter(|entry| !entry.name.contains('/'));
    let kinds = whole.map(|entry| ServedKind {
        version: version.to_owned(),
        plural: entry.name,
        kind: entry.kind,
        namespaced: entry.namespaced,
    });
    Ok(kinds.collect())
}

#[cfg(test)]
mod tests {
    use super::{group_versions, version_kinds};

    #[test]
    fn discovery_lists_versions_and_kinds() {
        let group = br#"{"kind":"APIGroup","versions":[{"groupVersion":"g/v1","version":"v1"},{"groupVersion":"g/v1beta1","version":"v1beta1"}]}"#;
        assert_eq!(group_versions(group).unwrap(), ["v1", "v1beta1"]);
        assert_eq!(group_versions(br#"{"kind":"APIVersions","versions":["v1"]}"#).unwrap(), ["v1"]);
        let list = br#"{"resources":[{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":[]},
            {"name":"gateways/status","kind":"Gateway","namespaced":true}]}"#;
        let kinds = version_kinds(list, "v1").unwrap();
        assert_eq!(kinds.len(), 1);
        assert_eq!(
            (kinds[0].plural.as_str(), kinds[0].kind.as_str(), kinds[0].namespaced),
            ("gateways", "Gateway", true)
        );
    }
}
