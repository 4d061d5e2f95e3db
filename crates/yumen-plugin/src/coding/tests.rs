//! Selection of a coding, and the resulting head.

use std::sync::Arc;

use yumen_http::{HeadLimits, Method, ResponseHead, parse};

use super::{BodyCoder, ResponseCoding};
use crate::test_exchange::with_exchange;
use crate::{BodyChunk, Exchange};

/// A coding that writes its name before each chunk.
struct Named(&'static str);

impl ResponseCoding for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn admits(&self, _: &Exchange<'_>, head: &ResponseHead) -> bool {
        !head.fields.has(&format!("X-No-{}", self.0))
    }

    fn could_admit(&self, ex: &Exchange<'_>, not_modified: &ResponseHead) -> bool {
        self.admits(ex, not_modified)
    }

    fn varies(&self) -> bool {
        true
    }

    fn begin(&self) -> Box<dyn BodyCoder> {
        Box::new(Named(self.0))
    }
}

impl BodyCoder for Named {
    fn code(&mut self, chunk: &BodyChunk) -> Vec<u8> {
        [self.0.as_bytes(), b":", &chunk.data].concat()
    }
}

fn head(fields: &str) -> ResponseHead {
    let status = if fields.starts_with("HTTP/") { "" } else { "HTTP/1.1 200 OK\n" };
    let text = format!("{status}{fields}\n\n").replace("\n\n\n", "\n\n").replace('\n', "\r\n");
    let mut head = ResponseHead::default();
    parse::response(text.as_bytes(), 0, &HeadLimits::default(), Method::Get, &mut head).expect("a head");
    head
}

/// Offers `zstd`, `br` and `gzip` in this order; returns the coding of the response.
fn settled(request: &str, head: &mut ResponseHead) -> Option<String> {
    with_exchange(false, request, |ex| {
        for name in ["zstd", "br", "gzip"] {
            ex.offer_coding(Arc::new(Named(name)));
        }
        ex.choose_coding(head);
        let coded =
            ex.code(BodyChunk { data: b"body".to_vec(), last: true, pause: false, ..BodyChunk::default() });
        assert_eq!(ex.response.edits_body(), coded != b"body");
        let name = coded.strip_suffix(b":body")?;
        assert_eq!(head.fields.get("Content-Encoding"), Some(name));
        Some(String::from_utf8(name.to_vec()).expect("text"))
    })
}

#[test]
fn the_coding_the_client_prefers_wins() {
    for (accepts, expected) in [
        ("gzip", Some("gzip")),
        ("GZIP", Some("gzip")),
        ("gzip, br", Some("br")),
        ("gzip, br, zstd", Some("zstd")),
        ("gzip;q=1.0, br;q=0.8", Some("gzip")),
        ("gzip ; q=0.5 , br ;q=0.501", Some("br")),
        ("br;q=0, gzip;q=0.001", Some("gzip")),
        ("*", Some("zstd")),
        ("zstd;q=0, *;q=0.5", Some("br")),
        ("gzip;q=0.4, *;q=0", Some("gzip")),
        ("identity;q=0.5, gzip;q=0.4", None),
        ("identity, gzip", Some("gzip")),
        ("gzip;q=0", None),
        ("gzip;q=2", None),
        ("gzip;q=x", None),
        ("deflate, compress", None),
        ("identity", None),
        ("", None),
        ("gzipped", None),
    ] {
        let request = format!("GET / HTTP/1.1\nHost: x\nAccept-Encoding: {accepts}");
        assert_eq!(settled(&request, &mut head("")).as_deref(), expected, "{accepts:?}");
    }
    assert_eq!(settled("GET / HTTP/1.1\nHost: x", &mut head("")), None);
    let two_lines = "GET / HTTP/1.1\nHost: x\nAccept-Encoding: br;q=0.1\nAccept-Encoding: gzip";
    assert_eq!(settled(two_lines, &mut head("")).as_deref(), Some("gzip"));
}

#[test]
fn uncodable_responses_are_unchanged() {
    for (answer, expected) in [
        ("Cache-Control: public, No-Transform", None),
        ("Cache-Control: no-transformation", Some("gzip")),
        ("Content-Encoding: br", None),
        ("Content-Encoding: identity", Some("gzip")),
        ("Content-Range: bytes 0-1/5", None),
        ("HTTP/1.1 206 Partial Content", None),
        ("HTTP/1.1 204 No Content", None),
        ("HTTP/1.1 304 Not Modified", None),
        ("HTTP/1.1 500 Oops", Some("gzip")),
        ("X-No-gzip: 1", None),
    ] {
        let request = "GET / HTTP/1.1\nHost: x\nAccept-Encoding: gzip";
        assert_eq!(settled(request, &mut head(answer)).as_deref(), expected, "{answer:?}");
    }
}

#[test]
fn the_head_tells_of_the_coded_body() {
    let request = "GET / HTTP/1.1\nHost: x\nAccept-Encoding: br";
    for (answer, name, expected) in [
        ("ETag: \"a\"", "ETag", Some("W/\"a\"")),
        ("ETag: W/\"a\"", "ETag", Some("W/\"a\"")),
        ("Accept-Ranges: bytes", "Accept-Ranges", None),
        ("Content-Digest: sha-256=:x:", "Content-Digest", None),
        ("Content-Length: 4", "Content-Length", None),
        ("Vary: Origin", "Vary", Some("Origin|Accept-Encoding")),
        ("Vary: Origin, ACCEPT-encoding", "Vary", Some("Origin, ACCEPT-encoding")),
        ("Vary: *", "Vary", Some("*")),
        ("Last-Modified: then", "Last-Modified", Some("then")),
    ] {
        let mut head = head(answer);
        settled(request, &mut head);
        let values: Vec<_> = head.fields.all(name).map(String::from_utf8_lossy).collect();
        assert_eq!((!values.is_empty()).then(|| values.join("|")).as_deref(), expected, "{answer:?}");
    }
}

#[test]
fn not_modified_response_has_the_same_vary() {
    let request = "GET / HTTP/1.1\nHost: x\nAccept-Encoding: gzip";
    for (answer, expected) in [
        ("HTTP/1.1 304 Not Modified", Some("Accept-Encoding")),
        ("HTTP/1.1 304 Not Modified\nVary: accept-encoding", Some("accept-encoding")),
        ("HTTP/1.1 304 Not Modified\nCache-Control: no-transform", None),
        ("HTTP/1.1 304 Not Modified\nContent-Encoding: br", None),
        ("HTTP/1.1 304 Not Modified\nX-No-zstd: 1\nX-No-br: 1\nX-No-gzip: 1", None),
        ("HTTP/1.1 204 No Content", None),
    ] {
        let mut head = head(answer);
        assert_eq!(settled(request, &mut head), None);
        let vary = head.fields.get("Vary").map(String::from_utf8_lossy);
        assert_eq!(vary.as_deref(), expected, "{answer:?}");
    }
}

#[test]
fn an_answer_that_could_have_been_coded_says_so() {
    for request in ["GET / HTTP/1.1\nHost: x", "HEAD / HTTP/1.1\nHost: x\nAccept-Encoding: gzip"] {
        let mut head = head("Content-Length: 4\nETag: \"a\"");
        assert_eq!(settled(request, &mut head), None);
        assert_eq!(head.fields.get("Vary"), Some(&b"Accept-Encoding"[..]), "{request}");
        assert_eq!(head.fields.get("Content-Length"), Some(&b"4"[..]), "{request}");
        assert_eq!(head.fields.get("ETag"), Some(&b"\"a\""[..]), "{request}");
    }
}
