//! Every class of error is provoked and must be counted exactly.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use yumen_load::{LoadLimits, LoadPlan, RequestPlan, StatusRange};

use crate::scripted::{OK, errors, plan, run, serve};

/// A port without a listener. The kernel never assigns port 1 on its own, unlike a port that was just
/// released.
const CLOSED: &str = "127.0.0.1:1";

#[test]
fn refused_connections_are_errors_of_connecting() {
    let summary = run(&LoadPlan { limits: LoadLimits::count(7), ..plan(format!("http://{}/", CLOSED)) });
    assert_eq!(errors(&summary), [("connect", 7)]);
    assert_eq!((summary.totals.requests, summary.totals.responses, summary.connections.opened), (0, 0, 0));
    assert!(summary.errors.examples["connect"].contains("refused"), "{:?}", summary.errors.examples);
}

#[test]
fn connections_nobody_takes_time_out() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // Fill the accept queue until the kernel drops further connection attempts.
    let waiting: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok())
            .collect();
    assert!(!waiting.is_empty());
    let summary = run(&LoadPlan {
        limits: LoadLimits::count(3),
        connect_timeout_ms: 50,
        ..plan(format!("http://{address}/"))
    });
    assert_eq!(errors(&summary), [("connect_timeout", 3)]);
    assert_eq!(summary.connections.opened, 0);
}

#[test]
fn a_handshake_that_is_not_answered_times_out_too() {
    let server = serve(|peer| peer.stay());
    let url = format!("https://{}/", server.address);
    let summary = run(&LoadPlan { limits: LoadLimits::count(3), connect_timeout_ms: 50, ..plan(url) });
    assert_eq!(errors(&summary), [("connect_timeout", 3)]);
    assert_eq!((summary.totals.requests, summary.connections.full_handshakes), (0, 0));
}

#[test]
fn a_handshake_that_fails_is_an_error_of_connecting() {
    let server = serve(|peer| {
        peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.stay();
    });
    let summary =
        run(&LoadPlan { limits: LoadLimits::count(3), ..plan(format!("https://{}/", server.address)) });
    assert_eq!(errors(&summary), [("connect", 3)]);
}

#[test]
fn connections_that_end_before_their_response_are_errors_of_reading() {
    let check = |answer: &'static [u8]| {
        let server = serve(move |peer| {
            peer.read();
            peer.write(answer);
        });
        let summary = run(&LoadPlan { limits: LoadLimits::count(5), ..server.plan() });
        assert_eq!(errors(&summary), [("read", 5)], "{answer:?}");
        assert_eq!((summary.totals.requests, summary.connections.opened), (5, 5));
    };
    check(b"");
    check(b"HTTP/1.1 200 OK\r\nContent-Le");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
}

#[test]
fn requests_that_cannot_be_written_are_errors_of_writing() {
    let server = serve(|peer| {
        peer.read();
        // Closing with unread bytes and no linger sends a reset while the client is still writing.
        SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let body = vec![b'x'; 64 << 20];
    let request = RequestPlan { method: "POST".to_owned(), body, ..server.plan().request };
    let summary = run(&LoadPlan { request, limits: LoadLimits::count(3), ..server.plan() });
    assert_eq!(errors(&summary), [("write", 3)], "{:?}", summary.errors.examples);
}

#[test]
fn responses_that_do_not_come_time_out() {
    let check = |beginning: &'static [u8]| {
        let server = serve(move |peer| {
            peer.read();
            peer.write(beginning);
            peer.stay();
        });
        let summary =
            run(&LoadPlan { limits: LoadLimits::count(4), response_timeout_ms: 50, ..server.plan() });
        assert_eq!(errors(&summary), [("response_timeout", 4)]);
        assert_eq!(
            (summary.totals.requests, summary.connections.opened),
            (4, 4),
            "a late answer must not be the next"
        );
    };
    check(b"");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
}

#[test]
fn statuses_out_of_range_are_errors_and_responses() {
    let server = serve(|peer| {
        while peer.read() {
            peer.write(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n");
            if peer.read() {
                peer.write(OK);
            }
        }
    });
    let summary = run(&LoadPlan { limits: LoadLimits::count(10), ..server.plan() });
    assert_eq!(errors(&summary), [("bad_status", 5)]);
    assert_eq!(summary.totals.responses, 10);
    assert_eq!(summary.statuses.into_iter().collect::<Vec<_>>(), [(200, 5), (503, 5)]);
    let all_good = run(&LoadPlan {
        limits: LoadLimits::count(10),
        good_statuses: StatusRange { first: 200, last: 599 },
        ..server.plan()
    });
    assert_eq!(errors(&all_good), []);
}

#[test]
fn non_http_response_is_a_protocol_error() {
    let check = |answer: &'static [u8]| {
        let server = serve(move |peer| {
            peer.read();
            peer.write(answer);
            peer.stay();
        });
        let summary = run(&LoadPlan { limits: LoadLimits::count(4), ..server.plan() });
        assert_eq!(errors(&summary), [("protocol", 4)], "{answer:?}");
    };
    check(b"SSH-2.0-OpenSSH\r\n");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy");
}

#[test]
fn a_connection_ended_between_requests_is_no_error() {
    let server = serve(|peer| {
        peer.read();
        peer.write(OK);
    });
    // One request per second: the end of the connection is noticed before the next request is due.
    let kind = yumen_load::LoadShape::Open { rate: 1.0 };
    let summary = run(&LoadPlan { kind, limits: LoadLimits::count(3), ..server.plan() });
    assert_eq!(errors(&summary), []);
    assert_eq!((summary.totals.responses, summary.connections.opened), (3, 3));
    assert_eq!(summary.connections.closed_by_server, 2);
}
