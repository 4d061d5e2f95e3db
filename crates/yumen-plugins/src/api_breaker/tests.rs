use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yumen_plugin::{ExchangeOutcome, Plugin};

use crate::testing::PluginBench;

struct Breaker {
    bench: PluginBench,
    plugin: Arc<dyn Plugin>,
}

impl Breaker {
    fn new(settings: Value) -> Breaker {
        let bench = PluginBench::new();
        let plugin = bench.plugin("api-breaker", settings);
        Breaker { bench, plugin }
    }

    /// Waits, then returns the client's status if the upstream would respond with `upstream_status`.
    fn ask(&self, wait_s: u64, upstream_status: u16, path: &str) -> u16 {
        self.bench.host.advance(Duration::from_secs(wait_s));
        let request = format!("GET {path} HTTP/1.1");
        let mut ex = self.bench.exchange(&request);
        let answer = self.bench.admit(std::slice::from_ref(&self.plugin), &mut ex, &request);
        let status = answer.as_ref().map_or(upstream_status, |response| response.status);
        let upstream_status = answer.is_none().then_some(upstream_status);
        self.plugin.log(&ex, &ExchangeOutcome { status, upstream_status, ..ExchangeOutcome::default() });
        status
    }

    #[track_caller]
    fn check(&self, walk: &[(u64, u16, u16)]) {
        for (at, (wait_s, upstream_status, expected)) in walk.iter().enumerate() {
            assert_eq!(self.ask(*wait_s, *upstream_status, "/a"), *expected, "step {at}");
        }
    }
}

#[test]
fn only_what_endpoints_fail_by_breaks() {
    // (status, upstream failure, whether the circuit opens)
    let cases = [(504, None, false), (499, None, false), (504, Some(504), true), (200, Some(504), true)];
    for (status, upstream_failure, breaks) in cases {
        let settings = json!({"break_response_code": 502, "unhealthy": {"http_statuses": [504]}});
        let breaker = Breaker::new(settings);
        let ex = breaker.bench.exchange("GET /a HTTP/1.1");
        let outcome = ExchangeOutcome {
            status,
            attempts: 1,
            fault: "x",
            upstream_failure,
            ..ExchangeOutcome::default()
        };
        (0..3).for_each(|_| breaker.plugin.log(&ex, &outcome));
        assert_eq!(breaker.ask(0, 200, "/a"), if breaks { 502 } else { 200 }, "{outcome:?}");
    }
}

#[test]
fn it_breaks_after_failures_for_longer_and_longer() {
    let breaker = Breaker::new(json!({"break_response_code": 502, "max_breaker_sec": 10}));
    breaker.check(&[
        (0, 500, 500),
        (0, 500, 500),
        (0, 500, 500),
        // Open for exactly two seconds.
        (2, 200, 502),
        (1, 500, 500),
        // The fourth failure extends it to four, from the same begin.
        (1, 200, 502),
        (1, 500, 500),
        (0, 500, 500),
        // Four seconds from here.
        (4, 200, 502),
        (1, 500, 500),
        (3, 200, 502),
        (1, 500, 500),
        (0, 500, 500),
        // Eight seconds.
        (8, 200, 502),
        (1, 500, 500),
        (1, 200, 502),
        (1, 500, 500),
        (0, 500, 500),
        // Ten instead of sixteen seconds.
        (10, 200, 502),
        (1, 200, 200),
    ]);
    assert_eq!(breaker.ask(0, 200, "/other"), 200, "another path is another matter");
}

#[test]
fn successes_end_it() {
    let breaker = Breaker::new(
        json!({"break_response_code": 599, "unhealthy": {"http_statuses": [500, 503], "failures": 2}, "healthy": {"successes": 2, "http_statuses": [200, 206]}}),
    );
    breaker.check(&[
        (0, 500, 500),
        (0, 503, 503),
        (1, 200, 599),
        (2, 200, 200),
        (0, 206, 206),
        // The counts are reset.
        (0, 500, 500),
        (0, 200, 200),
        (0, 503, 503),
        (0, 200, 599),
        (3, 404, 404),
        (0, 502, 502),
    ]);
}

#[test]
fn its_answer_is_a_setting() {
    let breaker = Breaker::new(
        json!({"break_response_code": 418, "unhealthy": {"failures": 1}, "break_response_body": "later",
               "break_response_headers": [{"key": "X-Path", "value": "at $uri"}]}),
    );
    assert_eq!(breaker.ask(0, 500, "/a"), 500);
    let reply = breaker.bench.run(&breaker.plugin, "GET /a HTTP/1.1");
    assert_eq!((reply.status, reply.body.as_str()), (418, "later"));
    assert_eq!(reply.field("X-Path").as_deref(), Some("at /a"));
    assert_eq!(reply.upstream, None);
}

#[test]
fn broken_settings_are_refused() {
    for settings in [
        json!({}),
        json!({"break_response_code": 199}),
        json!({"break_response_code": 500, "max_breaker_sec": 2}),
        json!({"break_response_code": 500, "unhealthy": {"http_statuses": [404]}}),
        json!({"break_response_code": 500, "unhealthy": {"http_statuses": [500, 500]}}),
        json!({"break_response_code": 500, "healthy": {"successes": 0}}),
        json!({"break_response_code": 500, "break_response_headers": [{"key": "a"}]}),
    ] {
        assert!(PluginBench::new().build("api-breaker", settings.clone()).is_err(), "{settings}");
    }
}

#[test]
fn a_break_goes_on_in_the_process_that_takes_over() {
    let settings = json!({"break_response_code": 502, "max_breaker_sec": 10});
    let (old, new) = (Breaker::new(settings.clone()), Breaker::new(settings));
    old.check(&[(0, 500, 500), (0, 500, 500), (0, 500, 500), (1, 200, 502)]);
    new.bench.carry.take_over(&old.bench.carry.export(), old.bench.host.now());
    new.check(&[(1, 200, 502), (2, 500, 500), (1, 200, 502)]);
}
