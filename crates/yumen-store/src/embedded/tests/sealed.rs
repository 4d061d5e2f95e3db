//! Files on disk disclose no secrets, and can be opened with the right keyring only.

use super::*;
use crate::fallback::open_or_last_good;
use crate::seal::{KEY_BYTES, Keyring};

/// Contains characters that base64 does not.
const SECRET: &str = "a-planted-secret";

/// Options with a keyring of these keys.
fn under(keys: &[u8]) -> EmbeddedOptions {
    let keys: Vec<[u8; KEY_BYTES]> = keys.iter().map(|byte| [*byte; KEY_BYTES]).collect();
    EmbeddedOptions { seal: Some(Arc::new(Keyring::new(&keys).unwrap())), ..EmbeddedOptions::default() }
}

fn open_under(dir: &TestDir, keys: &[u8]) -> EmbeddedStore {
    EmbeddedMedium::open(dir.path(), under(keys)).unwrap()
}

fn secret(value: u32) -> String {
    format!("{{\"key\":\"{SECRET}\",\"v\":{value}}}")
}

fn holds_secret(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

/// Files of a directory that contain the secret in plain text.
fn leaks(dir: &TestDir) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| holds_secret(path)).collect()
}

#[test]
fn no_file_holds_a_secret_and_everything_is_there_again() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let store = open_or_last_good(dir.path(), under(&[1])).unwrap();
    for value in 0..3 {
        put(&*store, "a", &secret(value)).unwrap();
    }
    write(&*store, |draft| assert!(draft.delete(Kind::Routes, "a"))).unwrap();
    put(&*store, "b", &secret(4)).unwrap();
    let before = (contents(&store.state()), store.history(None, 9).unwrap());
    drop(store);
    assert!(dir.join(last_good::FILE).exists());
    assert_eq!(leaks(&dir), Vec::<PathBuf>::new());

    let store = open_under(&dir, &[1]);
    assert_eq!((contents(&store.state()), store.history(None, 9).unwrap()), before);
    let backup = backups.join("backup");
    store.medium().backup(&backup).unwrap();
    drop(store);
    for from in [backup, dir.join(last_good::FILE)] {
        let other = TestDir::new();
        restore(&from, other.path(), under(&[1]).seal).unwrap();
        assert_eq!(leaks(&other), Vec::<PathBuf>::new(), "{}", from.display());
        assert_eq!(contents(&open_under(&other, &[1]).state()), before.0);
    }
    assert_eq!(leaks(&backups), Vec::<PathBuf>::new());
    assert_eq!(leaks(&dir), Vec::<PathBuf>::new());
}

#[test]
fn a_store_is_refused_by_name_without_its_keyring() {
    let dir = TestDir::new();
    let store = open_or_last_good(dir.path(), under(&[1])).unwrap();
    put(&*store, "a", &secret(1)).unwrap();
    drop(store);
    let message = refusal(EmbeddedMedium::open(dir.path(), under(&[2])));
    assert!(message.contains("routes/a is sealed under key"), "{message}");
    assert!(message.contains("the keyring does not hold") && message.contains(DATABASE), "{message}");
    let message = refusal(EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()));
    assert!(message.contains("no keyring was given"), "{message}");
    // No older state is served instead, not even without the store's own file.
    let fallback = || open_or_last_good(dir.path(), under(&[2])).err().unwrap().to_string();
    assert!(fallback().contains(DATABASE), "{}", fallback());
    let (path, copy) = (dir.join(DATABASE), dir.join("kept"));
    fs::rename(&path, &copy).unwrap();
    assert!(fallback().contains(last_good::FILE), "{}", fallback());
    fs::rename(&copy, &path).unwrap();
    assert_eq!(open_under(&dir, &[1]).state().len(), 1);
}

#[test]
fn a_restore_needs_the_keyring_of_every_text() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let store = open_under(&dir, &[1]);
    put(&store, "only-in-the-history", &secret(1)).unwrap();
    write(&store, |draft| assert!(draft.delete(Kind::Routes, "only-in-the-history"))).unwrap();
    let backup = backups.join("backup");
    store.medium().backup(&backup).unwrap();
    drop(store);
    let target = TestDir::new();
    let message = restore(&backup, target.path(), under(&[2]).seal).unwrap_err().to_string();
    assert!(message.contains("only-in-the-history is sealed under key"), "{message}");
    assert!(!target.join(DATABASE).exists());
    assert_eq!(restore(&backup, target.path(), under(&[2, 1]).seal).unwrap().revision, Revision(2));
}

#[test]
fn turned_keys_seal_what_is_new_and_open_what_is_old() {
    let dir = TestDir::new();
    put(&open_under(&dir, &[1]), "old", &secret(1)).unwrap();
    let turned = open_under(&dir, &[2, 1]);
    assert_eq!(turned.state().len(), 1);
    put(&turned, "old", &secret(2)).unwrap();
    put(&turned, "new", &secret(3)).unwrap();
    assert_eq!(turned.history(None, 9).unwrap().len(), 3);
    drop(turned);
    // Every entry was rewritten, so the entries no longer need the old key.
    assert_eq!(open_under(&dir, &[2]).state().len(), 2);
    assert!(EmbeddedMedium::open(dir.path(), under(&[1])).is_err());
}

#[test]
fn a_store_that_was_never_sealed_is_taken_over() {
    let dir = TestDir::new();
    let plain = open(&dir);
    put(&plain, "old", &secret(1)).unwrap();
    let before = (contents(&plain.state()), plain.history(None, 9).unwrap());
    drop(plain);
    assert!(holds_secret(&dir.join(DATABASE)), "the secret is looked for in the right way");
    let store = open_under(&dir, &[1]);
    assert_eq!((contents(&store.state()), store.history(None, 9).unwrap()), before);
    put(&store, "new", &secret(2)).unwrap();
    drop(store);
    let store = open_under(&dir, &[1]);
    assert_eq!((store.state().len(), store.history(None, 9).unwrap().len()), (2, 2));
}
