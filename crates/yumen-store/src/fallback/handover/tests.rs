//! A store is closed for another process and reopened; no writer or follower is lost.

use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use yumen_config::Kind;

use super::*;
use crate::embedded::{DATABASE, EmbeddedMedium, EmbeddedOptions};
use crate::fallback::{StateOrigin, open_or_last_good};
use crate::state::{ResourceKey, StoreCommit};
use crate::test_kit::{TestDir, contents, note, put, until};

type Told = Receiver<Result<Option<u64>, StoreError>>;

/// Proposes a route; the result arrives later.
fn propose(store: &dyn Store, id: &str) -> Told {
    let (sender, receiver) = channel();
    let key = ResourceKey::new(Kind::Routes, id);
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            draft.put(key.clone(), "{}".into(), None);
            true
        }),
        done: Box::new(move |result| {
            let revision = |committed: Option<Arc<StoreCommit>>| committed.map(|one| one.revision.0);
            sender.send(result.map(revision)).unwrap();
        }),
    });
    receiver
}

fn revisions(notes: &Mutex<Vec<Arc<StoreCommit>>>) -> Vec<u64> {
    notes.lock().unwrap().iter().map(|committed| committed.revision.0).collect()
}

#[test]
fn a_lent_store_can_be_opened_elsewhere_and_is_taken_back_as_it_is_then() {
    let dir = TestDir::new();
    let store = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    let early = note(&*store);
    put(&*store, "a", "1").unwrap();
    for round in 0..3 {
        let late = note(&*store);
        let before = contents(&store.state());
        store.release_for_handover().unwrap();
        store.release_for_handover().unwrap();
        let waiting = propose(&*store, &format!("held{round}"));
        assert_eq!(contents(&store.state()), before, "it is still read");
        assert!(matches!(store.history(None, 1), Err(StoreError::HandoverInProgress(_))));
        let other = EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()).unwrap();
        assert_eq!(contents(&other.state()), before);
        let written = put(&other, &format!("theirs{round}"), "1").unwrap();
        drop(other);
        assert!(waiting.try_recv().is_err(), "it waits");

        store.take_back().unwrap();
        assert_eq!(
            waiting.recv().unwrap().unwrap(),
            Some(written + 1),
            "decided once, behind what was written"
        );
        until("followers hear of both", || revisions(&late).len() == 2);
        assert_eq!(revisions(&late), [written, written + 1]);
        assert_eq!(store.status(), StateOrigin::Store);
    }
    until("followers hear of all", || revisions(&early).len() == 7);
    assert_eq!(revisions(&early), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(store.history(None, 100).unwrap().len(), 7);
}

#[test]
fn writes_that_may_not_wait_are_refused_and_not_done() {
    let dir = TestDir::new();
    let store = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*store, "a", "1").unwrap();
    store.release_for_handover().unwrap();
    let waiting: Vec<Told> = (0..HELD_MAX).map(|at| propose(&*store, &format!("w{at}"))).collect();
    let too_many = propose(&*store, "more").recv().unwrap();
    assert!(matches!(too_many, Err(StoreError::HandoverInProgress(_))), "{too_many:?}");
    store.refuse_deferred();
    for receiver in waiting {
        assert!(matches!(receiver.recv().unwrap(), Err(StoreError::HandoverInProgress(_))));
    }
    let late = propose(&*store, "late").recv().unwrap();
    assert!(matches!(late, Err(StoreError::HandoverInProgress(_))), "{late:?}");
    store.take_back().unwrap();
    assert_eq!(store.state().entries().count(), 1);
    put(&*store, "b", "1").unwrap();
    store.complete_handover();
    put(&*store, "c", "1").unwrap();
}

#[test]
fn a_store_that_was_damaged_meanwhile_leaves_the_last_state_in_force() {
    let dir = TestDir::new();
    let store = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*store, "a", "1").unwrap();
    store.release_for_handover().unwrap();
    let waiting = propose(&*store, "held");
    let path = dir.path().join(DATABASE);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, b"damaged").unwrap();
    store.take_back().unwrap_err();
    let refused = waiting.recv().unwrap();
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert!(matches!(store.status(), StateOrigin::LastGood { .. }));
    assert_eq!(store.state().entries().count(), 1);
    // Once lent again, this process must not try to open the store.
    store.release_for_handover().unwrap();
    fs::write(&path, whole).unwrap();
    store.take_back().unwrap();
    put(&*store, "b", "1").unwrap();
}

#[test]
fn a_store_whose_file_is_gone_is_not_lent_and_no_empty_one_takes_its_place() {
    let dir = TestDir::new();
    let path = dir.join("data");
    let store = open_or_last_good(&path, EmbeddedOptions::default()).unwrap();
    put(&*store, "a", "1").unwrap();
    let before = contents(&store.state());
    fs::rename(&path, dir.join("moved")).unwrap();
    assert!(matches!(store.release_for_handover(), Err(StoreError::Missing(_))));
    assert_eq!(contents(&store.state()), before);
    fs::rename(dir.join("moved"), &path).unwrap();
    store.release_for_handover().unwrap();
    fs::rename(&path, dir.join("moved")).unwrap();
    let refused = store.take_back().unwrap_err();
    assert!(matches!(refused, StoreError::Missing(_)), "{refused:?}");
    assert_eq!(contents(&store.state()), before, "what was known is served");
    assert!(!path.exists(), "nothing was begun");
}
