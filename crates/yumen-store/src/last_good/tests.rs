use std::sync::Arc;

use super::*;
use crate::memory::Memory;
use crate::store::Store;
use crate::test_kit::{TestDir, contents, put, until, write};

fn state(revision: u64, texts: &[&str]) -> State {
    let entry = |(at, text): (usize, &&str)| {
        let (created, modified) = (Revision(1), Revision(revision));
        let expires_ms = (at == 1).then_some(u64::MAX);
        let key = Key::new(Kind::ALL[at % Kind::ALL.len()], format!("id/{at} \"é\""));
        (key, Entry { json: Arc::from(*text), created, modified, expires_ms })
    };
    let settings = [(Arc::from("door"), Arc::from("line\nof \"hash\""))];
    State::new(Revision(revision), texts.iter().enumerate().map(entry), settings)
}

#[test]
fn what_is_saved_is_loaded() {
    let dir = TestDir::new();
    for state in [State::default(), state(3, &["{}", "not\njson\u{0}", "\"\\"]), state(u64::MAX, &[])] {
        LastGood::save(dir.path(), &state, &Edge::default()).unwrap();
        assert_eq!(contents(&LastGood::load(dir.path(), &Edge::default()).unwrap()), contents(&state));
    }
}

#[test]
fn every_cut_and_every_altered_byte_is_noticed() {
    let dir = TestDir::new();
    let (older, newer) = (state(1, &["{\"v\":1}"]), state(2, &["{\"v\":2}"]));
    LastGood::save(dir.path(), &older, &Edge::default()).unwrap();
    LastGood::save(dir.path(), &newer, &Edge::default()).unwrap();
    let place = dir.join(FILE);
    let whole = fs::read(&place).unwrap();
    let check = |bytes: &[u8], what: String| {
        fs::write(&place, bytes).unwrap();
        let error = LastGood::read(&place, &Edge::default()).expect_err(&what).to_string();
        assert!(error.contains(FILE), "{what}: {error}");
        assert_eq!(
            contents(&LastGood::load(dir.path(), &Edge::default()).unwrap()),
            contents(&older),
            "{what}"
        );
    };
    for end in 0..whole.len() {
        check(&whole[..end], format!("cut at {end}"));
    }
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        check(&altered, format!("altered at {at}"));
    }
    fs::remove_file(&place).unwrap();
    assert_eq!(contents(&LastGood::load(dir.path(), &Edge::default()).unwrap()), contents(&older));
    fs::write(&place, &whole).unwrap();
    assert_eq!(contents(&LastGood::load(dir.path(), &Edge::default()).unwrap()), contents(&newer));
}

#[test]
fn two_damaged_files_give_both_reasons_and_none_gives_no_state() {
    let dir = TestDir::new();
    assert!(is_missing(&LastGood::load(dir.path(), &Edge::default()).unwrap_err()));
    fs::write(dir.join(FILE), "").unwrap();
    fs::write(dir.join(PREVIOUS), "{\"yumen_last_good\":9}\n").unwrap();
    let message = LastGood::load(dir.path(), &Edge::default()).unwrap_err().to_string();
    assert!(message.contains("first line") && message.contains("format 9"), "{message}");
}

#[test]
fn the_keeper_saves_what_changes_and_once_more_at_the_end() {
    let dir = TestDir::new();
    let store: Arc<dyn Store> = Arc::new(Memory::store(10).unwrap());
    let saved = || LastGood::load(dir.path(), &Edge::default()).map(|state| contents(&state)).ok();
    put(&*store, "before", "{}").unwrap();
    let keeper = Keeper::start(dir.path(), store.clone(), None).unwrap();
    until("the first save", || saved() == Some(contents(&store.state())));
    put(&*store, "after", "{}").unwrap();
    until("the second save", || saved() == Some(contents(&store.state())));
    for i in 0..20 {
        put(&*store, &i.to_string(), "{}").unwrap();
    }
    // Settings have no revision of their own, and still are there at the end.
    write(&*store, |draft| draft.set("door", Some("hash"))).unwrap();
    drop(keeper);
    assert_eq!(saved(), Some(contents(&store.state())));
}
