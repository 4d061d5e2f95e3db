use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use yumen_config::Kind;

use super::*;
use crate::memory::{MemoryMedium, MemoryStore};
use crate::state::StoreEntry;
use crate::store::commit;
use crate::test_kit::{until, write};

const WAIT: Duration = Duration::from_secs(20);

fn store() -> MemoryStore {
    MemoryMedium::store(1000).unwrap()
}

fn put(store: &dyn Store, id: &str, json: &str) -> Revision {
    let (sender, receiver) = channel();
    let (key, json): (ResourceKey, Arc<str>) = (ResourceKey::new(Kind::Routes, id), json.into());
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            draft.put(key.clone(), json.clone(), None);
            true
        }),
        done: Box::new(move |result| sender.send(result).unwrap()),
    });
    receiver.recv_timeout(WAIT).unwrap().unwrap().unwrap().revision
}

fn entry(expires_ms: Option<u64>) -> StoreEntry {
    StoreEntry { json: "{}".into(), created: Revision(1), modified: Revision(1), expires_ms }
}

#[test]
fn every_commit_is_a_revision_and_the_past_can_be_seen() {
    let store = store();
    assert_eq!(put(&store, "a", "{\"v\":1}"), Revision(1));
    assert_eq!(put(&store, "a", "{\"v\":2}"), Revision(2));
    assert_eq!(put(&store, "b", "{}"), Revision(3));
    let entry = |state: &StoreState, id: &str| state.get(Kind::Routes, id).cloned();
    let now = entry(&store.state(), "a").unwrap();
    assert_eq!((&*now.json, now.created, now.modified), ("{\"v\":2}", Revision(1), Revision(2)));
    let past = store.state_at(Revision(1)).unwrap();
    assert_eq!(&*entry(&past, "a").unwrap().json, "{\"v\":1}");
    assert_eq!(entry(&past, "b"), None);
    assert!(store.state_at(Revision(0)).unwrap().is_empty());
    assert!(matches!(store.state_at(Revision(9)), Err(StoreError::Compacted(Revision(9)))));
    let newest: Vec<u64> = store.history(None, 2).unwrap().iter().map(|one| one.revision.0).collect();
    assert_eq!(newest, [3, 2]);
}

#[test]
fn followers_hear_of_every_revision_once_and_in_order() {
    let store = Arc::new(store());
    put(&*store, "before", "{}");
    let revisions = Arc::new(Mutex::new(Vec::new()));
    let notes = revisions.clone();
    let from = store.follow(Box::new(move |committed| notes.lock().unwrap().push(committed.revision.0)));
    assert_eq!(from.revision, Revision(1));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                (0..50).for_each(|i| {
                    put(&**store, &format!("{thread}-{i}"), "{}");
                })
            });
        }
    });
    assert_eq!(*revisions.lock().unwrap(), (2..=201).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_refusal_writes_nothing_and_gives_its_reason() {
    let store = store();
    let refused = commit(&store, Authorship::by("test"), |draft| {
        draft.put(ResourceKey::new(Kind::Routes, "a"), "{}".into(), None);
        Err::<(), &str>("no")
    });
    assert_eq!(refused.await.unwrap(), Err("no"));
    assert!(store.state().is_empty());
    let seen = commit(&store, Authorship::by("test"), |draft| Ok::<_, ()>(draft.revision().0));
    assert_eq!(seen.await.unwrap().unwrap(), (1, None));
}

#[test]
fn expiry_deletes_in_its_own_revision() {
    let store = store();
    let (sender, receiver) = channel();
    store.follow(Box::new(move |committed| sender.send(committed.clone()).unwrap()));
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(|draft| {
            let at_ms = draft.now_ms() + 30;
            draft.put(ResourceKey::new(Kind::Routes, "a"), "{}".into(), Some(at_ms));
            true
        }),
        done: Box::new(|_| ()),
    });
    assert_eq!(receiver.recv_timeout(WAIT).unwrap().by.author, "test");
    assert_eq!(receiver.recv_timeout(WAIT).unwrap().by.author, EXPIRY);
    assert!(store.state().is_empty());
}

#[tokio::test]
async fn a_proposal_that_panics_fails_alone() {
    let store = store();
    let panicking = commit(&store, Authorship::by("test"), |draft| -> Result<(), ()> {
        draft.put(ResourceKey::new(Kind::Routes, "a"), "{}".into(), None);
        panic!("a mistake of whoever decides");
    });
    assert!(matches!(panicking.await, Err(StoreError::Io(_))));
    assert!(store.state().is_empty());
    assert_eq!(put(&store, "a", "{}"), Revision(1));
}

/// Fails every batch until it is repaired, and counts the batches.
#[derive(Default)]
struct Broken {
    batches: AtomicUsize,
    is_fixed: AtomicBool,
}

impl StoreMedium for Broken {
    fn persist(&self, _: &CommitBatch) -> Result<(), StoreError> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        match self.is_fixed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(StoreError::Full("no room".into())),
        }
    }

    fn history(&self, _: Option<Revision>, _: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        Ok(Vec::new())
    }
}

#[test]
fn failed_expiry_is_retried_with_a_pause() {
    let state = StoreState::new(Revision(1), [(ResourceKey::new(Kind::Routes, "a"), entry(Some(1)))], []);
    let begin = std::time::Instant::now();
    let store = StoreEngine::start(Broken::default(), state).unwrap();
    until("two attempts", || store.medium().batches.load(Ordering::Relaxed) >= 2);
    assert!(begin.elapsed() >= Duration::from_millis(900));
    assert_eq!(store.state().len(), 1);
}

#[test]
fn failed_write_is_reported_until_one_succeeds() {
    let store = StoreEngine::start(Broken::default(), StoreState::default()).unwrap();
    assert!(store.failure().is_none());
    crate::test_kit::put(&store, "a", "{}").unwrap_err();
    assert!(matches!(store.failure(), Some(StoreError::Full(_))));
    write(&store, |_| ()).unwrap();
    assert!(store.failure().is_some(), "nothing was to be written, which shows nothing");
    store.medium().is_fixed.store(true, Ordering::Relaxed);
    put(&store, "a", "{}");
    assert!(store.failure().is_none());
}

#[test]
fn what_is_written_anew_inherits_nothing_of_what_could_not_be_deleted_in_time() {
    let entries = [
        (ResourceKey::new(Kind::Consumers, "jack"), entry(Some(1))),
        (ResourceKey::new(Kind::Credentials, "jack/credentials/a"), entry(None)),
    ];
    let store = StoreEngine::start(Broken::default(), StoreState::new(Revision(1), entries, [])).unwrap();
    until("an attempt", || store.failure().is_some());
    store.medium().is_fixed.store(true, Ordering::Relaxed);
    write(&store, |draft| draft.put(ResourceKey::new(Kind::Consumers, "jack"), "{}".into(), None)).unwrap();
    let left: Vec<String> = store.state().entries().map(|(key, _)| key.to_string()).collect();
    assert_eq!(left, ["consumers/jack"]);
}

#[test]
fn a_consumers_credentials_end_with_it() {
    type Delete = fn(&mut Draft);
    let by_hand: Delete = |draft| assert!(draft.delete(Kind::Consumers, "jack"));
    let by_its_lifetime: Delete = |draft| {
        let now_ms = draft.now_ms();
        draft.put(ResourceKey::new(Kind::Consumers, "jack"), "{}".into(), Some(now_ms));
    };
    for delete in [by_hand, by_its_lifetime] {
        let store = store();
        let write = |mut decide: Box<dyn FnMut(&mut Draft) + Send>| {
            let (sender, receiver) = channel();
            store.propose(Proposal {
                by: Authorship::by("test"),
                decide: Box::new(move |draft| {
                    decide(draft);
                    true
                }),
                done: Box::new(move |result| sender.send(result).unwrap()),
            });
            receiver.recv_timeout(WAIT).unwrap().unwrap();
        };
        write(Box::new(|draft| {
            for id in ["jack", "jacky"] {
                draft.put(ResourceKey::new(Kind::Consumers, id), "{}".into(), None);
                draft.put(
                    ResourceKey::new(Kind::Credentials, format!("{id}/credentials/a")),
                    "{}".into(),
                    None,
                );
            }
        }));
        write(Box::new(delete));
        let exists = || store.state().get(Kind::Consumers, "jack").is_some();
        let begin = std::time::Instant::now();
        while exists() {
            assert!(begin.elapsed() < WAIT, "it never went");
            std::thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<String> = store.state().entries().map(|(key, _)| key.to_string()).collect();
        assert_eq!(left, ["consumers/jacky", "consumers/jacky/credentials/a"]);
    }
}
