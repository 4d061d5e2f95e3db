use std::fs;
use std::sync::mpsc::channel;

use yumen_config::Kind;

use super::*;
use crate::embedded::{DATABASE, restore};
use crate::last_good;
use crate::memory::MemoryMedium;
use crate::seal::OptionalSeal;
use crate::test_kit::{TestDir, contents, note, put, until, write};

const SOON: Duration = Duration::from_millis(20);

/// A memory store with these texts, written in order.
fn memory(texts: &[(&str, &str)]) -> Arc<dyn Store> {
    let store = MemoryMedium::store(100).unwrap();
    for (id, text) in texts {
        put(&store, id, text).unwrap();
    }
    Arc::new(store)
}

/// Changes reported at the recovery, as `id: before -> after`.
fn summary(committed: &StoreCommit) -> Vec<String> {
    let text = |entry: &Option<crate::state::StoreEntry>| {
        entry.as_ref().map_or("-".into(), |one| one.json.to_string())
    };
    let line = |one: &EntryChange| format!("{}: {} -> {}", one.key, text(&one.before), text(&one.after));
    committed.changes.iter().map(line).collect()
}

#[test]
fn followers_are_led_from_the_last_good_state_to_the_real_one() {
    let last_good = memory(&[("kept", "1"), ("changed", "1"), ("gone", "1")]).state();
    let real = memory(&[("kept", "1"), ("changed", "1"), ("gone", "1"), ("changed", "2"), ("new", "1")]);
    write(&*real, |draft| assert!(draft.delete(Kind::Routes, "gone"))).unwrap();
    let (allow, allowed) = channel::<()>();
    let opened = real.clone();
    let open: OpenStore = Box::new(move || match allowed.try_recv() {
        Ok(()) => Ok(OpenedStore { saver: None, store: opened.clone() }),
        Err(_) => Err(StoreError::Corrupt("not yet".into())),
    });
    let outer = FallbackStore::start(open, || Ok(last_good.clone()), SOON).unwrap();
    let outer_store: Arc<dyn Store> = outer.clone();
    let early = note(&*outer_store);
    let StateOrigin::LastGood { reason, .. } = outer.status() else { panic!("{:?}", outer.status()) };
    assert!(reason.contains("not yet"), "{reason}");
    assert_eq!(contents(&outer_store.state()), contents(&last_good));
    let refused = put(&*outer_store, "a", "1").unwrap_err();
    assert!(matches!(&refused, StoreError::ReadOnly(why) if why.contains("not yet")), "{refused:?}");
    assert!(matches!(outer_store.history(None, 1), Err(StoreError::ReadOnly(_))));
    assert_eq!(contents(&outer_store.state_at(last_good.revision).unwrap()), contents(&last_good));

    allow.send(()).unwrap();
    until("healing", || outer.status() == StateOrigin::Store);
    until("the followers hear of it", || !early.lock().unwrap().is_empty());
    let recovery = early.lock().unwrap()[0].clone();
    assert_eq!((recovery.revision.0, &*recovery.by.author), (6, RECOVERY));
    let expected = ["routes/changed: 1 -> 2", "routes/gone: 1 -> -", "routes/new: - -> 1"];
    assert_eq!(summary(&recovery), expected);
    let late = note(&*outer_store);
    assert_eq!(put(&*outer_store, "more", "1").unwrap(), 7);
    assert_eq!(contents(&outer_store.state()), contents(&real.state()));
    let revisions = |notes: &Mutex<Vec<Arc<StoreCommit>>>| -> Vec<u64> {
        notes.lock().unwrap().iter().map(|committed| committed.revision.0).collect()
    };
    assert_eq!((revisions(&early), revisions(&late)), (vec![6, 7], vec![7]));
}

#[test]
fn equal_states_are_not_reported() {
    let real = memory(&[("a", "1")]);
    let (allow, allowed) = channel::<()>();
    let opened = real.clone();
    let open: OpenStore = Box::new(move || {
        allowed.try_recv().map_err(|_| StoreError::Ended)?;
        Ok(OpenedStore { saver: None, store: opened.clone() })
    });
    let outer = FallbackStore::start(open, || Ok(real.state()), SOON).unwrap();
    let notes = note(&*outer);
    allow.send(()).unwrap();
    until("healing", || outer.status() == StateOrigin::Store);
    put(&*outer, "b", "1").unwrap();
    let revisions: Vec<u64> = notes.lock().unwrap().iter().map(|committed| committed.revision.0).collect();
    assert_eq!(revisions, [2]);
}

/// Writes during the recovery: every follower must reach the same state, whenever it registered.
#[test]
fn reopening_reports_each_revision_once() {
    for round in 0..30_u64 {
        let real = memory(&[("a", "1")]);
        let opened = real.clone();
        let mut attempts = 0;
        let open: OpenStore = Box::new(move || {
            attempts += 1;
            match attempts {
                1 => Err(StoreError::Ended),
                _ => Ok(OpenedStore { saver: None, store: opened.clone() }),
            }
        });
        let outer =
            FallbackStore::start(open, || Ok(StoreState::default()), Duration::from_millis(round % 5))
                .unwrap();
        let mirror = |from: StoreState| Arc::new(Mutex::new(from));
        let follow = || {
            let mirrored = mirror(StoreState::default());
            let inside = mirrored.clone();
            // Commits reported before the state wait for it.
            let mut guard = mirrored.lock().unwrap();
            let follower: FollowerFn = Box::new(move |committed: &Arc<StoreCommit>| {
                let mut state = inside.lock().unwrap();
                assert!(committed.revision > state.revision, "{:?} {:?}", committed.revision, state.revision);
                for changed in &committed.changes {
                    let before = state.replace(&changed.key, changed.after.clone());
                    assert_eq!(before, changed.before);
                }
                state.revision = committed.revision;
            });
            *guard = outer.follow(follower);
            drop(guard);
            mirrored
        };
        let mut mirrors = vec![follow()];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..50).for_each(|i| drop(put(&*real, &i.to_string(), "1"))));
            while !writer.is_finished() && mirrors.len() < 20 {
                mirrors.push(follow());
                std::thread::yield_now();
            }
        });
        until("healing", || outer.status() == StateOrigin::Store);
        put(&*outer, "last", "1").unwrap();
        let expected = contents(&outer.state());
        for mirrored in &mirrors {
            until("every follower is there", || contents(&mirrored.lock().unwrap()) == expected);
        }
    }
}

#[test]
fn a_damaged_store_is_served_from_the_last_good_state_until_it_is_restored() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let first = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    assert_eq!(first.status(), StateOrigin::Store);
    put(&*first, "a", "1").unwrap();
    let expected = contents(&first.state());
    drop(first);
    let (path, backup) = (dir.join(DATABASE), backups.join("backup"));
    fs::copy(&path, &backup).unwrap();
    fs::write(&path, "strange").unwrap();

    let second = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    assert!(matches!(second.status(), StateOrigin::LastGood { reason, .. } if reason.contains(DATABASE)));
    assert_eq!(contents(&second.state()), expected);
    assert!(put(&*second, "b", "1").is_err());
    // An attempt to open the store may hold the directory lock for a moment.
    until("the restore", || restore(&backup, dir.path(), None).is_ok());
    until("healing", || second.status() == StateOrigin::Store);
    put(&*second, "b", "1").unwrap();
    assert_eq!(fs::read_to_string(dir.join("yumen.redb.replaced")).unwrap(), "strange");
    drop(second);
    assert_eq!(LastGood::load(dir.path(), &OptionalSeal::default()).unwrap().len(), 2);
}

#[test]
fn a_last_good_state_that_is_torn_says_so_until_the_store_is_open() {
    let dir = TestDir::new();
    let first = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*first, "a", "1").unwrap();
    let saved =
        |count| LastGood::load(dir.path(), &OptionalSeal::default()).is_ok_and(|state| state.len() == count);
    until("the first save", || saved(1));
    put(&*first, "b", "1").unwrap();
    drop(first);
    assert!(saved(2));
    let (path, good, last_good_file) = (dir.join(DATABASE), dir.join("good"), dir.join(last_good::FILE));
    fs::rename(&path, &good).unwrap();
    fs::write(&path, "strange").unwrap();
    let bytes = fs::read(&last_good_file).unwrap();
    fs::write(&last_good_file, &bytes[..bytes.len() - 1]).unwrap();

    let second = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    assert_eq!(second.state().len(), 1);
    let StateOrigin::LastGood { damage, .. } = second.status() else { panic!("{:?}", second.status()) };
    let damage = damage.expect("the file is torn");
    assert!(damage.contains("record 0 behind the state is cut off"), "{damage}");
    assert!(damage.contains("all changes after revision 1 are missing"), "{damage}");
    // After lending and taking back, the damage is still reported.
    second.release_for_handover().unwrap();
    assert!(second.take_back().is_err());
    assert!(
        matches!(second.status(), StateOrigin::LastGood { damage: Some(_), .. }),
        "{:?}",
        second.status()
    );
    fs::rename(&good, &path).unwrap();
    until("healing", || second.status() == StateOrigin::Store);
    assert_eq!(second.state().len(), 2);
    drop(second);
    assert!(
        LastGood::recover(dir.path(), &OptionalSeal::default()).unwrap().damage.is_none(),
        "it was written anew"
    );
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = TestDir::new();
    let first = open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap();
    put(&*first, "a", "1").unwrap();
    until("the keeper", || {
        LastGood::load(dir.path(), &OptionalSeal::default()).is_ok_and(|state| state.revision.0 == 1)
    });
    let refused = open_or_last_good(dir.path(), EmbeddedOptions::default()).err().unwrap();
    assert!(matches!(&refused, StoreError::InUse(why) if why.contains(dir.path().to_str().unwrap())));
    drop(first);
    assert_eq!(open_or_last_good(dir.path(), EmbeddedOptions::default()).unwrap().state().len(), 1);
}

#[test]
fn missing_store_and_last_good_state_are_both_reported() {
    let dir = TestDir::new();
    fs::write(dir.join(DATABASE), "strange").unwrap();
    let error = open_or_last_good(dir.path(), EmbeddedOptions::default()).err().unwrap().to_string();
    assert!(error.contains(DATABASE) && error.contains("last-good.json"), "{error}");
}
