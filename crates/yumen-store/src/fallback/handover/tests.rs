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
    let (tell, told) = channel();
    let key = ResourceKey::new(Kind::Routes, id);
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            draft.put(key.clone(), "{}".into(), None);
            true
        }),
        done: Box::new(move |result| {
            let revision = |committed: Option<Arc<StoreCommit>>| committed.map(|one| one.revision.0);
            tell.send(result.map(revision)).unwrap();
        }),
    });
    told
}

fn heard(notes: &Mutex<Vec<Arc<StoreCommit>>>) -> Vec<u64> {
    notes.lock().unwrap().iter().map(|committed| committed.revision.0).collect()
}

#[test]
fn a_lent_store_can_be_opened_elsewhere_and_is_taken_back_as_it_is_then() {
    let dir = TestDir::new();
    let ours = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    let early = note(&*ours);
    put(&*ours, "a", "1").unwrap();
    for round in 0..3 {
        let late = note(&*ours);
        let before = contents(&ours.state());
        ours.lend().unwrap();
        ours.lend().unwrap();
        let waiting = propose(&*ours, &format!("held{round}"));
        assert_eq!(contents(&ours.state()), before, "it is still read");
        assert!(matches!(ours.history(None, 1), Err(StoreError::HandoverInProgress(_))));
        let theirs = EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()).unwrap();
        assert_eq!(contents(&theirs.state()), before);
        let written = put(&theirs, &format!("theirs{round}"), "1").unwrap();
        drop(theirs);
        assert!(waiting.try_recv().is_err(), "it waits");

        ours.take_back().unwrap();
        assert_eq!(
            waiting.recv().unwrap().unwrap(),
            Some(written + 1),
            "decided once, behind what was written"
        );
        until("followers hear of both", || heard(&late).len() == 2);
        assert_eq!(heard(&late), [written, written + 1]);
        assert_eq!(ours.status(), StateOrigin::Store);
    }
    until("followers hear of all", || heard(&early).len() == 7);
    assert_eq!(heard(&early), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ours.history(None, 100).unwrap().len(), 7);
}

#[test]
fn writes_that_may_not_wait_are_refused_and_not_done() {
    let dir = TestDir::new();
    let ours = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*ours, "a", "1").unwrap();
    ours.lend().unwrap();
    let waiting: Vec<Told> = (0..HELD_MAX).map(|at| propose(&*ours, &format!("w{at}"))).collect();
    let too_many = propose(&*ours, "more").recv().unwrap();
    assert!(matches!(too_many, Err(StoreError::HandoverInProgress(_))), "{too_many:?}");
    ours.refuse_held();
    for told in waiting {
        assert!(matches!(told.recv().unwrap(), Err(StoreError::HandoverInProgress(_))));
    }
    let late = propose(&*ours, "late").recv().unwrap();
    assert!(matches!(late, Err(StoreError::HandoverInProgress(_))), "{late:?}");
    ours.take_back().unwrap();
    assert_eq!(ours.state().entries().count(), 1);
    put(&*ours, "b", "1").unwrap();
    ours.give_away();
    put(&*ours, "c", "1").unwrap();
}

#[test]
fn a_store_that_was_damaged_meanwhile_leaves_the_last_state_in_force() {
    let dir = TestDir::new();
    let ours = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*ours, "a", "1").unwrap();
    ours.lend().unwrap();
    let waiting = propose(&*ours, "held");
    let place = dir.path().join(DATABASE);
    let whole = fs::read(&place).unwrap();
    fs::write(&place, b"damaged").unwrap();
    ours.take_back().unwrap_err();
    let refused = waiting.recv().unwrap();
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert!(matches!(ours.status(), StateOrigin::LastGood { .. }));
    assert_eq!(ours.state().entries().count(), 1);
    // Once lent again, this process must not try to open the store.
    ours.lend().unwrap();
    fs::write(&place, whole).unwrap();
    ours.take_back().unwrap();
    put(&*ours, "b", "1").unwrap();
}

#[test]
fn a_store_whose_file_is_gone_is_not_lent_and_no_empty_one_takes_its_place() {
    let dir = TestDir::new();
    let place = dir.join("data");
    let ours = open_or_last_good(&place, EmbeddedOptions::default()).unwrap();
    put(&*ours, "a", "1").unwrap();
    let before = contents(&ours.state());
    fs::rename(&place, dir.join("moved")).unwrap();
    assert!(matches!(ours.lend(), Err(StoreError::Missing(_))));
    assert_eq!(contents(&ours.state()), before);
    fs::rename(dir.join("moved"), &place).unwrap();
    ours.lend().unwrap();
    fs::rename(&place, dir.join("moved")).unwrap();
    let refused = ours.take_back().unwrap_err();
    assert!(matches!(refused, StoreError::Missing(_)), "{refused:?}");
    assert_eq!(contents(&ours.state()), before, "what was known is served");
    assert!(!place.exists(), "nothing was begun");
}
