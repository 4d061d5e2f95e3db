use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use super::{OperatorClient, OperatorTarget};

/// Serves one request with `answer`; returns the address, and a handle that yields the request.
fn gateway(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut request).unwrap() > 0, "{request}");
        }
        let length = request.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        reader.take(length.unwrap_or(0)).read_to_string(&mut request).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        request
    });
    (address, serving)
}

#[test]
fn a_request_leaves_as_asked_for() {
    let (address, serving) = gateway("HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}");
    let client = OperatorClient::new(
        OperatorTarget::url(&format!("http://{address}/behind/")).unwrap(),
        Some("the key".into()),
    )
    .unwrap();
    let body = Bytes::from_static(b"{\"uri\":\"/a\"}");
    let answer = client.send(&Method::PUT, "/routes/1?ttl=5", &[("X-Reason", "why")], Some(body)).unwrap();
    let request = serving.join().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("PUT /behind/routes/1?ttl=5 HTTP/1.1"));
    let mut fields: Vec<&str> = lines.collect();
    fields.sort_unstable();
    let host = format!("host: {address}");
    let expected = ["connection: close", "content-length: 12", &*host, "x-api-key: the key", "x-reason: why"];
    assert_eq!((fields, body), (expected.to_vec(), "{\"uri\":\"/a\"}"));
    assert_eq!(
        (answer.status, &answer.headers["x-a"], answer.json().unwrap()),
        (201, &"b".parse().unwrap(), json!({}))
    );
}

#[test]
fn a_download_is_written_as_it_comes_and_counted() {
    let (address, serving) =
        gateway("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let mut file = Vec::new();
    let client =
        OperatorClient::new(OperatorTarget::url(&format!("http://{address}")).unwrap(), None).unwrap();
    assert_eq!(client.download("/backup", &mut file).unwrap(), 5);
    assert_eq!(file, b"abcde");
    serving.join().unwrap();
}

#[test]
fn a_download_that_fails_or_ends_early_is_an_error() {
    for (answer, expected) in [
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 19\r\n\r\n{\"error_msg\":\"no\"}\n",
            "the gateway answered 403: no",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc", "the answer ends early"),
    ] {
        let (address, serving) = gateway(answer);
        let client =
            OperatorClient::new(OperatorTarget::url(&format!("http://{address}")).unwrap(), None).unwrap();
        let error = client.download("/backup", &mut Vec::new()).expect_err(expected);
        serving.join().unwrap();
        let message = format!("{error:#}");
        assert!(message.contains(expected), "{message}");
    }
}

fn check_document(answer: &'static str, expected: &str) {
    let (address, serving) = gateway(answer);
    let client =
        OperatorClient::new(OperatorTarget::url(&format!("http://{address}")).unwrap(), None).unwrap();
    let answer = client.get("/").unwrap();
    serving.join().unwrap();
    let error = answer.json().expect_err(expected);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_response_without_a_document_is_described() {
    check_document(
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 23\r\n\r\n{\"error_msg\":\"no key\"}\n",
        "no key: give an admin key by --key or YUMEN_ADMIN_KEY, or use the admin socket: --data-dir DIR on the machine of the gateway needs no key",
    );
    check_document(
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 51\r\n\r\n\
         {\"error_msg\":\"no\",\"description\":\"a viewer may not\"}",
        "no: a viewer may not: give an admin key by --key or YUMEN_ADMIN_KEY, or use the admin socket: --data-dir DIR on the machine of the gateway needs no key",
    );
    check_document(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        "the gateway answered 502: no reason given",
    );
    check_document(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx",
        "the answer is no JSON but text/html: is that address a listener of yumen?",
    );
}

#[test]
fn a_torn_answer_is_an_error_that_names_the_request() {
    let (address, serving) = gateway("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{");
    let client =
        OperatorClient::new(OperatorTarget::url(&format!("http://{address}")).unwrap(), None).unwrap();
    let error = client.get("/a").expect_err("the answer is torn");
    serving.join().unwrap();
    assert!(format!("{error:#}").contains(&format!("GET http://{address}/a")), "{error:#}");
}

#[test]
fn only_http_addresses_are_taken() {
    for bad in ["", "127.0.0.1:9180", "ftp://a", "http://", "/a", "http://a b"] {
        assert!(OperatorTarget::url(bad).is_err(), "{bad}");
    }
}
