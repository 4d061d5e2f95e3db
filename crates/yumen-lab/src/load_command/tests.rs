use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    load: LoadArgs,
}

fn read(line: &str) -> Result<LoadPlan> {
    plan(&Line::try_parse_from(std::iter::once("load").chain(line.split(' ')))?.load)
}

/// Checks that the options change only `change` in the default plan of a URL.
fn check(options: &str, change: impl Fn(&mut LoadPlan)) {
    let mut expected = read("http://h/").unwrap();
    change(&mut expected);
    let found = read(&format!("http://h/ {options}")).unwrap_or_else(|error| panic!("{options}: {error:#}"));
    assert_eq!(found, expected, "{options}");
}

#[test]
fn a_bare_url_is_a_closed_loop_of_ten_seconds() {
    let plan = read("http://h/").unwrap();
    assert_eq!(
        (plan.kind, plan.limits.duration_ms, plan.limits.count),
        (LoadShape::Closed, Some(10_000), None)
    );
    assert_eq!((plan.connections, plan.threads, plan.new_connection), (10, 1, false));
}

#[test]
fn options_become_the_plan() {
    check("-c 1k -t 8 -d 60s", |plan| {
        (plan.connections, plan.threads, plan.limits.duration_ms) = (1000, 8, Some(60_000));
    });
    check("-n 10k", |plan| (plan.limits.count, plan.limits.duration_ms) = (Some(10_000), None));
    check("-R 30k", |plan| plan.kind = LoadShape::Open { rate: 30_000.0 });
    check("--http2 -m 8", |plan| (plan.protocol, plan.streams) = (LoadProtocol::Http2, 8));
    check("-H Connection:Close", |plan| {
        plan.request.headers = vec![("Connection".to_owned(), "Close".to_owned())]
    });
    check("-X POST -b ab", |plan| {
        let request = &mut plan.request;
        (request.method, request.body, request.body_bytes) = ("POST".to_owned(), b"ab".to_vec(), 2);
    });
    check("--good-statuses 200", |plan| plan.good_statuses = StatusRange { first: 200, last: 200 });
    check("--tls-version 1.2 --no-resumption", |plan| {
        (plan.tls.version, plan.tls.resumption) = (Some(LoadTlsVersion::V12), false);
    });
    check("--source 127.0.0.2-127.0.0.3 --source ::1", |plan| {
        plan.sources = ["127.0.0.2", "127.0.0.3", "::1"].map(|text| text.parse().unwrap()).to_vec();
    });
    check("--ramp 20:200:20 --calls 5 --connections-per-step 1k", |plan| {
        plan.kind =
            LoadShape::Ramp { low: 20.0, high: 200.0, step: 20.0, calls: 5, connections_per_step: 1000 };
        plan.limits.duration_ms = None;
    });
    check("--idle 3s --requests-first 0 --pid 7 --pid 8", |plan| {
        plan.kind = LoadShape::Idle { hold_ms: 3000, requests_first: 0, pids: vec![7, 8] };
        plan.limits.duration_ms = None;
    });
    check("3@http://u:p@h/x 4@nothing", |plan| {
        let url = |weight, url: &str| WeightedUrl { url: url.to_owned(), weight };
        plan.request.urls.extend([url(3, "http://u:p@h/x"), url(4, "nothing")]);
    });
}

#[test]
fn options_that_make_no_sense_are_refused_with_the_option() {
    let check = |options: &str, reason: &str| {
        let error = read(&format!("http://h/ {options}")).err().map(|error| format!("{error:#}"));
        let error = error.unwrap_or_else(|| panic!("{options} is taken"));
        assert!(error.contains(reason), "{options}: {error:?} does not say {reason:?}");
    };
    check("--ramp 20:200", "three numbers");
    check("--ramp a:b:c", "--ramp a:b:c");
    check("--ramp 1:2:1 -R 5", "cannot be used with");
    check("-H nothing", "'Name: value' is expected");
    check("--good-statuses 300-200", "--good-statuses 300-200");
    check("--source 127.0.0.9-127.0.0.1", "a range rises");
    check("--source nowhere", "nowhere is not an address");
    check("-d 5x", "ms, s, m and h are allowed");
    check("-m 4", "--http2");
    check("--body-file /does/not/exist", "--body-file /does/not/exist");
}
