use std::time::{Duration, Instant};

use yumen_config::resource::UpstreamNode;

use super::ServiceStanding;

/// Event of a service.
enum Event {
    Heard(&'static [&'static str]),
    Failed(&'static str),
    Lapse,
}

use Event::{Failed, Heard, Lapse};

fn nodes(hosts: &[&str]) -> Vec<UpstreamNode> {
    let node = |host: &&str| UpstreamNode {
        host: (*host).to_owned(),
        port: 80,
        weight: 1,
        priority: 0,
        excludes_local: false,
        metadata: None,
    };
    hosts.iter().map(node).collect()
}

/// Runs events at times in seconds from the start. Each has the expected report: hosts and trouble, or an
/// empty text for no report.
fn check(remembered: Option<&[&str]>, events: &[(u64, Event, &str)]) {
    let start = Instant::now();
    let mut standing = ServiceStanding::new(remembered.map(nodes), Duration::from_secs(30), start);
    for (at, (seconds, event, expected)) in events.iter().enumerate() {
        let now = start + Duration::from_secs(*seconds);
        let result = match event {
            Heard(hosts) => standing.answered(nodes(hosts), now),
            Failed(error) => standing.failed(error),
            Lapse => standing.lapse(now),
        };
        let result = result.map(|found| {
            let hosts = found.nodes.map_or("unknown".to_owned(), |nodes| {
                nodes.iter().map(|node| node.host.as_str()).collect::<Vec<_>>().join(" ")
            });
            format!("[{hosts}] {}", found.error.as_deref().unwrap_or("-"))
        });
        assert_eq!(result.unwrap_or_default(), *expected, "event {at} at {seconds} s");
    }
}

#[test]
fn an_unchanged_result_is_reported_once_whatever_its_order() {
    check(
        None,
        &[
            (0, Heard(&["b", "a"]), "[a b] -"),
            (1, Heard(&["a", "b"]), ""),
            (2, Heard(&["a"]), "[a] -"),
            (3, Lapse, ""),
        ],
    );
}

#[test]
fn a_source_that_fails_empties_nothing() {
    check(
        None,
        &[
            (0, Failed("cannot connect"), "[unknown] cannot connect"),
            (1, Heard(&["a", "b"]), "[a b] -"),
            (2, Failed("cannot connect"), "[a b] cannot connect; the last 2 endpoints stay in use"),
            (3, Failed("cannot connect"), ""),
            (4, Heard(&["a", "b"]), "[a b] -"),
        ],
    );
}

#[test]
fn a_source_that_fails_after_an_empty_answer_has_to_say_so_again() {
    let hint = "[a] it has no endpoint any more; the last 1 stay in use for 30 s";
    check(
        None,
        &[
            (0, Heard(&["a"]), "[a] -"),
            (10, Heard(&[]), hint),
            (20, Failed("500"), "[a] 500; the last 1 endpoints stay in use"),
            (40, Lapse, ""),
            (90, Failed("500"), ""),
            (100, Heard(&[]), hint),
            (129, Lapse, ""),
            (130, Lapse, "[] it has no endpoint"),
        ],
    );
}

#[test]
fn an_empty_answer_is_honoured_after_the_hold() {
    let hint = "[a] it has no endpoint any more; the last 1 stay in use for 30 s";
    check(
        None,
        &[
            (0, Heard(&["a"]), "[a] -"),
            (10, Heard(&[]), hint),
            (39, Lapse, ""),
            (39, Heard(&[]), ""),
            (40, Lapse, "[] it has no endpoint"),
            (41, Heard(&[]), ""),
            (42, Heard(&["a"]), "[a] -"),
            (43, Heard(&[]), hint),
            (44, Heard(&["a"]), "[a] -"),
            (90, Lapse, ""),
        ],
    );
    // Without earlier endpoints there is nothing to hold.
    check(None, &[(0, Heard(&[]), "[] it has no endpoint")]);
}

#[test]
fn saved_endpoints_are_used_until_the_source_answers() {
    let waiting = "[a] it has not answered yet; the last 1 endpoints stay in use";
    check(Some(&["a"]), &[(0, Lapse, ""), (1, Lapse, waiting), (2, Heard(&["b"]), "[b] -")]);
    check(Some(&["a"]), &[(0, Heard(&["b"]), "[b] -"), (2, Lapse, "")]);
    check(Some(&["a"]), &[(0, Failed("gone"), "[a] gone; the last 1 endpoints stay in use")]);
    check(
        Some(&["a"]),
        &[
            (0, Heard(&[]), "[a] it has no endpoint any more; the last 1 stay in use for 30 s"),
            (30, Lapse, "[] it has no endpoint"),
        ],
    );
}
