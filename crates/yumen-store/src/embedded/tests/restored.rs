//! Revisions after a restore: no number is reused, and the history continues across the gap.

use super::*;

fn at(store: &EmbeddedStore, revision: u64) -> Option<Contents> {
    store.state_at(Revision(revision)).ok().map(|state| contents(&state))
}

#[test]
fn a_restored_store_goes_on_behind_the_one_it_replaced() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let backup = backups.join("backup.redb");
    let store = open(&dir);
    put(&store, "r", "{\"v\":1}").unwrap();
    put(&store, "r", "{\"v\":2}").unwrap();
    store.medium().backup(&backup).unwrap();
    let (first, second) = (at(&store, 1), at(&store, 2));
    put(&store, "r", "{\"v\":3}").unwrap();
    drop(store);

    let restored = restore(&backup, dir.path(), None).unwrap();
    assert_eq!(restored.revision, Revision(4));
    let store = open(&dir);
    let entry = store.state().get(Kind::Routes, "r").cloned().unwrap();
    assert_eq!(
        (&*entry.json, entry.modified),
        ("{\"v\":2}", Revision(2)),
        "what is the same keeps its number"
    );
    assert_eq!(put(&store, "r", "{\"v\":4}").unwrap(), 5);

    let history = store.history(None, 9).unwrap();
    let revisions: Vec<u64> = history.iter().map(|one| one.revision.0).collect();
    assert_eq!(revisions, [5, 4, 2, 1]);
    assert_eq!((history[1].by.author.as_str(), history[1].changes.len()), ("restore", 0));
    assert_eq!(history[1].by.reason.as_deref(), Some("the store of revision 2 was restored"));
    assert_eq!((at(&store, 2), at(&store, 1)), (second, first));
    assert_eq!(at(&store, 3), None, "it was another history's");
    assert_eq!(at(&store, 4).map(|(revision, ..)| revision), Some(4));
    assert!(at(&store, 0).is_some());

    // From the last good state, and into a directory without a store.
    drop(store);
    LastGood::save(dir.path(), &restored.with(Revision(9), []), &OptionalSeal::default()).unwrap();
    fs::write(dir.join(DATABASE), "damaged").unwrap();
    assert_eq!(restore(&dir.join("last-good.json"), dir.path(), None).unwrap().revision, Revision(10));
    let fresh = TestDir::new();
    assert_eq!(restore(&backup, fresh.path(), None).unwrap().revision, Revision(2));
}

#[test]
fn a_past_that_is_longer_than_a_page_is_found_behind_a_restore() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let backup = backups.join("backup.redb");
    let store = open(&dir);
    for number in 1..=300 {
        put(&store, "r", &number.to_string()).unwrap();
    }
    store.medium().backup(&backup).unwrap();
    drop(store);
    restore(&backup, dir.path(), None).unwrap();
    let store = open(&dir);
    for number in 302..=556 {
        assert_eq!(put(&store, "r", &number.to_string()).unwrap(), number);
    }
    for revision in [1, 44, 45, 46, 299, 300, 302, 400] {
        let state = store.state_at(Revision(revision)).unwrap();
        assert_eq!(&*state.get(Kind::Routes, "r").unwrap().json, revision.to_string());
    }
    assert_eq!(&*store.state_at(Revision(301)).unwrap().get(Kind::Routes, "r").unwrap().json, "300");
}
