use super::*;
use yumen_http::parse::{self, HeadLimits};

fn call(fields: &str) -> RequestHead {
    let mut head = RequestHead::default();
    let text = format!("POST /s/m HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).unwrap();
    head
}

#[test]
fn calls_are_known_by_their_content_type() {
    let check = |value: &str, expected: bool| {
        let head = call(&format!("Content-Type: {value}\r\n"));
        assert_eq!(is_grpc(&head), expected, "{value}");
    };
    check("application/grpc", true);
    check("application/grpc+proto", true);
    check("application/grpc;charset=utf-8", true);
    check("application/grpc-web", false);
    check("application/grpcx", false);
    check("application/json", false);
    assert!(!is_grpc(&call("")));
}

#[test]
fn timeouts_have_a_unit() {
    let check = |value: &str, expected: Option<u64>| {
        assert_eq!(timeout_ms(&call(&format!("grpc-timeout: {value}\r\n"))), expected, "{value}");
    };
    check("2H", Some(7_200_000));
    check("3M", Some(180_000));
    check("10S", Some(10_000));
    check("250m", Some(250));
    check("1500u", Some(1));
    check("1n", Some(1));
    check("99999999H", Some(99_999_999 * 3_600_000));
    for bad in ["", "S", "10", "-1S", "1.5S", "123456789S", "1s"] {
        check(bad, None);
    }
}

fn fields(response: &LocalResponse) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    response.fields().iter().map(|(name, value)| (text(name).to_lowercase(), text(value))).collect()
}

#[test]
fn refusals_tell_a_status_and_why() {
    let check = |refused: LocalResponse, fault: Option<FaultKind>, status: &str, message: &str| {
        let http_status = refused.status;
        let answer = refusal(refused, fault);
        let fields = fields(&answer);
        assert_eq!((answer.status, answer.body.len()), (200, 0));
        let expected = [
            ("content-type".to_owned(), "application/grpc".to_owned()),
            ("grpc-status".to_owned(), status.to_owned()),
            ("grpc-message".to_owned(), message.to_owned()),
        ];
        assert_eq!(fields[fields.len() - 3..], expected, "{http_status}");
    };
    check(LocalResponse::message(401, "Missing API key"), None, "16", "Missing API key");
    check(LocalResponse::message(403, "no"), None, "7", "no");
    check(LocalResponse::error_msg(404, "404 Route Not Found"), None, "12", "404 Route Not Found");
    check(LocalResponse::status(503), None, "14", "Service Unavailable");
    check(LocalResponse::status(418), None, "2", "");
    check(LocalResponse::status(400).body("100 %, na\u{ef}ve"), None, "13", "Bad Request");
    check(LocalResponse::message(429, "50%\n"), None, "14", "50%25%0A");
    check(
        LocalResponse::status(504),
        Some(FaultKind::Deadline),
        "4",
        "the deadline of the request has passed",
    );
    check(LocalResponse::status(502), Some(FaultKind::Connect), "14", "the upstream could not be reached");
    let refused = refusal(LocalResponse::status(429).field("Retry-After", "1"), None);
    assert!(fields(&refused).contains(&("retry-after".to_owned(), "1".to_owned())));
}

#[test]
fn statuses_are_read_from_heads_and_trailers() {
    let check = |lines: &str, expected: Option<u8>| {
        assert_eq!(status_of_lines(lines.as_bytes()), expected, "{lines:?}");
        assert_eq!(status_of(&call(lines).fields), expected, "{lines:?}");
    };
    check("grpc-status: 0\r\n", Some(0));
    check("grpc-message: x\r\ngrpc-status: 14\r\n", Some(14));
    check("Grpc-Status: 5\r\n", Some(5));
    check("grpc-status: 200\r\n", Some(NO_STATUS));
    check("grpc-status-x: 1\r\n", None);
    check("x: y\r\n", None);
}

#[test]
fn a_call_that_breaks_off_ends_with_a_status() {
    let lines = abort_trailers(FaultKind::UpstreamClosed);
    assert_eq!(status_of_lines(lines.as_bytes()), Some(14));
}
