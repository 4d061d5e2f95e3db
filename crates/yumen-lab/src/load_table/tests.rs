use std::collections::BTreeMap;

use yumen_load::{
    ConnectionTotals, ErrorTotals, GeneratorCost, GeneratorReport, IdleSummary, LatencyPercentile,
    LoadLatencies, LoadPlan, LoadProtocols, LoadSummary, RampStep, RequestPlan, RequestTotals, TlsFacts,
    TransferTotals, WeightedUrl,
};

use super::*;

fn spread(count: u64, ms: u64) -> LatencySummary {
    let point = |percentile: f64| LatencyPercentile { percentile, ns: (percentile * 10_000.0) as u64 * ms };
    LatencySummary {
        count,
        min_ns: 1,
        mean_ns: 512_345.0 * ms as f64,
        stdev_ns: 99_900.0,
        max_ns: 1_000_000 * ms,
        percentiles: [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999].map(point).to_vec(),
        histogram: String::new(),
    }
}

fn summary(kind: LoadShape) -> LoadSummary {
    let urls = ["http://h/a", "http://h/b"].map(|url| WeightedUrl { url: url.to_owned(), weight: 1 });
    LoadSummary {
        plan: LoadPlan {
            request: RequestPlan { urls: urls.to_vec(), ..RequestPlan::default() },
            kind,
            connections: 100,
            threads: 2,
            ..LoadPlan::default()
        },
        elapsed_ns: 10_000_000_000,
        protocols: LoadProtocols { protocol: "HTTP/1.1".to_owned(), tls: None },
        connections: ConnectionTotals { opened: 100, ..ConnectionTotals::default() },
        totals: RequestTotals { requests: 10_002, responses: 10_000, unanswered: 0 },
        transfer: TransferTotals { bytes_sent: 810_000, bytes_received: 1_810_000 },
        statuses: BTreeMap::from([(200, 9_990), (503, 10)]),
        latencies: LoadLatencies { response: spread(10_000, 1), ..LoadLatencies::default() },
        generator: GeneratorReport {
            cost: GeneratorCost { cpu_user_ns: 60_000_000, cpu_system_ns: 30_000_000, rss_max_bytes: 1 },
            ..GeneratorReport::default()
        },
        ..LoadSummary::default()
    }
}

fn check(summary: &LoadSummary, expected: &str) {
    let found = render(summary);
    assert_eq!(found, expected, "\n{found}");
}

#[test]
fn a_closed_loop_is_a_table() {
    let mut closed = summary(LoadShape::Closed);
    let examples = BTreeMap::from([("read".to_owned(), "reset".to_owned())]);
    closed.errors = ErrorTotals { read: 2, bad_status: 10, examples, ..ErrorTotals::default() };
    check(
        &closed,
        "\
GET http://h/a and 1 more
HTTP/1.1; closed loop, 2 threads, 100 connections, 10.0 s

responses   per second       read     written
   10 000        1 000   181 kB/s   81.0 kB/s

latency                p50      p90      p99    p99.9    p99.99       max     mean     stdev
since it was sent   500 us   900 us   990 us   999 us   1.00 ms   1.00 ms   512 us   99.9 us

connections  100 opened
statuses     200: 9 990, 503: 10
errors       2 read (first: reset)
errors       10 bad status
generator    9.00 us of CPU per response, 1 % of one CPU
",
    );
}

#[test]
fn an_open_loop_says_what_was_missed_and_who_was_late() {
    let mut open = summary(LoadShape::Open { rate: 2000.0 });
    open.latencies.corrected = Some(spread(20_000, 1000));
    open.latencies.schedule_lag = Some(spread(20_000, 2));
    open.totals.unanswered = 10_000;
    open.protocols.tls = Some(TlsFacts {
        version: "TLSv1.3".to_owned(),
        cipher_suite: "TLS13_X".to_owned(),
        certificate_key: Some("RSA 2048".to_owned()),
        ..TlsFacts::default()
    });
    let text = render(&open);
    for line in [
        "HTTP/1.1 over TLSv1.3 (TLS13_X, RSA 2048); open loop at 2 000/s, 2 threads, 100 connections, 10.0 s",
        "since it was due     500 ms    900 ms    990 ms    999 ms    1.00 s    1.00 s    512 ms   99.9 us",
        "since it was sent    500 us    900 us    990 us    999 us   1.00 ms   1.00 ms    512 us   99.9 us",
        "cut off      10 000 unanswered at the end",
        "connections  100 opened, 0 full handshakes, 0 resumed",
        "note: the generator was 1.98 ms late at its own p99: add threads, or free a CPU for it",
        "note: 1 000/s were answered of 2 000/s asked for",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn percentiles_beyond_what_was_recorded_are_left_out() {
    let mut few = summary(LoadShape::Closed);
    few.latencies.response = spread(50, 1);
    let text = render(&few);
    assert!(text.contains("p90 ") && !text.contains("p99"), "{text}");
}

#[test]
fn ramps_and_idle_connections_have_tables_of_their_own() {
    let mut ramp =
        summary(LoadShape::Ramp { low: 20.0, high: 40.0, step: 20.0, calls: 10, connections_per_step: 5000 });
    let step = RampStep {
        demanded_request_rate: 200.0,
        error_percent: 1.5,
        latency: spread(9, 1),
        ..RampStep::default()
    };
    ramp.ramp = vec![step];
    assert!(
        render(&ramp).contains("    200     0.00        0.00   0.00   0.00   500 us   990 us       1.50\n"),
        "{}",
        render(&ramp)
    );
    assert!(
        crate::load_tsv::render(&ramp).ends_with("\n200\t0.0\t0.0\t0.0\t0.0\t0.0\t0.0\t0.512\t0.0\t1.50\n")
    );

    let mut idle = summary(LoadShape::Idle { hold_ms: 1, requests_first: 1, pids: Vec::new() });
    idle.idle = Some(IdleSummary {
        wanted: 100_000,
        held: 99_999,
        lost: 1,
        opening_ns: 4_000_000_000,
        held_ns: 10_000_000_000,
        rss_per_connection_bytes: Some(2_345.0),
        ..IdleSummary::default()
    });
    let text = render(&idle);
    assert!(text.contains("99 999   100 000      1      4.00 s     10.0 s       2.35 kB\n"), "{text}");
}
