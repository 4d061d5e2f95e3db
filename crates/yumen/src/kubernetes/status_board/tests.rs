//! Decisions about writes, in the orders in which watches, writes and leases can interleave.

use serde_json::json;
use yumen_kubernetes::status::{ConditionDraft, StatusEntry, StatusPlace};
use yumen_kubernetes_client::ApiError;

use super::*;

struct BoardCase {
    board: StatusBoard,
    key: ObjectKey,
}

impl BoardCase {
    /// A Gateway at version 5 without a status.
    fn new() -> BoardCase {
        let board = StatusBoard::new("c.example/c".into());
        let key = ObjectKey::new(ClusterKind::Gateway, "shop", "web");
        board.observe(&key, &"5".into(), None);
        BoardCase { board, key }
    }

    fn draft(&self, generation: i64, addresses: Value) {
        let accepted = ConditionDraft::fixed("Accepted", true, "Accepted", "");
        let entry = StatusEntry { place: StatusPlace::Root, conditions: vec![accepted], fields: Map::new() };
        let fields = [("addresses".to_owned(), addresses)].into_iter().collect();
        let draft = StatusDraft { generation, entries: vec![entry], fields };
        self.board.set_drafts(vec![(self.key.clone(), Some(draft))]);
    }

    /// Version and names of the members of the next write.
    fn write(&self) -> Option<(Option<String>, Vec<String>)> {
        let write = self.board.write_of(&self.key, Now { mono_us: 0, unix_ms: 1000 })?;
        let patch: Value = serde_json::from_str(&write.status).unwrap();
        let names = patch.as_object().unwrap().keys().cloned().collect();
        Some((write.resource_version.map(Into::into), names))
    }

    fn at(&self) -> ObjectAddress {
        api_paths::ServedVersions::default().path(&self.key)
    }

    fn report_written(&self, version: &str, status: &Value) {
        let object = object(version, status);
        self.board.report(&self.at(), StatusReport::Written(object));
    }

    /// The status that was submitted.
    fn observe(&self, version: &str, status: Option<&str>) -> bool {
        self.board.observe(&self.key, &version.into(), status.map(Arc::from).as_ref())
    }

    fn submitted(&self) -> Value {
        parsed(self.board.state().known[&self.key].submitted.as_ref())
    }
}

fn object(version: &str, status: &Value) -> RawObject {
    RawObject {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u".into(),
        resource_version: version.into(),
        json: json!({ "status": status }).to_string().into(),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_status_is_submitted_once_and_again_only_if_it_differs() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    assert_eq!(case.write(), Some((Some("5".into()), names(&["addresses", "conditions"]))));
    assert_eq!(case.write(), None);
    let written = case.submitted();
    case.report_written("6", &written);
    assert_eq!(case.write(), None);
    case.draft(1, json!(["192.0.2.1"]));
    assert_eq!(case.write(), Some((Some("6".into()), names(&["addresses"]))));
}

#[test]
fn a_patch_starts_from_the_status_of_the_api_server_while_an_earlier_write_is_on_its_way() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    case.draft(1, json!(["192.0.2.1"]));
    // The first write may fail, so the second must bring the conditions too.
    assert_eq!(case.write(), Some((Some("5".into()), names(&["addresses", "conditions"]))));
}

#[test]
fn a_foreign_change_is_news_and_is_mended() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    let written = case.submitted();
    case.report_written("6", &written);
    assert!(!case.observe("6", Some(&written.to_string())));
    assert!(case.observe("7", Some(r#"{"addresses": []}"#)));
    assert_eq!(case.write(), Some((Some("7".into()), names(&["conditions"]))));
}

#[test]
fn a_watch_that_overtakes_the_result_of_a_write_wins() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    let written = case.submitted();
    case.observe("8", Some("{}"));
    case.report_written("6", &written);
    assert_eq!(case.write(), Some((Some("8".into()), names(&["addresses", "conditions"]))));
}

#[test]
fn writes_of_a_lost_lease_are_not_believed() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    case.board.forget_submitted();
    assert!(case.write().is_some());
}

#[test]
fn an_object_that_is_created_again_gets_the_status_of_the_unchanged_draft() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    let written = case.submitted();
    case.report_written("6", &written);
    case.board.forget(&case.key);
    assert!(case.observe("9", None));
    assert_eq!(case.write(), Some((Some("9".into()), names(&["addresses", "conditions"]))));
}

#[test]
fn a_list_forgets_deleted_objects_and_takes_lower_versions() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    let status = json!({ "addresses": ["192.0.2.9"] });
    case.board.retain_listed(ClusterKind::Gateway, &[object("3", &status)]);
    assert!(case.observe("3", Some(&status.to_string())));
    assert_eq!(case.write(), Some((Some("3".into()), names(&["addresses", "conditions"]))));
    case.board.retain_listed(ClusterKind::Gateway, &[]);
    assert!(case.board.state().known.is_empty());
    case.board.set_drafts(vec![(case.key.clone(), None)]);
    assert_eq!(case.board.all(), []);
}

#[test]
fn a_conflict_is_decided_on_the_status_that_was_read() {
    let case = BoardCase::new();
    case.draft(1, json!([]));
    case.write();
    let patch = case.board.decide(&case.at(), &object("7", &json!({ "addresses": [] }))).unwrap();
    let patch: Value = serde_json::from_str(&patch).unwrap();
    assert_eq!(patch.as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"]);
    case.board.report(&case.at(), StatusReport::Failed(ApiError::Conflict("x".into())));
    // The writer repeats it on its own.
    assert_eq!(case.write(), None);
}
