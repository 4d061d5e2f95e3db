use super::*;
use crate::plan::{LoadLimits, WeightedUrl};

fn plan(url: &str) -> LoadPlan {
    LoadPlan { request: RequestPlan::get(url), limits: LoadLimits::duration_ms(1), ..LoadPlan::default() }
}

/// The plan for a URL with other requests.
fn with_request(url: &str, change: impl FnOnce(&mut RequestPlan)) -> LoadPlan {
    let mut plan = plan(url);
    change(&mut plan.request);
    plan
}

fn encoded(plan: &LoadPlan) -> String {
    let prepared = PreparedPlan::new(plan).unwrap_or_else(|error| panic!("{error}"));
    String::from_utf8(prepared.targets[0].encoded.to_vec()).unwrap()
}

#[test]
fn requests_are_written_as_they_were_given() {
    let check = |plan: LoadPlan, expected: &str| assert_eq!(encoded(&plan), expected);
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    check(plan("http://127.0.0.1:80"), "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n");
    check(
        with_request("http://127.0.0.1/a?b=c", |request| {
            request.headers =
                vec![field("Connection", "Close"), field("x-UPPER", "a  b"), field("x-UPPER", "")];
        }),
        "GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Close\r\nx-UPPER: a  b\r\nx-UPPER: \r\n\r\n",
    );
    check(
        with_request("http://127.0.0.1/", |request| request.headers = vec![field("hOST", "other")]),
        "GET / HTTP/1.1\r\nhOST: other\r\n\r\n",
    );
    check(
        with_request("http://127.0.0.1/", |request| {
            (request.method, request.body) = ("POST".to_owned(), b"ab".to_vec());
        }),
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nab",
    );
    check(
        with_request("http://127.0.0.1/", |request| {
            (request.method, request.body) = ("PUT".to_owned(), b"0\r\n\r\n".to_vec());
            request.headers = vec![field("Transfer-Encoding", "chunked")];
        }),
        "PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_the_reason() {
    let check = |plan: LoadPlan, reason: &str| {
        let error = PreparedPlan::new(&plan).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{error:?} does not say {reason:?}");
    };
    let good = || plan("http://127.0.0.1/");
    let ramp = |low, high, step| LoadShape::Ramp { low, high, step, calls: 1, connections_per_step: 1 };
    check(LoadPlan { request: RequestPlan::default(), ..good() }, "no URL");
    check(plan("ftp://127.0.0.1/"), "the scheme is ftp");
    check(plan("127.0.0.1"), "the scheme is missing");
    check(LoadPlan { connections: 0, ..good() }, "at least 1");
    check(LoadPlan { connections: 1, threads: 2, ..good() }, "fewer connections than threads");
    check(LoadPlan { limits: LoadLimits::default(), ..good() }, "would not end");
    check(LoadPlan { kind: LoadShape::Open { rate: 0.0 }, ..good() }, "rate must be above 0");
    check(LoadPlan { kind: ramp(20.0, 10.0, 1.0), ..good() }, "0 < low <= high");
    check(LoadPlan { kind: ramp(1.0, 1e9, 1.0), ..good() }, "10 000 steps");
    check(LoadPlan { protocol: LoadProtocol::Http2, kind: ramp(1.0, 2.0, 1.0), ..good() }, "HTTP/1.1");
    check(
        LoadPlan { protocol: LoadProtocol::Http2, new_connection: true, streams: 2, ..good() },
        "several streams",
    );
    let headers = vec![("Connection".to_owned(), "close".to_owned())];
    let request = RequestPlan { headers, ..good().request };
    check(LoadPlan { protocol: LoadProtocol::Http2, request, ..good() }, "no connection fields");
    let weightless = with_request("http://127.0.0.1/", |request| request.urls[0].weight = 0);
    check(weightless, "every weight is 0");
    check(LoadPlan { limits: LoadLimits { warmup_ms: 1, ..LoadLimits::count(1) }, ..good() }, "warm-up");
}

#[test]
fn urls_are_asked_for_by_weight() {
    let url = |path: &str, weight| WeightedUrl { url: format!("http://127.0.0.1{path}"), weight };
    let urls = vec![url("/a", 30), url("/b", 10), url("/never", 0)];
    let prepared = PreparedPlan::new(&with_request("http://127.0.0.1/", |request| request.urls = urls))
        .unwrap_or_else(|e| panic!("{e}"));
    let mut order = prepared.order.clone();
    order.sort_unstable();
    assert_eq!(order, [0, 0, 0, 1], "weights are divided by what they share");
    assert_eq!(prepared.origins.len(), 1, "one host is one origin");
}
