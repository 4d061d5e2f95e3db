//! Common parts of the integration tests: the gateway as a process, scripted upstreams, raw clients.
//!
//! The tests use only the interfaces of the binary, not the crates.

pub(crate) mod certs;
pub(crate) mod client;
pub(crate) mod etcd;
pub(crate) mod gateway;
pub(crate) mod http2;
pub(crate) mod http3;
pub(crate) mod idp;
pub(crate) mod managers;
pub(crate) mod name_server;
pub(crate) mod nginx;
pub(crate) mod place;
pub(crate) mod port;
pub(crate) mod redis;
pub(crate) mod registry;
pub(crate) mod scratch;
pub(crate) mod slapd;
pub(crate) mod tls;
pub(crate) mod upstream;

use std::time::{Duration, Instant};

pub(crate) use client::{Client, Reply};
pub(crate) use gateway::{Gateway, Options};
pub(crate) use place::Place;
pub(crate) use port::free_port;
pub(crate) use scratch::Scratch;
pub(crate) use upstream::Upstream;

/// Multiplies the bounds of [`StateWait`], because two cores run many tests at once. `YUMEN_TEST_SLOWNESS`
/// overrides it.
const SLOWNESS: u64 = 4;

/// Time between two looks at an awaited state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long a measure must stay the same to count as settled.
const SETTLED: Duration = Duration::from_secs(1);

/// Waits until `done` returns true; fails the test with `what` after `seconds`, times the slowness factor. A
/// wait that exceeds `seconds` itself is reported, so that a regression shows before it fails.
pub(crate) fn eventually(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let wait = StateWait::begin(what, seconds);
    while !done() {
        wait.check_bound();
        std::thread::sleep(POLL_INTERVAL);
    }
    wait.report_slowness();
}

/// [`eventually`] inside a runtime: other tasks run between two looks.
pub(crate) async fn eventually_async(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let wait = StateWait::begin(what, seconds);
    while !done() {
        wait.check_bound();
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    wait.report_slowness();
}

/// A condition for [`eventually`]: the measure is positive and has not changed for [`SETTLED`]. A count of
/// sent bytes settles when every buffer on their path is full, or when all are sent.
pub(crate) fn settles(mut measure: impl FnMut() -> usize) -> impl FnMut() -> bool {
    let (mut last, mut since) = (0, Instant::now());
    move || {
        let now = measure();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        now > 0 && since.elapsed() >= SETTLED
    }
}

/// A wait for a state, with the time that it may take.
struct StateWait<'a> {
    what: &'a str,
    seconds: u64,
    bound: Duration,
    started: Instant,
}

impl<'a> StateWait<'a> {
    fn begin(what: &'a str, seconds: u64) -> StateWait<'a> {
        let configured = std::env::var("YUMEN_TEST_SLOWNESS").ok().and_then(|text| text.parse().ok());
        let bound = Duration::from_secs(seconds * configured.unwrap_or(SLOWNESS));
        StateWait { what, seconds, bound, started: Instant::now() }
    }

    fn check_bound(&self) {
        assert!(self.started.elapsed() < self.bound, "not within {:?}: {}", self.bound, self.what);
    }

    fn report_slowness(&self) {
        let StateWait { what, seconds, .. } = self;
        let elapsed = self.started.elapsed();
        if elapsed > Duration::from_secs(*seconds) {
            let line = format!("slow: {what}: {elapsed:.1?} instead of {seconds} s\n");
            // Written directly, because the test harness captures the output of `eprintln!`.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    }
}

/// Runs a program to its end; returns exit status, standard output and standard error.
pub(crate) fn run(program: &str, args: &[&str]) -> (i32, String, String) {
    let output = std::process::Command::new(program)
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot run ({error}): scripts/deps.sh test"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Incompressible pseudorandom bytes, in which a shift is detectable.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(next).collect()
}
