use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::net::{TcpListener, TcpStream};

use super::{HealthCall, request, status};
use crate::upstream::health::HealthObservation;

#[test]
fn messages_are_read_and_written_as_protobuf_does() {
    assert_eq!(request(""), b"\0\0\0\0\0");
    assert_eq!(request("a.B"), b"\0\0\0\0\x05\x0a\x03a.B");
    let long = "x".repeat(300);
    assert!(request(&long).starts_with(b"\0\0\0\x01\x2f\x0a\xac\x02x"));
    let table: [(&[u8], Option<u64>); 8] = [
        (b"\0\0\0\0\x02\x08\x01", Some(1)),
        (b"\0\0\0\0\x02\x08\x02", Some(2)),
        (b"\0\0\0\0\0", Some(0)),
        (b"\0\0\0\0\x04\x10\x07\x08\x01", Some(1)),
        (b"\x01\0\0\0\x02\x08\x01", None),
        (b"\0\0\0\0\x03\x08\x01", None),
        (b"\0\0\0\0\x02\x0a\x01", None),
        (b"", None),
    ];
    for (frame, expected) in table {
        assert_eq!(status(frame), expected, "{frame:?}");
    }
}

#[test]
fn no_answer_is_too_strange_to_be_read() {
    let valid = b"\0\0\0\0\x04\x10\x07\x08\x01";
    for at in 0..valid.len() {
        for byte in 0..=255 {
            let mut frame = *valid;
            frame[at] = byte;
            // A truncated frame yields no status.
            assert!(status(&frame[..at]).is_none());
            let _ = status(&frame);
        }
    }
}

/// A health service that serves only `up`, and closes the connection for `broken`.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((call, mut respond))) = connection.accept().await {
                tokio::spawn(async move {
                    assert_eq!(call.uri().path(), "/grpc.health.v1.Health/Check");
                    let request = call.into_body().data().await.unwrap().unwrap();
                    let head = Response::builder().header("content-type", "application/grpc");
                    let service = String::from_utf8_lossy(request.get(7..).unwrap_or_default()).into_owned();
                    match service.as_str() {
                        "broken" => return respond.send_reset(h2::Reason::INTERNAL_ERROR),
                        "unknown" => {
                            let head = head.header("grpc-status", "5").body(()).unwrap();
                            return drop(respond.send_response(head, true).unwrap());
                        }
                        _ => {}
                    }
                    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    let status = if service == "up" { 1 } else { 2 };
                    body.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false).unwrap();
                    let trailers =
                        HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                    body.send_trailers(trailers).unwrap();
                });
            }
        });
    }
}

#[tokio::test]
async fn only_a_service_that_says_it_serves_is_healthy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    let table = [
        ("up", HealthObservation::Status(200)),
        ("down", HealthObservation::Status(503)),
        ("unknown", HealthObservation::Status(503)),
        ("broken", HealthObservation::TcpFailure),
    ];
    for (service, expected) in table {
        let stream = TcpStream::connect(address).await.unwrap();
        let seen = HealthCall::new(&address.to_string(), service, false).make(stream).await;
        assert_eq!(seen, expected, "{service}");
    }
}

#[tokio::test]
async fn non_http2_endpoint_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let seen = HealthCall::new("a", "", false).make(stream).await;
    assert_eq!(seen, HealthObservation::TcpFailure);
}
