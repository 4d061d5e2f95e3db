#![allow(clippy::print_stdout, reason = "measurements are printed, not asserted")]

mod power_loss;
mod removed_files;
mod restored;
mod sealed;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex as StdMutex;
use std::sync::mpsc::channel;

use proptest::prelude::*;
use redb::{ReadableDatabase, TableDefinition};
use yumen_config::Kind;

use super::encoding::{decode_entry, decode_revision, encode_entry, encode_revision};
use super::test_disk::Disk;
use super::*;
use crate::engine::EXPIRY;
use crate::last_good::LastGood;
use crate::state::{Authorship, EntryChange, ResourceKey, StoreEntry};
use crate::store::{Draft, Store};
use crate::test_kit::{Contents, Random, TestDir, WAIT, contents, key, put, write};

fn open(dir: &TestDir) -> EmbeddedStore {
    EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()).unwrap()
}

fn refusal(opened: Result<EmbeddedStore, StoreError>) -> String {
    opened.err().expect("it must not open").to_string()
}

#[test]
fn commits_survive_reopening() {
    let dir = TestDir::new();
    let store = open(&dir);
    assert_eq!(put(&store, "a", "{\"v\":1}").unwrap(), 1);
    assert_eq!(put(&store, "a", "{\"v\":2}").unwrap(), 2);
    write(&store, |draft| draft.set("door", Some("hash"))).unwrap();
    write(&store, |draft| {
        draft.put(ResourceKey::new(Kind::Credentials, "u/credentials/k"), "{}".into(), None)
    })
    .unwrap();
    let before = (contents(&store.state()), store.history(None, 9).unwrap());
    drop(store);
    let store = open(&dir);
    assert_eq!((contents(&store.state()), store.history(None, 9).unwrap()), before);
    assert_eq!(before.1[0].by.reason.as_deref(), Some("why not"));
    assert_eq!(&**store.state().setting("door").unwrap(), "hash");
    assert!(store.state_at(Revision(0)).unwrap().is_empty());
}

#[test]
fn a_directory_in_use_is_refused_by_name() {
    let dir = TestDir::new();
    let first = open(&dir);
    let message = refusal(EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()));
    assert!(message.contains(dir.path().to_str().unwrap()) && message.contains("in use"), "{message}");
    drop(first);
    open(&dir);
}

#[test]
fn strange_files_are_refused_and_left_as_they_are() {
    let whole = {
        let dir = TestDir::new();
        let store = open(&dir);
        (0..50).for_each(|i| assert!(put(&store, &format!("r{i}"), &"x".repeat(300)).is_ok()));
        drop(store);
        fs::read(dir.join(DATABASE)).unwrap()
    };
    let mut altered = whole.clone();
    // The texts are stored in plain text. One letter changes in all of them, old copies included.
    let is_text = |at: usize| whole[at..].starts_with(&[b'x'; 300]);
    let texts: Vec<usize> = (0..whole.len()).filter(|at| is_text(*at)).collect();
    texts.iter().for_each(|at| altered[at + 50] = b'y');
    let cases: [(&str, &[u8]); 4] = [
        ("empty", b""),
        ("no database", b"#END of a document that is no database at all"),
        ("cut off", &whole[..whole.len() / 2]),
        ("altered", &altered),
    ];
    for (name, bytes) in cases {
        let dir = TestDir::new();
        fs::write(dir.join(DATABASE), bytes).unwrap();
        let opened = EmbeddedMedium::open(dir.path(), EmbeddedOptions::default());
        let error = opened.err().expect(name);
        assert!(matches!(error, StoreError::Corrupt(_)), "{name}: {error:?}");
        assert!(error.to_string().contains(DATABASE), "{name}: {error}");
        assert!(fs::read(dir.join(DATABASE)).unwrap() == bytes, "{name}: it was written to");
    }
}

#[test]
fn a_missing_file_is_not_a_new_beginning() {
    let dir = TestDir::new();
    let store = open(&dir);
    put(&store, "a", "{}").unwrap();
    LastGood::save(dir.path(), &store.state(), &OptionalSeal::default()).unwrap();
    drop(store);
    fs::remove_file(dir.join(DATABASE)).unwrap();
    let message = refusal(EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()));
    assert!(message.contains("is missing, but last-good.json shows"), "{message}");
    let restored = restore(&dir.join("last-good.json"), dir.path(), None).unwrap();
    assert_eq!(contents(&open(&dir).state()), contents(&restored));
    assert_eq!(restored.len(), 1);
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_what_is_written() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    let store = open(&dir);
    store.medium().backup(&dir.join("backup")).unwrap();
    LastGood::save(dir.path(), &store.state(), &OptionalSeal::default()).unwrap();
    for name in [DATABASE, "backup", "last-good.json", "lock"] {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o077, 0, "{name}");
    }
}

/// Written by hand, so that it stays the format of version 1 when the code changes.
fn write_version_1(path: &Path, format: u64) {
    let database = Database::create(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut entries = transaction.open_table(TableDefinition::<&str, &[u8]>::new("entries")).unwrap();
        // created 1, modified 300, no expiry
        entries.insert("routes/a", [&[1, 0xac, 2, 0], &b"{\"uri\":\"/\"}"[..]].concat().as_slice()).unwrap();
        // created 2, modified 2, expires at 5e15 ms
        let expiring = [2, 2, 1, 0x80, 0x80, 0x82, 0xbf, 0x93, 0xef, 0xf0, 0x8, b'{', b'}'];
        entries.insert("consumers/c", expiring.as_slice()).unwrap();
        let mut settings = transaction.open_table(TableDefinition::<&str, &str>::new("settings")).unwrap();
        settings.insert("door", "hash").unwrap();
        let mut revisions = transaction.open_table(TableDefinition::<u64, &[u8]>::new("revisions")).unwrap();
        let revision = [
            &[0xe8, 7, 2][..],      // at 1000 ms, the author has two letters
            b"me\x01\x03why",       // a reason
            &[1, 8],                // one change
            b"routes/a",            // to this
            &[0],                   // nothing before
            &[1, 1, 0xac, 2, 0, 2], // created 1, modified 300, no expiry, two bytes
            b"{}",
        ];
        revisions.insert(300, revision.concat().as_slice()).unwrap();
        let mut meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap();
        for (name, value) in [("format", format), ("revision", 300), ("history_bytes", 32)] {
            meta.insert(name, value).unwrap();
        }
    }
    transaction.commit().unwrap();
}

#[test]
fn a_file_of_version_1_is_read() {
    let dir = TestDir::new();
    write_version_1(&dir.join(DATABASE), 1);
    let store = open(&dir);
    let state = store.state();
    assert_eq!((state.revision, state.len()), (Revision(300), 2));
    let entry = state.get(Kind::Routes, "a").unwrap();
    let read = (&*entry.json, entry.created.0, entry.modified.0, entry.expires_ms);
    assert_eq!(read, ("{\"uri\":\"/\"}", 1, 300, None));
    let expiring = state.get(Kind::Consumers, "c").unwrap();
    assert_eq!(expiring.expires_ms, Some(5_000_000_000_000_000));
    assert_eq!(&**state.setting("door").unwrap(), "hash");
    let history = store.history(None, 9).unwrap();
    assert_eq!((history.len(), history[0].time_ms, &*history[0].by.author), (1, 1000, "me"));
    assert_eq!(history[0].changes[0].after.as_ref().unwrap().modified, Revision(300));
    assert_eq!(put(&store, "b", "{}").unwrap(), 301);
}

#[test]
fn a_file_from_the_future_is_refused() {
    let dir = TestDir::new();
    write_version_1(&dir.join(DATABASE), 7);
    let message = refusal(EmbeddedMedium::open(dir.path(), EmbeddedOptions::default()));
    assert!(message.contains("is of format 7") && message.contains(DATABASE), "{message}");
    write_version_1(&dir.join("zero"), 0);
    let message = restore(&dir.join("zero"), dir.path(), None).unwrap_err().to_string();
    assert!(message.contains("is of format 0"), "{message}");
}

#[test]
fn migration_runs_the_missing_steps_in_order_and_once() {
    const LOG: TableDefinition<u64, u64> = TableDefinition::new("log");
    fn log(transaction: &redb::WriteTransaction, step: u64) -> tables::Result<()> {
        let mut log = transaction.open_table(LOG)?;
        let next = redb::ReadableTableMetadata::len(&log)?;
        log.insert(next, step)?;
        Ok(())
    }
    let dir = TestDir::new();
    write_version_1(&dir.join(DATABASE), 1);
    let database = Database::open(dir.join(DATABASE)).unwrap();
    let (one, two, three): (format::MigrationStep, format::MigrationStep, format::MigrationStep) =
        (|t| log(t, 1), |t| log(t, 2), |_| Err(tables::corrupted("no".into())));
    format::migrate_by(&database, &[one]).unwrap();
    format::migrate_by(&database, &[one, two]).unwrap();
    format::migrate_by(&database, &[one, two]).unwrap();
    assert!(format::migrate_by(&database, &[one, two, three]).is_err());
    assert!(format::migrate_by(&database, &[one]).is_err());
    assert_eq!(tables::format_of(&database).unwrap(), 3);
    let log = database.begin_read().unwrap().open_table(LOG).unwrap();
    let steps: Vec<u64> = log.range(0..).unwrap().map(|row| row.unwrap().1.value()).collect();
    assert_eq!(steps, [1, 2]);
}

#[test]
fn history_is_bounded_by_count_bytes_and_age() {
    let all = EmbeddedOptions {
        revisions_max: 1000,
        revisions_age_max: None,
        history_bytes_max: 1 << 30,
        ..EmbeddedOptions::default()
    };
    let cases = [
        (EmbeddedOptions { ..all.clone() }, 40),
        (EmbeddedOptions { revisions_max: 7, ..all.clone() }, 7),
        (EmbeddedOptions { revisions_max: 0, ..all.clone() }, 1),
        // A revision of a text of 1000 bytes takes slightly more than 1000 bytes.
        (EmbeddedOptions { history_bytes_max: 5_900, ..all.clone() }, 5),
        (EmbeddedOptions { history_bytes_max: 10, ..all.clone() }, 1),
        (EmbeddedOptions { revisions_age_max: Some(Duration::from_secs(3600)), ..all.clone() }, 40),
    ];
    for (options, retained) in cases {
        let (medium, state) = Disk::new(1).load(options.clone()).unwrap();
        let store = StoreEngine::start(medium, state).unwrap();
        for i in 0..40 {
            put(&store, &format!("r{i}"), &"x".repeat(1000)).unwrap();
        }
        let history = store.history(None, 1000).unwrap();
        let revisions: Vec<u64> = history.iter().map(|committed| committed.revision.0).collect();
        assert_eq!(revisions, (41 - retained..=40).rev().collect::<Vec<u64>>(), "{options:?}");
        assert_eq!(
            store.state_at(Revision(40 - retained)).unwrap().len() as u64,
            40 - retained,
            "{options:?}"
        );
        if retained < 40 {
            let older = store.state_at(Revision(39 - retained));
            assert!(matches!(older, Err(StoreError::Compacted(_))), "{options:?}");
        }
    }
}

#[test]
fn old_history_is_removed_with_the_next_write() {
    let options =
        EmbeddedOptions { revisions_age_max: Some(Duration::from_secs(60)), ..EmbeddedOptions::default() };
    let (medium, mut state) = Disk::new(1).load(options).unwrap();
    // The draft's clock is set by the test: two minutes ago, and now.
    for at_ms in [now_ms() - 120_000, now_ms() - 120_000, now_ms()] {
        let mut draft = Draft::new(state.clone(), at_ms);
        draft.put(key("a"), format!("{at_ms}").into(), None);
        let finished = draft.finish(Authorship::by("test"));
        let batch = CommitBatch {
            base: state,
            revisions: Vec::from_iter(finished.committed),
            ..CommitBatch::default()
        };
        medium.persist(&batch).unwrap();
        state = finished.state;
    }
    let revisions: Vec<u64> = medium.history(None, 9).unwrap().iter().map(|one| one.revision.0).collect();
    assert_eq!(revisions, [3]);
}

#[test]
fn a_backup_is_of_one_moment_while_writes_go_on() {
    let dir = TestDir::new();
    let store = open(&dir);
    let backup = dir.join("copy.redb");
    // Both entries always hold the same text.
    let pair = |store: &EmbeddedStore, text: String| {
        let text: Arc<str> = text.into();
        let both = move |draft: &mut Draft| {
            ["a", "b"].into_iter().for_each(|id| draft.put(key(id), text.clone(), None));
        };
        write(store, both).unwrap();
    };
    pair(&store, "0".into());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..60).for_each(|i| pair(&store, i.to_string())));
        let mut round = 0;
        while !writer.is_finished() || round == 0 {
            round += 1;
            store.medium().backup(&backup).unwrap();
            let other = TestDir::new();
            let restored = restore(&backup, other.path(), None).unwrap();
            assert_eq!(
                restored.get(Kind::Routes, "a").unwrap().json,
                restored.get(Kind::Routes, "b").unwrap().json
            );
            let reopened = open(&other);
            assert_eq!(contents(&reopened.state()), contents(&restored));
            assert_eq!(reopened.history(None, 1).unwrap()[0].revision, restored.revision);
        }
    });
    assert!(!dir.join("copy.redb.partial").exists());
    assert!(store.medium().backup(&dir.join(DATABASE)).is_err(), "a backup over the store itself");
}

#[test]
fn restoring_keeps_what_it_replaces_and_refuses_what_is_not_whole() {
    let (dir, backups) = (TestDir::new(), TestDir::new());
    let store = open(&dir);
    put(&store, "a", "{\"v\":1}").unwrap();
    let backup = backups.join("backup.redb");
    store.medium().backup(&backup).unwrap();
    put(&store, "a", "{\"v\":2}").unwrap();
    let message = restore(&backup, dir.path(), None).unwrap_err().to_string();
    assert!(message.contains("in use"), "{message}");
    let message = restore(&dir.join(DATABASE), backups.path(), None).unwrap_err().to_string();
    assert!(message.contains("in use"), "{message}");
    drop(store);
    let bytes = fs::read(&backup).unwrap();
    let cut = backups.join("cut.redb");
    for (name, bytes) in [("cut", &bytes[..bytes.len() / 3]), ("empty", &[]), ("text", b"hello")] {
        fs::write(&cut, bytes).unwrap();
        restore(&cut, dir.path(), None).expect_err(name);
        assert_eq!(contents(&open(&dir).state()).0, 2, "{name}");
    }
    assert_eq!(restore(&backup, dir.path(), None).unwrap().revision, Revision(3));
    assert_eq!(contents(&open(&dir).state()).0, 3);
    assert_eq!(LastGood::load(dir.path(), &OptionalSeal::default()).unwrap().revision, Revision(3));
    fs::rename(dir.join("yumen.redb.replaced"), dir.join(DATABASE)).unwrap();
    assert_eq!(contents(&open(&dir).state()).0, 2);
}

#[test]
fn a_hundred_thousand_entries_open() {
    let dir = TestDir::new();
    let store = open(&dir);
    let fill = |draft: &mut Draft| {
        for i in 0..100_000 {
            let json =
                format!("{{\"uri\":\"/api/{i}\",\"upstream_id\":\"{}\",\"desc\":\"{:0200}\"}}", i % 100, i);
            draft.put(key(&format!("route-{i}")), json.into(), None);
        }
    };
    write(&store, fill).unwrap();
    drop(store);
    let begin = std::time::Instant::now();
    let store = open(&dir);
    let took = begin.elapsed();
    println!("opened {} entries in {took:?}", store.state().len());
    assert_eq!(store.state().len(), 100_000);
}

#[test]
fn encodings_that_are_cut_or_run_on_are_refused() {
    let entry = |json: &str, expires_ms| StoreEntry {
        json: json.into(),
        created: Revision(u64::MAX),
        modified: Revision(128),
        expires_ms,
    };
    let encoded = encode_entry(&entry("{}", Some(u64::MAX)));
    assert_eq!(decode_entry(&encoded), Some(entry("{}", Some(u64::MAX))));
    let committed = StoreCommit {
        revision: Revision(9),
        time_ms: 0,
        by: Authorship { author: String::new(), reason: Some("é".into()) },
        changes: vec![
            EntryChange { key: key("a"), before: Some(entry("", None)), after: None },
            EntryChange { key: key("b/c"), before: None, after: Some(entry("[1]", Some(0))) },
        ],
    };
    let mut encoded = encode_revision(&committed);
    assert_eq!(decode_revision(Revision(9), &encoded).as_ref(), Some(&committed));
    for end in 0..encoded.len() {
        assert_eq!(decode_revision(Revision(9), &encoded[..end]), None, "cut at {end}");
    }
    encoded.push(0);
    assert_eq!(decode_revision(Revision(9), &encoded), None);
    assert_eq!(decode_revision(Revision(9), &[0xff; 30]), None, "a number without an end");
}

#[test]
fn the_engine_keeps_its_state_when_the_disk_is_full_and_goes_on_when_there_is_room() {
    let disk = Disk::new(3);
    let (medium, state) = disk.load(EmbeddedOptions::default()).unwrap();
    let store = StoreEngine::start(medium, state).unwrap();
    put(&store, "a", "1").unwrap();
    let before = contents(&store.state());
    disk.fail(1000);
    for _ in 0..3 {
        let error = put(&store, "a", "2").unwrap_err();
        assert!(matches!(error, StoreError::Full(_) | StoreError::Io(_)), "{error:?}");
    }
    assert_eq!(contents(&store.state()), before);
    disk.fail(0);
    assert_eq!(put(&store, "a", "3").unwrap(), 2);
    drop(store);
    let (_, state) = disk.load(EmbeddedOptions::default()).unwrap();
    assert_eq!((state.revision, &*state.get(Kind::Routes, "a").unwrap().json), (Revision(2), "3"));
}

#[derive(Debug, Clone)]
enum Action {
    Put(u8, u16),
    Delete(u8),
    Set(u8, Option<u8>),
    /// Several writes in one revision.
    Many(Vec<(u8, Option<u8>)>),
    Refused(u8),
    Expiring(u8),
    Reopen,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0..8u8, any::<u16>()).prop_map(|(id, text)| Action::Put(id, text)),
        3 => (0..8u8).prop_map(Action::Delete),
        1 => (0..3u8, any::<Option<u8>>()).prop_map(|(name, value)| Action::Set(name, value)),
        2 => proptest::collection::vec((0..8u8, any::<Option<u8>>()), 0..6).prop_map(Action::Many),
        1 => (0..8u8).prop_map(Action::Refused),
        1 => (0..8u8).prop_map(Action::Expiring),
        1 => Just(Action::Reopen),
    ];
    proptest::collection::vec(action, 1..40)
}

/// A minimal model of the store: texts by id, and every former state.
#[derive(Default)]
struct Model {
    texts: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    past: Vec<BTreeMap<String, String>>,
}

impl Model {
    /// Writes several texts at once; a revision results if any of them existed before or exists now.
    fn write(&mut self, writes: &[(String, Option<String>)]) {
        let mut counts = false;
        let before = self.texts.clone();
        for (id, text) in writes {
            match text {
                Some(text) => drop(self.texts.insert(id.clone(), text.clone())),
                None => drop(self.texts.remove(id)),
            }
        }
        for (id, _) in writes {
            counts |= before.contains_key(id) || self.texts.contains_key(id);
        }
        if counts {
            self.past.push(before);
        }
    }

    fn check(&self, store: &EmbeddedStore, revisions_max: usize) {
        let state = store.state();
        let texts = |state: &StoreState| -> BTreeMap<String, String> {
            let text =
                |(key, entry): (&ResourceKey, &StoreEntry)| (key.id.to_string(), entry.json.to_string());
            state.entries().map(text).collect()
        };
        let settings = state.settings().map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(texts(&state), self.texts);
        assert_eq!(settings.collect::<BTreeMap<_, _>>(), self.settings);
        let newest = self.past.len();
        assert_eq!(state.revision.0 as usize, newest);
        let count = store.history(None, usize::MAX).unwrap().len();
        assert_eq!(count, newest.min(revisions_max));
        for (revision, past) in self.past.iter().enumerate() {
            match store.state_at(Revision(revision as u64)) {
                Ok(state) => assert_eq!((&texts(&state), revision + count >= newest), (past, true)),
                Err(error) => {
                    assert!(matches!(error, StoreError::Compacted(_)) && revision + count < newest);
                }
            }
        }
    }
}

fn apply(action: &Action, store: &EmbeddedStore, model: &mut Model) {
    let many = |writes: Vec<(String, Option<String>)>| {
        let decide = move |draft: &mut Draft| {
            for (id, text) in &writes {
                match text {
                    Some(text) => draft.put(key(id), text.as_str().into(), None),
                    None => drop(draft.delete(Kind::Routes, id)),
                }
            }
        };
        write(store, decide).unwrap();
    };
    match action {
        Action::Put(id, text) => {
            let writes = vec![(id.to_string(), Some(text.to_string()))];
            many(writes.clone());
            model.write(&writes);
        }
        Action::Delete(id) => {
            many(vec![(id.to_string(), None)]);
            model.write(&[(id.to_string(), None)]);
        }
        Action::Many(writes) => {
            let text = |(id, text): &(u8, Option<u8>)| (id.to_string(), text.map(|text| text.to_string()));
            let writes: Vec<_> = writes.iter().map(text).collect();
            many(writes.clone());
            model.write(&writes);
        }
        Action::Set(name, value) => {
            let (name, value) = (name.to_string(), value.map(|value| value.to_string()));
            let (set_name, set_value) = (name.clone(), value.clone());
            write(store, move |draft| draft.set(&set_name, set_value.as_deref())).unwrap();
            match value {
                Some(value) => drop(model.settings.insert(name, value)),
                None => drop(model.settings.remove(&name)),
            }
        }
        Action::Refused(id) => refused(store, id.to_string()),
        Action::Expiring(id) => {
            let (id, expired) = (id.to_string(), expired(store));
            model.write(&[(id.clone(), Some("soon gone".into()))]);
            model.write(&[(id.clone(), None)]);
            write(store, move |draft| draft.put(key(&id), "soon gone".into(), Some(1))).unwrap();
            expired.recv_timeout(WAIT).unwrap();
        }
        Action::Reopen => unreachable!("done where the store can be replaced"),
    }
}

fn refused(store: &EmbeddedStore, id: String) {
    let (sender, receiver) = channel();
    store.propose(crate::store::Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            draft.put(key(&id), "never".into(), None);
            draft.set("never", Some("never"));
            false
        }),
        done: Box::new(move |result| sender.send(result).unwrap()),
    });
    assert!(receiver.recv_timeout(WAIT).unwrap().unwrap().is_none());
}

/// Notifies when an object has expired.
fn expired(store: &EmbeddedStore) -> std::sync::mpsc::Receiver<()> {
    let (sender, receiver) = channel();
    let sender = StdMutex::new(sender);
    store.follow(Box::new(move |committed| {
        if committed.by.author == EXPIRY {
            let _ = sender.lock().unwrap().send(());
        }
    }));
    receiver
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_a_map_with_a_memory_does(actions in actions(), revisions_max in 1..30usize) {
        let disk = Disk::new(7);
        let open = || {
            let (medium, state) = disk.load(EmbeddedOptions { revisions_max, ..EmbeddedOptions::default() }).unwrap();
            StoreEngine::start(medium, state).unwrap()
        };
        let (mut store, mut model) = (open(), Model::default());
        for action in &actions {
            match action {
                Action::Reopen => {
                    drop(store);
                    store = open();
                    model.check(&store, revisions_max);
                }
                action => apply(action, &store, &mut model),
            }
        }
        model.check(&store, revisions_max);
    }
}
