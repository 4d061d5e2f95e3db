use super::answer::{CannedBody, CannedResponse};
use super::behaviour::{BehaviourState, BehaviourVerdict, LatencyShape, StallSchedule, UpstreamBehaviour};
use super::request::{ReceivedRequest, UnreadBody};

const MS: u64 = 1_000_000;

#[test]
fn paths_name_the_size_of_their_body() {
    let check = |path: &str, status: u16, length: u64| {
        let answer = CannedResponse::of(path, 7);
        assert_eq!((answer.status, answer.body.length()), (status, length), "{path}");
    };
    check("/", 200, 7);
    check("/anything/else", 200, 7);
    check("/0", 200, 0);
    check("/1k", 200, 1024);
    check("/100k?x=1", 200, 102_400);
    check("/2m", 200, 2 << 20);
    check("/bytes/12345", 200, 12_345);
    check("/bytes/1k", 200, 1024);
    check("/bytes/99999999999999999999", 200, 7);
    check("/status/503", 503, 0);
    check("/status/99", 400, 35);
    check("/hello", 200, 25);
}

#[test]
fn the_ping_of_the_first_report_has_its_size() {
    let answer = CannedResponse::of("/ping", 0);
    assert_eq!(answer.body, CannedBody::Bytes("ok".into()));
    assert_eq!(answer.head(false).len() + 2, 181);
}

#[test]
fn a_stall_holds_what_falls_into_it_until_its_end() {
    let check = |stalls: StallSchedule, at_ms: u64, expected_ms: u64| {
        assert_eq!(stalls.leave_at_ns(at_ms * MS), expected_ms * MS, "{stalls:?} at {at_ms}");
    };
    let once = StallSchedule { first_ms: 100, every_ms: 0, for_ms: 50 };
    check(once, 99, 99);
    check(once, 100, 150);
    check(once, 149, 150);
    check(once, 150, 150);
    check(once, 1100, 1100);
    let often = StallSchedule { every_ms: 1000, ..once };
    check(often, 120, 150);
    check(often, 1120, 1150);
    check(often, 1150, 1150);
}

#[test]
fn latencies_keep_within_their_shape() {
    let state = |latency| BehaviourState::new(UpstreamBehaviour { latency, ..UpstreamBehaviour::default() });
    let mut random = 1;
    assert_eq!(state(LatencyShape::None).answer_at_ns(5, &mut random), 5);
    assert_eq!(state(LatencyShape::Fixed(7)).answer_at_ns(5, &mut random), 12);
    let uniform = state(LatencyShape::Uniform(1000, 2000));
    let drawn: Vec<u64> = (0..20_000).map(|_| uniform.answer_at_ns(0, &mut random)).collect();
    assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1000), Some(&2000)));
    let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
    assert!((mean - 1500.0).abs() < 10.0, "{mean}");
}

#[test]
fn errors_have_exactly_their_share() {
    for (share, expected) in [(0.0, 0), (0.01, 10), (0.5, 500), (1.0, 1000)] {
        let state = BehaviourState::new(UpstreamBehaviour {
            error_share: share,
            error_status: 503,
            ..UpstreamBehaviour::default()
        });
        let errors = (0..1000).filter(|_| state.verdict(0) == BehaviourVerdict::Error(503)).count();
        assert_eq!(errors, expected, "share {share}");
    }
}

#[test]
fn a_rate_limit_lets_its_rate_through() {
    let state =
        BehaviourState::new(UpstreamBehaviour { rate_limit: Some(100.0), ..UpstreamBehaviour::default() });
    let good = |moments: std::ops::Range<u64>| {
        moments.filter(|ms| state.verdict(1_000 * MS + ms * MS) == BehaviourVerdict::Good).count()
    };
    // One request per millisecond for ten seconds: the rate, plus the burst of 100 ms.
    assert_eq!(good(0..10_000), 1010);
}

#[test]
fn requests_are_read_with_their_bodies() {
    let check = |text: &str, path: &str, keep_alive: bool, body: UnreadBody| {
        let (request, length) = ReceivedRequest::read(text.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.keep_alive, request.body), (path, keep_alive, body));
        assert_eq!(length, text.len());
    };
    check("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "/a", true, UnreadBody::Done);
    check("GET /a HTTP/1.1\r\nConnection: Close\r\n\r\n", "/a", false, UnreadBody::Done);
    check("GET /a HTTP/1.0\r\n\r\n", "/a", false, UnreadBody::Done);
    check("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\n", "/a", true, UnreadBody::Sized(3));
    assert_eq!(ReceivedRequest::read(b"GET / HTTP/1.1\r\n"), Ok(None));
    assert!(ReceivedRequest::read(b"nonsense\r\n\r\n").is_err());
    let (mut request, _) =
        ReceivedRequest::read(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap().unwrap();
    assert_eq!(request.body.feed(b"3\r\nabc\r\n0\r\n\r\nGET"), Ok(13), "what follows is not the body's");
    assert_eq!(request.body, UnreadBody::Done);
}
