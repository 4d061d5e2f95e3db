//! Wire goldens: the exact bytes in and out of a real worker, for every segmentation of the input.
//!
//! One `wire/*.wire` file per case; `wire/README.md` describes the format.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

#[path = "wire/case.rs"]
mod case;
#[path = "wire/replay.rs"]
mod replay;

use std::path::Path;
use std::sync::Mutex;

use case::Case;
use replay::{Cut, Gateway};

/// Cases that run concurrently; they wait most of the time.
const LANES: usize = 8;

/// Most splits of a case; more are sampled evenly.
const SPLITS_MAX: usize = 400;

#[test]
fn every_case_gives_the_same_bytes_however_they_are_cut() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let only = std::env::var("WIRE_CASE").unwrap_or_default();
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wire"))
        .filter(|path| path.file_stem().unwrap().to_string_lossy().contains(&only))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are cases");
    let queue = Mutex::new(paths.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let Some(path) = queue.lock().unwrap().next() else { return };
                    let name = path.file_stem().unwrap().to_string_lossy();
                    if let Err(message) = check(&Case::read(path)) {
                        failures.lock().unwrap().push(format!("{name}: {message}"));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    assert!(failures.is_empty(), "{} of {} cases\n{}", failures.len(), paths.len(), failures.join("\n"));
}

fn check(case: &Case) -> Result<(), String> {
    let gateway = Gateway::start(case);
    let replay = |cut| gateway.replay(case, cut).map_err(|message| format!("{cut:?}: {message}"));
    replay(Cut::Whole)?;
    if case.once {
        return Ok(());
    }
    replay(Cut::Bytes)?;
    for at in positions(case.client_bytes()) {
        replay(Cut::Client(at))?;
    }
    for at in positions(case.upstream_bytes()) {
        replay(Cut::Upstream(at))?;
    }
    Ok(())
}

fn positions(length: usize) -> impl Iterator<Item = usize> {
    (1..length).step_by(length.div_ceil(SPLITS_MAX).max(1))
}
