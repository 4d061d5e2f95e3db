//! Moves, deletes and replaces the open file: no write is acknowledged that would be lost.

use super::*;

fn refused(store: &EmbeddedStore, found: &str) {
    let before = contents(&store.state());
    for error in [put(store, "b", "{}").unwrap_err(), store.check().unwrap_err()] {
        assert!(matches!(&error, StoreError::Missing(why) if why.contains(found)), "{error:?}");
    }
    assert_eq!(contents(&store.state()), before, "what was there is served");
    assert_eq!(store.history(None, 9).unwrap().len(), 1, "and can be looked at");
}

#[test]
fn a_write_to_a_file_that_is_gone_is_refused_until_it_is_back() {
    let dir = TestDir::new();
    let (path, aside) = (dir.join("data"), dir.join("aside"));
    let store = EmbeddedMedium::open(&path, EmbeddedOptions::default()).unwrap();
    put(&store, "a", "{}").unwrap();
    store.check().unwrap();
    fs::rename(&path, &aside).unwrap();
    refused(&store, "was moved or deleted");
    let other = EmbeddedMedium::open(&path, EmbeddedOptions::default()).unwrap();
    put(&other, "of-another", "{}").unwrap();
    drop(other);
    refused(&store, "was replaced");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    put(&store, "b", "{}").unwrap();
    drop(store);
    assert_eq!(open_in(&path).state().len(), 2, "what was acknowledged is there");
}

fn open_in(path: &Path) -> EmbeddedStore {
    EmbeddedMedium::open(path, EmbeddedOptions::default()).unwrap()
}

#[test]
fn missing_store_is_not_created_if_required() {
    let dir = TestDir::new();
    let path = dir.join("data");
    let must = || EmbeddedOptions { absent: MissingStorePolicy::Fail, ..EmbeddedOptions::default() };
    assert!(!holds_store(&path));
    let error = EmbeddedMedium::open(&path, must()).err().unwrap();
    assert!(matches!(error, StoreError::Missing(_)), "{error:?}");
    assert!(!path.exists(), "nothing was made");
    drop(open_in(&path));
    assert!(holds_store(&path));
    EmbeddedMedium::open(&path, must()).unwrap();
}
