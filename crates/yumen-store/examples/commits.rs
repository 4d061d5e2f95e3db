//! Prints how many commits per second the embedded store acknowledges, by how many propose at once.
//!
//! `cargo run --release -p yumen-store --example commits [DIRECTORY]`; the directory decides which disk.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use yumen_config::Kind;
use yumen_store::embedded::EmbeddedOptions;
use yumen_store::{Authorship, EmbeddedMedium, Proposal, ResourceKey, Store, StoreError};

const SECONDS: u64 = 5;

fn main() -> Result<(), StoreError> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for proposers in [1, 16, 64] {
        let directory = directory.join(format!("yumen-commits-{}-{proposers}", std::process::id()));
        let store = EmbeddedMedium::open(&directory, EmbeddedOptions::default())?;
        let commits = AtomicU64::new(0);
        let end = Instant::now() + Duration::from_secs(SECONDS);
        std::thread::scope(|scope| {
            for proposer in 0..proposers {
                let (store, commits) = (&store, &commits);
                scope.spawn(move || {
                    while Instant::now() < end {
                        commit(store, proposer, commits.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        println!("{proposers:3} proposers: {} commits/s", commits.into_inner() / SECONDS);
        drop(store);
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

/// Replaces a route of some 400 bytes and waits until that is durable.
fn commit(store: &dyn Store, proposer: u64, number: u64) {
    let (sender, receiver) = sync_channel(1);
    let json: Arc<str> = format!("{{\"uri\":\"/{number}\",\"desc\":\"{number:0380}\"}}").into();
    let key = ResourceKey::new(Kind::Routes, format!("{proposer}-{}", number % 100));
    store.propose(Proposal {
        by: Authorship::by("commits"),
        decide: Box::new(move |draft| {
            draft.put(key.clone(), json.clone(), None);
            true
        }),
        done: Box::new(move |result| sender.send(result.map(|_| ())).expect("the proposer waits")),
    });
    receiver.recv().expect("every proposal is answered").expect("the disk works");
}
