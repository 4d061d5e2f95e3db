//! Fields with client addresses and preferences: no panic, and no address or coding that the fields do not
//! contain.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use yumen_http::{HeadLimits, RequestHead, ResponseHead, parse};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::real_ip::RealIpFinder;
use yumen_plugin::{
    BodyChunk, BodyCoder, ClientInfo, ConsumerIndex, Exchange, Now, PluginHost, ResponseCoding,
    ResponseHeadPhase,
};

struct NoHost;

impl PluginHost for NoHost {
    fn sleep(&self, _delay: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        0
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(7);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        Now::default()
    }
}

struct Gzip;

impl ResponseCoding for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn admits(&self, _: &Exchange<'_>, _: &ResponseHead) -> bool {
        true
    }

    fn could_admit(&self, _: &Exchange<'_>, _: &ResponseHead) -> bool {
        true
    }

    fn varies(&self) -> bool {
        true
    }

    fn begin(&self) -> Box<dyn BodyCoder> {
        Box::new(Gzip)
    }
}

impl BodyCoder for Gzip {
    fn code(&mut self, _: &BodyChunk) -> Vec<u8> {
        Vec::new()
    }
}

// A value of `Forwarded` and `X-Forwarded-For`, a line break, a value of `Accept-Encoding`.
fuzz_target!(|data: &[u8]| {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (addresses, accepts) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\nForwarded: ".to_vec();
    bytes.extend_from_slice(addresses);
    bytes.extend_from_slice(b"\r\nX-Forwarded-For: ");
    bytes.extend_from_slice(addresses);
    bytes.extend_from_slice(b"\r\nAccept-Encoding: ");
    bytes.extend_from_slice(accepts);
    bytes.extend_from_slice(b"\r\n\r\n");
    let mut head = RequestHead::default();
    if parse::request(&bytes, 0, &HeadLimits::default(), &mut head).is_err() {
        return;
    }
    let client = ClientInfo {
        peer: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 80).into(),
        tls: None,
        connection_id: 0,
        listener: Default::default(),
        mapped_port: 0,
    };
    let consumers = ConsumerIndex::default();
    let mut ex = Exchange::new(head, &client, Now::default(), &NoHost, &consumers);
    for source in ["http_forwarded", "http_x_forwarded_for"] {
        RealIpFinder::new(source, None, true).apply(&mut ex);
        let is_plausible =
            ex.client.ip == client.peer.ip() || addresses.iter().any(|byte| matches!(byte, b'.' | b':'));
        assert!(is_plausible, "an address out of nothing");
    }
    let mut answer = ResponseHead::default();
    answer.set_status(200);
    ResponseHeadPhase::new(&mut ex).offer_coding(Arc::new(Gzip));
    ex.choose_coding(&mut answer);
    let takes = accepts.to_ascii_lowercase();
    let named = takes.windows(4).any(|word| word == b"gzip") || takes.contains(&b'*');
    assert!(named || !ex.response.edits_body(), "a coding nobody asked for");
});
