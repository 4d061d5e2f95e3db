//! HTTP/2 flow control: a body that is not read blocks only itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::http2::{self, DATA, Http2Client, Http2Upstream, RawUpstream, request};
use crate::harness::{Gateway, eventually_async, settles};

#[test]
fn bodies_that_an_endpoint_does_not_take_hold_up_no_other_of_their_client() {
    // Never opens its window beyond the initial size.
    let received = Arc::<AtomicUsize>::default();
    let counted = received.clone();
    let deaf = RawUpstream::start(move |frame| {
        if frame.kind == DATA {
            counted.fetch_add(frame.payload.len(), Ordering::AcqRel);
        }
        Vec::new()
    });
    let echo = Http2Upstream::echo();
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/deaf", "upstream": deaf.alone() },
        { "id": "2", "uri": "/echo", "upstream": echo.alone() },
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut uploads = Vec::new();
        for _ in 0..90 {
            let (answer, mut stream) = client.begin(request("POST", "/deaf")).await;
            let sending = tokio::spawn(async move {
                let _ = http2::send(&mut stream, &[b'x'; 65_535], false).await;
                stream
            });
            uploads.push((answer, sending));
        }
        let progress = || {
            let sent = uploads.iter().filter(|(_, sending)| sending.is_finished()).count();
            received.load(Ordering::Acquire) + sent
        };
        eventually_async("the windows of the endpoint are full", 20, settles(progress)).await;
        let response = client.ask(request("POST", "/echo"), b"hello");
        let answer =
            tokio::time::timeout(Duration::from_secs(15), response).await.expect("there is room for it");
        assert_eq!(answer.unwrap().text(), "hello");
    });
}
