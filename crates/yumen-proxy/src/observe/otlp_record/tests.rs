use yumen_base::ProtobufWriter;
use yumen_plugin::{Exchange, ExchangeOutcome, ExchangeTrace, StreamInfo};
use yumen_test::{ReceivedRecord, received_records};

use crate::observe::ended_exchange::recorded;

const REQUEST: &[u8] = b"GET /a%20b?token=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: x\xff\r\n\r\n";

/// The record of an exchange that `change` has changed.
fn record(status: u16, fault: &str, change: impl FnOnce(&mut Exchange<'_>)) -> ReceivedRecord {
    let outcome = ExchangeOutcome {
        status,
        received_bytes: 20,
        sent_bytes: 110,
        duration_us: 1500,
        upstream_us: Some(900),
        endpoint: Some("10.0.0.1:80".parse().unwrap()),
        attempts: 2,
        fault,
        ..ExchangeOutcome::default()
    };
    let records = recorded(REQUEST, &outcome, |ex, outcome, out| {
        change(ex);
        super::write(ex, outcome, out);
    });
    let mut body = Vec::new();
    // ExportLogsServiceRequest and ResourceLogs, with a resource without attributes.
    ProtobufWriter::new(&mut body).message(1, |of_resource| {
        of_resource.message(1, |_| ());
        of_resource.message(2, |scope| scope.encoded(&records));
    });
    let mut received = received_records(&body);
    assert_eq!(received.len(), 1);
    received.remove(0)
}

#[test]
fn a_request_becomes_a_record_with_its_fields_as_attributes() {
    let found = record(502, "connect", |_| ());
    assert_eq!(found.body, "GET /a%20b?token=1 502");
    assert_eq!((found.severity, &*found.severity_text), (17, "ERROR"));
    assert_eq!(found.time_ns, 1_700_000_000_123_000_000);
    assert_eq!(found.observed_ns - found.time_ns, 1_500_000);
    assert_eq!((&*found.trace_id, &*found.span_id, found.flags), ("", "", 0));
    let expected = [
        ("client.address", "192.0.2.7"),
        ("http.request.method", "GET"),
        ("http.response.status_code", "502"),
        ("server.address", "shop.example"),
        ("url.path", "/a%20b"),
        ("url.query", "token=1"),
        ("url.scheme", "http"),
        // Receivers refuse a message with invalid UTF-8.
        ("user_agent.original", "x\u{fffd}"),
        ("yumen.attempts", "2"),
        ("yumen.duration_us", "1500"),
        ("yumen.endpoint", "10.0.0.1:80"),
        ("yumen.fault", "connect"),
        ("yumen.received_bytes", "20"),
        ("yumen.sent_bytes", "110"),
        ("yumen.source", "gateway"),
        ("yumen.upstream_us", "900"),
    ];
    let attributes: Vec<_> = found.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(attributes, expected);
}

#[test]
fn a_record_names_the_span_of_its_request() {
    let trace = ExchangeTrace {
        plugin: "opentelemetry",
        trace_id: [0xab; 16],
        trace_id_bytes: 16,
        span_id: [0xcd; 8],
        is_sampled: true,
        sets_variables: false,
    };
    let found = record(200, "", |ex| ex.leave(trace));
    assert_eq!((found.trace_id, found.span_id, found.flags), ("ab".repeat(16), "cd".repeat(8), 1));
    assert_eq!((found.severity, &*found.severity_text), (9, "INFO"));
}

#[test]
fn a_stream_becomes_a_record_without_a_request() {
    let found = record(200, "", |ex| {
        ex.client.stream = Some(StreamInfo { protocol: "TCP", ..StreamInfo::default() })
    });
    assert_eq!(found.body, "TCP 127.0.0.1:80 200");
    assert_eq!(found.observed_ns, found.time_ns);
    assert_eq!(
        (&*found.attributes["network.protocol.name"], &*found.attributes["yumen.status"]),
        ("TCP", "200")
    );
    assert!(!found.attributes.contains_key("url.path"), "{found:?}");
}
