//! HTTP/2 flow control: a body that is not read blocks only itself.

use std::time::Duration;

use serde_json::json;

use crate::harness::Gateway;
use crate::harness::http2::{self, Http2Client, Http2Upstream, RawUpstream, request};

#[test]
fn bodies_that_an_endpoint_does_not_take_hold_up_no_other_of_their_client() {
    // Never opens its window beyond the initial size.
    let (deaf, echo) = (RawUpstream::start(|_| Vec::new()), Http2Upstream::echo());
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
        // The initial window is filled by now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let response = client.ask(request("POST", "/echo"), b"hello");
        let answer =
            tokio::time::timeout(Duration::from_secs(15), response).await.expect("there is room for it");
        assert_eq!(answer.unwrap().text(), "hello");
    });
}
