use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use yumen_config::Kind;

use super::*;
use crate::memory::MemoryMedium;
use crate::seal::{KEY_BYTES, Keyring};
use crate::state::{ResourceKey, Revision, StoreEntry};
use crate::store::Store;
use crate::test_kit::{Contents, Random, TestDir, contents, key, put, until, write};

fn state(revision: u64, texts: &[&str]) -> StoreState {
    let entry = |(at, text): (usize, &&str)| {
        let (created, modified) = (Revision(1), Revision(revision));
        let expires_ms = (at == 1).then_some(u64::MAX);
        let key = ResourceKey::new(Kind::ALL[at % Kind::ALL.len()], format!("id/{at} \"é\""));
        (key, StoreEntry { json: Arc::from(*text), created, modified, expires_ms })
    };
    let settings = [(Arc::from("door"), Arc::from("line\nof \"hash\""))];
    StoreState::new(Revision(revision), texts.iter().enumerate().map(entry), settings)
}

#[test]
fn saved_state_is_loaded() {
    let dir = TestDir::new();
    for state in [StoreState::default(), state(3, &["{}", "not\njson\u{0}", "\"\\"]), state(u64::MAX, &[])] {
        LastGood::save(dir.path(), &state, &OptionalSeal::default()).unwrap();
        assert_eq!(
            contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap()),
            contents(&state)
        );
    }
}

#[test]
fn every_cut_and_every_altered_byte_is_noticed() {
    let dir = TestDir::new();
    let (older, newer) = (state(1, &["{\"v\":1}"]), state(2, &["{\"v\":2}"]));
    LastGood::save(dir.path(), &older, &OptionalSeal::default()).unwrap();
    LastGood::save(dir.path(), &newer, &OptionalSeal::default()).unwrap();
    let path = dir.join(FILE);
    let whole = fs::read(&path).unwrap();
    let check = |bytes: &[u8], what: String| {
        fs::write(&path, bytes).unwrap();
        let error = LastGood::read(&path, &OptionalSeal::default()).expect_err(&what).to_string();
        assert!(error.contains(FILE), "{what}: {error}");
        assert_eq!(
            contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap()),
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
    fs::remove_file(&path).unwrap();
    assert_eq!(contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap()), contents(&older));
    fs::write(&path, &whole).unwrap();
    assert_eq!(contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap()), contents(&newer));
}

#[test]
fn a_damaged_file_does_not_replace_the_one_that_stands_in_for_it() {
    let dir = TestDir::new();
    let all = [state(1, &["{\"v\":1}"]), state(2, &["{\"v\":2}"]), state(3, &["{\"v\":3}"])];
    let [first, second, third] = &all;
    let edge = OptionalSeal::default();
    let previous = || contents(&LastGood::read(&dir.join(PREVIOUS), &edge).unwrap());
    for damaged in [&b"{\"yumen_last_good\":2,\"bytes\":90}\n{"[..], b"", &[0xff; 300]] {
        LastGood::save(dir.path(), first, &edge).unwrap();
        LastGood::save(dir.path(), second, &edge).unwrap();
        fs::write(dir.join(FILE), damaged).unwrap();
        LastGood::save(dir.path(), third, &edge).unwrap();
        assert_eq!(previous(), contents(first));
        assert_eq!(contents(&LastGood::load(dir.path(), &edge).unwrap()), contents(third));
        LastGood::save(dir.path(), second, &edge).unwrap();
        assert_eq!(previous(), contents(third));
    }
}

#[test]
fn two_damaged_files_give_both_reasons_and_none_gives_no_state() {
    let dir = TestDir::new();
    assert!(is_missing(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap_err()));
    fs::write(dir.join(FILE), "").unwrap();
    fs::write(dir.join(PREVIOUS), "{\"yumen_last_good\":9}\n").unwrap();
    let message = LastGood::load(dir.path(), &OptionalSeal::default()).unwrap_err().to_string();
    assert!(message.contains("first line") && message.contains("format 9"), "{message}");
}

/// Versions of a compiler that has compiled all revisions without a broken object.
fn compiled() -> Arc<LastGoodVersions> {
    let versions = Arc::new(LastGoodVersions::default());
    versions.report(Revision(u64::MAX), Vec::new());
    versions
}

#[test]
fn a_state_is_not_saved_before_it_is_known_what_is_in_force_in_place_of_it() {
    let dir = TestDir::new();
    let store: Arc<dyn Store> = Arc::new(MemoryMedium::store(10).unwrap());
    put(&*store, "x", "good").unwrap();
    LastGood::save(dir.path(), &store.state(), &OptionalSeal::default()).unwrap();
    let saved = || contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap());
    let good = saved();
    put(&*store, "x", "broken").unwrap();
    let versions = Arc::new(LastGoodVersions::default());
    let _keeper = LastGoodTask::start(dir.path(), store.clone(), None, versions.clone()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(saved(), good, "a process that is killed now has compiled nothing");
    let version = LastGoodVersion { key: key("x"), json: "good".into(), instead_of: "broken".into() };
    versions.report(store.state().revision, vec![version]);
    until("both are saved", || saved() == contents(&store.state()));
    assert!(dir.join(versions::FILE).exists());
}

#[test]
fn the_keeper_saves_what_changes_and_once_more_at_the_end() {
    let dir = TestDir::new();
    let store: Arc<dyn Store> = Arc::new(MemoryMedium::store(10).unwrap());
    let saved = || LastGood::load(dir.path(), &OptionalSeal::default()).map(|state| contents(&state)).ok();
    put(&*store, "before", "{}").unwrap();
    let task = LastGoodTask::start(dir.path(), store.clone(), None, compiled()).unwrap();
    until("the first save", || saved() == Some(contents(&store.state())));
    put(&*store, "after", "{}").unwrap();
    until("the second save", || saved() == Some(contents(&store.state())));
    for i in 0..20 {
        put(&*store, &i.to_string(), "{}").unwrap();
    }
    // Settings have no revision of their own, and are saved at the end nevertheless.
    write(&*store, |draft| draft.set("door", Some("hash"))).unwrap();
    drop(task);
    assert_eq!(saved(), Some(contents(&store.state())));
}

/// A state after some random puts, deletions and settings.
fn changed(state: &StoreState, random: &mut Random) -> StoreState {
    let mut state = state.clone();
    state.revision.0 += 1 + random.below(3);
    for _ in 0..1 + random.below(4) {
        let key = key(&random.below(12).to_string());
        let json = Arc::from(format!("{{\"v\":\"{}\\n\"}}", random.next()));
        let (created, modified) = (state.revision, state.revision);
        let entry = StoreEntry { json, created, modified, expires_ms: (random.below(4) == 0).then_some(7) };
        state.replace(&key, (random.below(3) > 0).then_some(entry));
    }
    if random.below(3) == 0 {
        let name = Arc::from(format!("door {}", random.below(3)));
        state.replace_setting(&name, (random.below(2) == 0).then(|| random.next().to_string().into()));
    }
    state
}

fn load(dir: &TestDir) -> Contents {
    contents(&LastGood::load(dir.path(), &OptionalSeal::default()).unwrap())
}

#[test]
fn appended_changes_are_loaded_and_sealed_with_the_state() {
    let keyring = Keyring::new(&[[7; KEY_BYTES]]).unwrap();
    for edge in [OptionalSeal::default(), OptionalSeal(Some(Arc::new(keyring)))] {
        for seed in 0..25 {
            let (dir, mut random) = (TestDir::new(), Random(seed));
            let mut state = changed(&StoreState::default(), &mut random);
            let mut last_good = LastGood::save(dir.path(), &state, &edge).unwrap();
            for _ in 0..10 {
                state = changed(&state, &mut random);
                assert!(last_good.append(&state, &edge).unwrap());
                let loaded = LastGood::load(dir.path(), &edge).unwrap();
                assert_eq!(contents(&loaded), contents(&state), "seed {seed}");
            }
            let has_versions = fs::read_to_string(dir.join(FILE)).unwrap().contains(r#"{\"v\":"#);
            assert_eq!(has_versions, edge.0.is_none());
        }
    }
}

#[test]
fn of_changes_that_are_cut_off_or_altered_those_before_hold() {
    let (dir, mut random) = (TestDir::new(), Random(1));
    let mut state = changed(&StoreState::default(), &mut random);
    let mut last_good = LastGood::save(dir.path(), &state, &OptionalSeal::default()).unwrap();
    let mut steps = vec![(last_good.bytes, contents(&state))];
    for _ in 0..4 {
        state = changed(&state, &mut random);
        last_good.append(&state, &OptionalSeal::default()).unwrap();
        steps.push((last_good.bytes, contents(&state)));
    }
    let path = dir.join(FILE);
    let whole = fs::read(&path).unwrap();
    assert_eq!(steps.last().unwrap().0, whole.len() as u64);
    for at in steps[0].0..whole.len() as u64 {
        let holds = &steps.iter().rev().find(|(end, _)| *end <= at).unwrap().1;
        fs::write(&path, &whole[..at as usize]).unwrap();
        assert_eq!(&load(&dir), holds, "cut at {at}");
        let mut altered = whole.clone();
        altered[at as usize] ^= 1;
        fs::write(&path, &altered).unwrap();
        assert_eq!(&load(&dir), holds, "altered at {at}");
    }
}

#[test]
fn damage_is_reported_beside_the_state_that_is_whole() {
    let (dir, edge) = (TestDir::new(), OptionalSeal::default());
    let damage = || LastGood::recover(dir.path(), &edge).unwrap().damage;
    let (older, newer) = (state(1, &["{}"]), state(2, &["{}", "{}"]));
    LastGood::save(dir.path(), &older, &edge).unwrap();
    let mut last_good = LastGood::save(dir.path(), &newer, &edge).unwrap();
    assert_eq!(damage(), None);
    assert!(last_good.append(&state(3, &["{}"]), &edge).unwrap());
    assert_eq!(damage(), None);
    let path = dir.join(FILE);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let torn = damage().expect("a record is torn");
    assert!(torn.contains(FILE) && torn.contains("after revision 2 are missing"), "{torn}");
    assert_eq!((damage_of(&path), damage_of(&dir.join(PREVIOUS))), (Some(torn), None));
    fs::write(&path, "strange").unwrap();
    let replaced = damage().expect("an older file is used");
    assert!(replaced.contains("last-good.json.previous of revision 1 is used instead"), "{replaced}");
}

#[test]
fn records_of_another_state_are_not_taken_for_its_own() {
    let (dir, mut random) = (TestDir::new(), Random(2));
    let first = changed(&StoreState::default(), &mut random);
    let mut last_good = LastGood::save(dir.path(), &first, &OptionalSeal::default()).unwrap();
    last_good.append(&changed(&first, &mut random), &OptionalSeal::default()).unwrap();
    let records = fs::read(dir.join(FILE)).unwrap();
    let first_bytes = text::whole(&first, &OptionalSeal::default()).0.len();
    let second = changed(&first, &mut random);
    LastGood::save(dir.path(), &second, &OptionalSeal::default()).unwrap();
    let mut text = fs::read(dir.join(FILE)).unwrap();
    text.extend_from_slice(&records[first_bytes..]);
    fs::write(dir.join(FILE), &text).unwrap();
    assert_eq!(load(&dir), contents(&second));
}

#[test]
fn the_format_before_is_read() {
    let (dir, state) = (TestDir::new(), state(3, &["{}", "{\"v\":1}"]));
    LastGood::save(dir.path(), &state, &OptionalSeal::default()).unwrap();
    let text = fs::read_to_string(dir.join(FILE)).unwrap();
    fs::write(dir.join(FILE), text.replacen("\"yumen_last_good\":2", "\"yumen_last_good\":1", 1)).unwrap();
    assert!(fs::read_to_string(dir.join(FILE)).unwrap().contains("good\":1"));
    assert_eq!(load(&dir), contents(&state));
}

#[test]
fn the_keeper_appends_until_a_new_file_is_worth_it_and_notices_one_that_is_not_its_own() {
    let dir = TestDir::new();
    let store: Arc<dyn Store> = Arc::new(MemoryMedium::store(10).unwrap());
    put(&*store, "before", "{}").unwrap();
    let _keeper = LastGoodTask::start(dir.path(), store.clone(), None, compiled()).unwrap();
    let saved = || LastGood::load(dir.path(), &OptionalSeal::default()).map(|state| contents(&state)).ok();
    let until_saved = |what: &str| until(what, || saved() == Some(contents(&store.state())));
    let file = || fs::metadata(dir.join(FILE)).unwrap();
    until_saved("the first save");
    let first = file();
    put(&*store, "small", "{}").unwrap();
    until_saved("a small change");
    assert_eq!(file().ino(), first.ino(), "it was appended");
    assert!(file().len() > first.len());
    put(&*store, "large", &format!("{{\"v\":\"{}\"}}", "v".repeat(CHANGES_BYTES_MIN as usize))).unwrap();
    until_saved("a change longer than the state");
    assert_ne!(file().ino(), first.ino(), "a new file was written");
    fs::write(dir.join(FILE), "somebody's").unwrap();
    put(&*store, "after", "{}").unwrap();
    until_saved("a file that was overwritten");
    fs::remove_file(dir.join(FILE)).unwrap();
    put(&*store, "again", "{}").unwrap();
    until("a file that was removed", || {
        LastGood::read(&dir.join(FILE), &OptionalSeal::default())
            .is_ok_and(|state| contents(&state) == contents(&store.state()))
    });
}
