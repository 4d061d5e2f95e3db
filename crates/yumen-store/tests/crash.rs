//! Kills a writing process at random moments and verifies the store that it leaves behind.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use yumen_config::Kind;
use yumen_store::embedded::EmbeddedOptions;
use yumen_store::{Authorship, EmbeddedMedium, Proposal, ResourceKey, Revision, Store};

/// Environment variable with the directory of the store, set for the writing process.
const DIRECTORY: &str = "YUMEN_TEST_CRASH_DIRECTORY";
const ROUNDS: u64 = 24;
const WRITERS: usize = 4;
/// Ids are few, so that most writes replace or delete something.
const IDS: u64 = 40;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { revisions_max: usize::MAX, history_bytes_max: u64::MAX, ..EmbeddedOptions::default() }
}

/// Runs in the process that is killed: writes, and prints the acknowledged revisions.
#[test]
#[ignore = "started by the test below"]
fn writer() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let store = EmbeddedMedium::open(directory, options()).unwrap();
    let number = AtomicU64::new(store.state().revision.0);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                loop {
                    let (revision, written) = write(&store, number.fetch_add(1, Ordering::Relaxed));
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "acknowledged {revision} {written}").unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

/// Writes a pair of entries that must never be seen apart, and gives the revision and the text.
fn write(store: &dyn Store, number: u64) -> (u64, String) {
    let (sender, receiver) = sync_channel(1);
    let text = format!("{number}{}", "-".repeat((number * 37 % 5000) as usize));
    let json: Arc<str> = text.as_str().into();
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            let id = format!("{}", number % IDS);
            draft.put(ResourceKey::new(Kind::Routes, id.as_str()), json.clone(), None);
            draft.put(ResourceKey::new(Kind::Services, id.as_str()), json.clone(), None);
            draft.delete(Kind::Routes, &format!("{}", (number + IDS / 2) % IDS));
            draft.delete(Kind::Services, &format!("{}", (number + IDS / 2) % IDS));
            true
        }),
        done: Box::new(move |result| sender.send(result).unwrap()),
    });
    (receiver.recv().unwrap().unwrap().unwrap().revision.0, text)
}

fn start_writer(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["writer", "--exact", "--ignored", "--nocapture"]).env(DIRECTORY, directory);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Kills the writing process after `enough` acknowledged revisions; returns all acknowledged ones.
fn acknowledged_until_killed(directory: &Path, enough: usize) -> BTreeMap<u64, String> {
    let mut child = start_writer(directory);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    for line in lines {
        let Ok(line) = line else { break };
        // The last line may have been cut off by the kill, and the harness prints lines of its own.
        let mut words = line.split(' ');
        if let (Some("acknowledged"), Some(revision), Some(text)) = (words.next(), words.next(), words.next())
        {
            acknowledged.insert(revision.parse().unwrap(), text.to_owned());
        }
        if acknowledged.len() == enough {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= enough, "the writer ended by itself");
    acknowledged
}

fn check(directory: &Path, acknowledged: &BTreeMap<u64, String>) {
    let store = EmbeddedMedium::open(directory, options()).unwrap();
    let state = store.state();
    let mut history = store.history(None, usize::MAX).unwrap();
    history.reverse();
    let revisions: Vec<u64> = history.iter().map(|committed| committed.revision.0).collect();
    assert_eq!(revisions, (1..=state.revision.0).collect::<Vec<u64>>());
    let mut model: BTreeMap<ResourceKey, Arc<str>> = BTreeMap::new();
    for committed in &history {
        for changed in &committed.changes {
            let before = changed.before.as_ref().map(|entry| &entry.json);
            assert_eq!(model.get(&changed.key), before, "{:?}", committed.revision);
            match &changed.after {
                Some(entry) => drop(model.insert(changed.key.clone(), entry.json.clone())),
                None => drop(model.remove(&changed.key)),
            }
        }
        if let Some(text) = acknowledged.get(&committed.revision.0) {
            let written = committed.changes.iter().filter_map(|changed| changed.after.as_ref());
            let written: Vec<&str> = written.map(|entry| &*entry.json).collect();
            assert!(written == [text, text] || written[0].starts_with(text.as_str()), "{written:?} {text}");
        }
    }
    let newest = acknowledged.keys().next_back().copied().unwrap_or(0);
    assert!(state.revision >= Revision(newest), "{:?} {newest}", state.revision);
    let entries: BTreeMap<ResourceKey, Arc<str>> =
        state.entries().map(|(key, entry)| (key.clone(), entry.json.clone())).collect();
    assert_eq!(entries, model);
    for (id, entry) in state.of_kind(Kind::Routes) {
        assert_eq!(state.get(Kind::Services, id).map(|other| &other.json), Some(&entry.json));
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let directory = std::env::temp_dir().join(format!("yumen-crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let mut acknowledged = BTreeMap::new();
    for round in 0..ROUNDS {
        // 1 to 61 revisions in a pseudo-random order, so that kills hit different positions of a batch.
        let enough = 1 + (round * 7919 % 61) as usize;
        acknowledged.extend(acknowledged_until_killed(&directory, enough));
        check(&directory, &acknowledged);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
