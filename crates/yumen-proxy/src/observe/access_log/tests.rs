use yumen_plugin::ExchangeOutcome;
use yumen_plugin::vars::ProcessVars;

use super::{LineEscape, LineTemplate};
use crate::observe::ended_exchange::recorded;

const REQUEST: &[u8] = b"GET //a\"b?q HTTP/1.1\r\nHost: h\r\nUser-Agent: x \"\\\ty\r\n\r\n";

fn check(line: &str, escape: LineEscape, expected: &str) {
    let outcome = ExchangeOutcome {
        status: 502,
        sent_bytes: 110,
        sent_head_bytes: 100,
        received_bytes: 20,
        duration_us: 1_234_567,
        fault: "connect",
        upstream_failure: None,
        attempts: 2,
        ..ExchangeOutcome::default()
    };
    let template = LineTemplate::parse(line, escape).unwrap();
    let out = recorded(REQUEST, &outcome, |ex, outcome, out| template.write(ex, outcome, out));
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_line_is_what_was_written_with_values_in_it() {
    check(
        "$remote_addr \"$request\" ${status}s $body_bytes_sent/$bytes_sent $request_length $request_time $attempts",
        LineEscape::Default,
        "192.0.2.7 \"GET //a\\x22b?q HTTP/1.1\" 502s 10/110 20 1.234 2",
    );
    check("$request_uri $uri", LineEscape::Default, "//a\\x22b?q /a\\x22b");
    check("$response_source:$fault", LineEscape::Default, "gateway:connect");
}

#[test]
fn values_are_escaped_and_missing_ones_have_placeholders() {
    check("$http_user_agent|$http_none", LineEscape::Default, "x \\x22\\x5C\\x09y|-");
    check("{\"a\":\"$http_user_agent\"}", LineEscape::Json, "{\"a\":\"x \\\"\\\\\\ty\"}");
    check("$upstream_response_time,$upstream_status,$route_id", LineEscape::Default, "-,-,-");
    check("[$upstream_response_time$http_none]", LineEscape::Json, "[]");
    check("$http_user_agent$http_none", LineEscape::None, "x \"\\\ty");
}

#[test]
fn host_and_process_are_logged() {
    ProcessVars { hostname: "gw-1".into(), pid: 4711 }.set_for_process();
    check("$pid", LineEscape::Default, "4711");
    check("at $hostname", LineEscape::Default, "at gw-1");
}

#[test]
fn unknown_variables_are_refused() {
    for (line, why) in [
        ("a $remote_adr", "unknown variable $remote_adr"),
        ("a $ b", "a dollar sign without a variable name: \"$ b\""),
        ("${}", "a dollar sign without a variable name: \"${}\""),
    ] {
        assert_eq!(LineTemplate::parse(line, LineEscape::Default).unwrap_err(), why);
    }
}
