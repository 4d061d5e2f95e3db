//! Lists that follow differences equal lists serialized from scratch.

use proptest::prelude::*;
use serde_json::Value;
use yumen_config::Kind;
use yumen_store::{ResourceKey, StoreEntry};

use crate::secrets::SecretVisibility;

use super::*;

/// The view of an administrator.
const ROUTES: KindView = KindView { kind: Kind::Routes, visibility: SecretVisibility::Whole };

/// The changes between two reads: ids that are put, or deleted if they exist.
type Step = Vec<(u16, bool)>;

fn state_of(objects: &BTreeMap<Arc<str>, StoreEntry>, revision: u64) -> StoreState {
    let entries =
        objects.iter().map(|(id, entry)| (ResourceKey::new(Kind::Routes, id.clone()), entry.clone()));
    let others =
        StoreEntry { json: "{}".into(), created: Revision(1), modified: Revision(1), expires_ms: None };
    let around = [Kind::Services, Kind::Upstreams].map(|kind| (ResourceKey::new(kind, "1"), others.clone()));
    StoreState::new(Revision(revision), entries.chain(around), [])
}

/// Keys and revisions of a list as a client reads them.
fn read(written: &RenderedList) -> Vec<(String, String)> {
    let pieces: Vec<&str> = written.pieces.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let rows: Vec<Value> = serde_json::from_str(&format!("[{}]", pieces.join(","))).unwrap();
    let text = |row: &Value, field: &str| row[field].to_string();
    rows.iter().map(|row| (text(row, "key"), text(row, "modifiedIndex"))).collect()
}

fn check(steps: &[Step]) {
    let lists = ListCache::default();
    let (mut objects, mut revision) = (BTreeMap::new(), 1);
    let mut before = Vec::new();
    let mut as_of = Revision(0);
    for step in steps {
        for (id, is_put) in step {
            revision += 1;
            let id: Arc<str> = format!("{id}").into();
            let entry = StoreEntry {
                json: "{}".into(),
                created: Revision(1),
                modified: Revision(revision),
                expires_ms: None,
            };
            if *is_put {
                objects.insert(id, entry);
            } else {
                objects.remove(&id);
            }
        }
        let state = state_of(&objects, revision);
        let rendered = lists.render(&state, ROUTES);
        let expected: Vec<(String, String)> = objects
            .iter()
            .map(|(id, entry)| (format!("\"/apisix/routes/{id}\""), entry.modified.0.to_string()))
            .collect();
        assert_eq!(read(&rendered), expected);
        assert_eq!(rendered.total, expected.len());
        assert!(rendered.pieces.iter().all(|piece| !piece.is_empty()));
        assert!(before == expected || rendered.as_of != as_of, "another list has another tag");
        (before, as_of) = (expected, rendered.as_of);
    }
}

#[test]
fn a_list_grows_splits_shrinks_and_is_emptied() {
    let all = |is_put: bool, step: usize| (0..600).step_by(step).map(|id| (id, is_put)).collect::<Step>();
    check(&[vec![], all(true, 1), all(false, 2), all(true, 3), all(false, 1), vec![(5, true)]]);
}

#[test]
fn unchanged_rows_are_shared() {
    let lists = ListCache::default();
    let entry = |revision| StoreEntry {
        json: "{}".into(),
        created: Revision(1),
        modified: Revision(revision),
        expires_ms: None,
    };
    let mut objects: BTreeMap<Arc<str>, StoreEntry> =
        (0..1000).map(|id| (format!("{id:04}").into(), entry(1))).collect();
    let before = StoreState::new(
        Revision(1),
        objects.iter().map(|(id, entry)| (ResourceKey::new(Kind::Routes, id.clone()), entry.clone())),
        [],
    );
    let first = lists.render(&before, ROUTES);
    objects.insert("0500".into(), entry(2));
    let second = lists.render(&state_of(&objects, 2), ROUTES);
    let shared = first.pieces.iter().zip(&second.pieces).filter(|(a, b)| a.as_ptr() == b.as_ptr()).count();
    assert_eq!((first.pieces.len(), shared), (8, 7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_list_kept_by_differences_is_the_list(
        steps in prop::collection::vec(prop::collection::vec((0..400_u16, any::<bool>()), 0..200), 1..8),
    ) {
        check(&steps);
    }
}
