//! Objects as raw JSON with a lean head, and the texts in which the API server sends them: pages and watch lines.

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::json_slice::{self, MalformedJson};

/// Characters that stay as they are in a path segment or query value (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An object as the API server sent it, without `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawObject {
    /// Empty for objects of the cluster.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`: a new object of the same name has another.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, the precondition of writes.
    pub resource_version: Box<str>,
    /// The JSON text. Elements of lists of core kinds lack `apiVersion` and `kind`.
    pub json: Bytes,
}

/// A change that a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawObjectChange {
    /// A new or changed object.
    Put(RawObject),
    /// A deleted object, in its last state.
    Delete(RawObject),
}

/// The address of one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectAddress {
    /// The API group; empty for core kinds.
    pub group: Box<str>,
    /// The API version, `v1`.
    pub version: Box<str>,
    /// The resource, `httproutes`.
    pub plural: Box<str>,
    /// Absent for objects of the cluster.
    pub namespace: Option<Box<str>>,
    /// `metadata.name`.
    pub name: Box<str>,
}

impl ObjectAddress {
    /// The path of the object on the API server.
    pub fn url_path(&self) -> String {
        let mut path = self.collection_path();
        path.push('/');
        path.extend(encoded(&self.name));
        path
    }

    /// The path of the objects beside this one.
    pub(crate) fn collection_path(&self) -> String {
        collection_path(&self.group, &self.version, &self.plural, self.namespace.as_deref())
    }
}

/// The path of a kind, in one namespace or in all.
pub(crate) fn collection_path(group: &str, version: &str, plural: &str, namespace: Option<&str>) -> String {
    let mut path = version_path(group, version);
    if let Some(namespace) = namespace {
        path.push_str("/namespaces/");
        path.extend(encoded(namespace));
    }
    path.push('/');
    path.extend(encoded(plural));
    path
}

/// The path of the resources of a group and version.
pub(crate) fn version_path(group: &str, version: &str) -> String {
    let mut path = group_path(group);
    path.push('/');
    path.extend(encoded(version));
    path
}

/// The path of the versions of a group.
pub(crate) fn group_path(group: &str) -> String {
    if group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", encoded(group)) }
}

/// A path segment or a query value.
pub(crate) fn encoded(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// Appends `name=value` to a path with or without a query.
pub(crate) fn push_query(path: &mut String, name: &str, value: &str) {
    let separator = if path.contains('?') { '&' } else { '?' };
    // Writing to a String does not fail.
    let _ = write!(path, "{separator}{name}={}", encoded(value));
}

/// One page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectPage {
    pub(crate) objects: Vec<RawObject>,
    /// The version of the whole list; the position of the watch that follows.
    pub(crate) resource_version: Box<str>,
    /// Present unless the page is the last one.
    pub(crate) continue_token: Option<String>,
}

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchLine {
    Change(RawObjectChange),
    /// The position without a change.
    Bookmark(Box<str>),
    /// The end of the watch; 410 if the position is older than the history.
    Error {
        code: u16,
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct HeadMetadata<'t> {
    #[serde(borrow)]
    name: std::borrow::Cow<'t, str>,
    #[serde(borrow)]
    namespace: std::borrow::Cow<'t, str>,
    #[serde(borrow)]
    uid: std::borrow::Cow<'t, str>,
    #[serde(borrow)]
    resource_version: std::borrow::Cow<'t, str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: Box<str>,
    r#continue: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WatchStatus {
    code: u16,
    message: String,
}

impl RawObject {
    /// Reads the head of an object and copies its text without `managedFields`.
    pub(crate) fn decode(text: &[u8]) -> Result<RawObject, String> {
        let metadata = json_slice::member(text, "metadata").map_err(cut)?.ok_or("object without metadata")?;
        let head: HeadMetadata<'_> =
            serde_json::from_slice(&text[metadata.clone()]).map_err(|error| format!("metadata: {error}"))?;
        if head.name.is_empty() || head.resource_version.is_empty() {
            return Err("object without metadata.name or metadata.resourceVersion".to_owned());
        }
        Ok(RawObject {
            namespace: head.namespace.into(),
            name: head.name.into(),
            uid: head.uid.into(),
            resource_version: head.resource_version.into(),
            json: without_managed_fields(text, metadata)?,
        })
    }

    /// The version as a number. API servers count; other texts compare by equality only.
    pub(crate) fn version_number(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// Copies an object without `metadata.managedFields`, which is often larger than the rest.
fn without_managed_fields(text: &[u8], metadata: Range<usize>) -> Result<Bytes, String> {
    let inner = &text[metadata.clone()];
    let members = json_slice::members(inner).map_err(cut)?;
    let Some(at) = members.iter().position(|member| &inner[member.key.clone()] == b"managedFields") else {
        return Ok(Bytes::copy_from_slice(text));
    };
    // With the comma that separates the member: the one before, or the one after if it is the first.
    let (start, end) = match (at.checked_sub(1).map(|before| &members[before]), members.get(at + 1)) {
        (Some(before), _) => (before.value.end, members[at].value.end),
        (None, Some(after)) => (members[at].key.start - 1, after.key.start - 1),
        (None, None) => (members[at].key.start - 1, members[at].value.end),
    };
    let mut kept = Vec::with_capacity(text.len() - (end - start));
    kept.extend_from_slice(&text[..metadata.start + start]);
    kept.extend_from_slice(&text[metadata.start + end..]);
    Ok(kept.into())
}

impl ObjectPage {
    pub(crate) fn decode(text: &[u8]) -> Result<ObjectPage, String> {
        let members = json_slice::members(text).map_err(cut)?;
        let find = |key: &str| json_slice::find(text, &members, key);
        let metadata = find("metadata").ok_or("list without metadata")?;
        let metadata: ListMetadata =
            serde_json::from_slice(metadata).map_err(|error| format!("list metadata: {error}"))?;
        if metadata.resource_version.is_empty() {
            return Err("list without metadata.resourceVersion".to_owned());
        }
        let objects = match find("items") {
            // A list of custom objects without elements may be null.
            None | Some(b"null") => Vec::new(),
            Some(items) => {
                let elements = json_slice::elements(items).map_err(cut)?;
                elements.into_iter().map(|one| RawObject::decode(&items[one])).collect::<Result<_, _>>()?
            }
        };
        let continue_token = Some(metadata.r#continue).filter(|token| !token.is_empty());
        Ok(ObjectPage { objects, resource_version: metadata.resource_version, continue_token })
    }
}

impl WatchLine {
    pub(crate) fn decode(text: &[u8]) -> Result<WatchLine, String> {
        let members = json_slice::members(text).map_err(cut)?;
        let find = |key: &str| json_slice::find(text, &members, key);
        let object = find("object").ok_or("watch line without object")?;
        match find("type").ok_or("watch line without type")? {
            b"\"ADDED\"" | b"\"MODIFIED\"" => {
                Ok(WatchLine::Change(RawObjectChange::Put(RawObject::decode(object)?)))
            }
            b"\"DELETED\"" => Ok(WatchLine::Change(RawObjectChange::Delete(RawObject::decode(object)?))),
            b"\"BOOKMARK\"" => {
                let metadata = json_slice::member(object, "metadata")
                    .map_err(cut)?
                    .ok_or("bookmark without metadata")?;
                let metadata: ListMetadata = serde_json::from_slice(&object[metadata])
                    .map_err(|error| format!("bookmark: {error}"))?;
                if metadata.resource_version.is_empty() {
                    return Err("bookmark without resourceVersion".to_owned());
                }
                Ok(WatchLine::Bookmark(metadata.resource_version))
            }
            b"\"ERROR\"" => {
                let status: WatchStatus =
                    serde_json::from_slice(object).map_err(|error| format!("status: {error}"))?;
                Ok(WatchLine::Error { code: status.code, message: status.message })
            }
            other => {
                Err(format!("watch line of unknown type {}", String::from_utf8_lossy(other).escape_debug()))
            }
        }
    }
}

fn cut(MalformedJson(at): MalformedJson) -> String {
    format!("malformed JSON at byte {at}")
}

#[cfg(test)]
mod tests {
    use super::{ObjectAddress, ObjectPage, RawObject, RawObjectChange, WatchLine};

    fn check_object(text: &str, expected: Result<(&str, &str, &str), &str>) {
        let found = RawObject::decode(text.as_bytes());
        let found = found.as_ref().map(|object| {
            let json = std::str::from_utf8(&object.json).unwrap();
            // The kept text is JSON still.
            serde_json::from_str::<serde_json::Value>(json).unwrap();
            (&*object.namespace, &*object.name, json)
        });
        assert_eq!(found.map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn objects_lose_managed_fields_at_every_place() {
        let first =
            r#"{"metadata":{"managedFields":[{"a":"}"}] , "name":"x","resourceVersion":"1"},"spec":{}}"#;
        check_object(first, Ok(("", "x", r#"{"metadata":{"name":"x","resourceVersion":"1"},"spec":{}}"#)));
        let last = r#"{"metadata":{"name":"x","namespace":"n","resourceVersion":"1","managedFields":[]}}"#;
        check_object(
            last,
            Ok(("n", "x", r#"{"metadata":{"name":"x","namespace":"n","resourceVersion":"1"}}"#)),
        );
        // Members elsewhere keep that name.
        let elsewhere = r#"{"managedFields":1,"metadata":{"name":"x","resourceVersion":"1"}}"#;
        check_object(elsewhere, Ok(("", "x", elsewhere)));
    }

    #[test]
    fn objects_without_a_head_are_errors() {
        check_object(r#"{"spec":{}}"#, Err("object without metadata"));
        check_object(
            r#"{"metadata":{"name":"x"}}"#,
            Err("object without metadata.name or metadata.resourceVersion"),
        );
        check_object(r#"{"metadata":{"name":"x""#, Err("malformed JSON at byte 23"));
    }

    #[test]
    fn pages_have_objects_version_and_token() {
        let text = br#"{"kind":"List","metadata":{"resourceVersion":"9","continue":"t"},"items":[
            {"metadata":{"name":"a","resourceVersion":"1"}},{"metadata":{"name":"b","resourceVersion":"2"}}]}"#;
        let page = ObjectPage::decode(text).unwrap();
        let names: Vec<&str> = page.objects.iter().map(|object| &*object.name).collect();
        assert_eq!(
            (names, &*page.resource_version, page.continue_token.as_deref()),
            (vec!["a", "b"], "9", Some("t"))
        );
        let page = ObjectPage::decode(br#"{"metadata":{"resourceVersion":"9"},"items":null}"#).unwrap();
        assert_eq!((page.objects.len(), page.continue_token), (0, None));
        assert!(ObjectPage::decode(br#"{"metadata":{},"items":[]}"#).is_err());
    }

    #[test]
    fn lines_are_changes_bookmarks_and_errors() {
        let object = r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#;
        let line =
            |kind: &str| WatchLine::decode(format!(r#"{{"type":"{kind}","object":{object}}}"#).as_bytes());
        let raw = RawObject::decode(object.as_bytes()).unwrap();
        assert_eq!(line("ADDED"), Ok(WatchLine::Change(RawObjectChange::Put(raw.clone()))));
        assert_eq!(line("MODIFIED"), Ok(WatchLine::Change(RawObjectChange::Put(raw.clone()))));
        assert_eq!(line("DELETED"), Ok(WatchLine::Change(RawObjectChange::Delete(raw))));
        assert_eq!(line("BOOKMARK"), Ok(WatchLine::Bookmark("5".into())));
        assert_eq!(line("RENAMED"), Err("watch line of unknown type \\\"RENAMED\\\"".to_owned()));
        let error = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let expected = WatchLine::Error { code: 410, message: "too old".to_owned() };
        assert_eq!(WatchLine::decode(error), Ok(expected));
    }

    /// Each byte in turn removed or replaced: no text panics, and a text that is JSON still yields objects that are.
    #[test]
    fn damaged_texts_are_errors_or_objects() {
        let object = r#"{"a":[1,{"b":"\\\"}"}],"metadata":{"managedFields":[{"f:x":{}}],"name":"n","resourceVersion":"7"}}"#;
        let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let page = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{object}, {object}]}}"#);
        let mut decoded = 0;
        for text in [line, page] {
            for at in 0..text.len() {
                for byte in b"\"\\{}[],: x\xff\n".iter().map(Some).chain([None]) {
                    let mut damaged = text.clone().into_bytes();
                    damaged.splice(at..=at, byte.copied());
                    let objects = match (WatchLine::decode(&damaged), ObjectPage::decode(&damaged)) {
                        (Ok(WatchLine::Change(RawObjectChange::Put(object))), _) => vec![object],
                        (_, Ok(page)) => page.objects,
                        _ => continue,
                    };
                    let is_json = serde_json::from_slice::<serde_json::Value>(&damaged).is_ok();
                    for object in objects.iter().filter(|_| is_json) {
                        decoded += 1;
                        serde_json::from_slice::<serde_json::Value>(&object.json).unwrap();
                    }
                }
            }
        }
        assert!(decoded > 1000, "{decoded}");
    }

    #[test]
    fn paths_escape_names() {
        let path = ObjectAddress {
            group: "rbac.authorization.k8s.io".into(),
            version: "v1".into(),
            plural: "roles".into(),
            namespace: Some("a".into()),
            name: "x:y/..".into(),
        };
        assert_eq!(path.url_path(), "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/x%3Ay%2F..");
    }
}
