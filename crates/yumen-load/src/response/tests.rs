use super::*;

type Read = Result<Option<(u16, bool)>, MalformedResponse>;

fn read(pieces: &[&[u8]], head_request: bool, ends: bool) -> Read {
    let mut reader = ResponseReader::new(head_request);
    for piece in pieces {
        reader.feed(piece)?;
    }
    let done = reader.is_done() || (ends && reader.finish());
    Ok(done.then(|| (reader.status(), reader.keep_alive())))
}

/// Parses the whole, byte by byte, and split at every position, with the same result.
fn check(text: &str, head_request: bool, ends: bool, expected: Read) {
    let bytes = text.as_bytes();
    assert_eq!(read(&[bytes], head_request, ends), expected, "whole: {text:?}");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single, head_request, ends), expected, "byte by byte: {text:?}");
    for at in 0..bytes.len() {
        let (a, b) = bytes.split_at(at);
        assert_eq!(read(&[a, b], head_request, ends), expected, "split at {at}: {text:?}");
    }
}

fn good(text: &str, status: u16, keep_alive: bool) {
    check(text, false, false, Ok(Some((status, keep_alive))));
}

#[test]
fn a_response_ends_where_its_framing_says() {
    good("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, true);
    good("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, true);
    good("HTTP/1.1 204 No Content\r\n\r\n", 204, true);
    good("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 304, true);
    good("HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", 404, true);
    good("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, true);
    good(
        "HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: gzip, chunked\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
        200,
        true,
    );
    good("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, true);
    good("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, true);
    check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, false, Ok(Some((200, true))));
}

#[test]
fn a_response_that_is_not_over_says_so() {
    let unfinished = |text: &str| check(text, false, false, Ok(None));
    unfinished("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok");
    unfinished("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n");
    unfinished("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n");
    unfinished("HTTP/1.1 200 OK\r\n\r\nuntil the end");
    unfinished("HTTP/1.1 100 Continue\r\n\r\n");
    check("HTTP/1.1 200 OK\r\n\r\nuntil the end", false, true, Ok(Some((200, false))));
    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", false, true, Ok(None));
    check("", false, true, Ok(None));
}

#[test]
fn connections_stay_unless_one_side_says_close() {
    let with = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
    good(&with(""), 200, true);
    good(&with("Connection: close\r\n"), 200, false);
    good(&with("Connection: Close\r\n"), 200, false);
    good(&with("connection: foo, CLOSE\r\n"), 200, false);
    good(&with("Connection: closed\r\n"), 200, true);
    good("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, false);
    good("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", 200, true);
}

#[test]
fn invalid_response_is_malformed() {
    let bad = |text: &str, why: MalformedResponse| check(text, false, false, Err(why));
    bad("SSH-2.0-OpenSSH_9.2\r\n", MalformedResponse::StatusLine);
    bad("HTTP/2.0 200 OK\r\n\r\n", MalformedResponse::StatusLine);
    bad("HTTP/1.1 2000 OK\r\n\r\n", MalformedResponse::StatusLine);
    bad("HTTP/1.1 xyz OK\r\n\r\n", MalformedResponse::StatusLine);
    bad("HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", MalformedResponse::ContentLength);
    bad("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", MalformedResponse::ContentLength);
    bad(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        MalformedResponse::ContentLength,
    );
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", MalformedResponse::Chunk);
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx", MalformedResponse::Chunk);
    bad("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxx", MalformedResponse::Surplus);
    bad("HTTP/1.1 101 Switching Protocols\r\n\r\n", MalformedResponse::Switched);
}

#[test]
fn endless_head_is_rejected() {
    let mut reader = ResponseReader::new(false);
    let mut fed = reader.feed(b"HTTP/1.1 200 OK\r\nX: ");
    for _ in 0..20 {
        fed = fed.and_then(|()| reader.feed(&[b'x'; 4096]));
    }
    assert_eq!(fed, Err(MalformedResponse::HeadTooLong));
}
