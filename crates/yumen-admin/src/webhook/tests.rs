use axum::body::{Body, to_bytes};
use axum::http::Request;
use tower::ServiceExt;

use super::*;

/// A handler that answers with the number of bytes, and knows two words.
fn handler() -> WebhookHandler {
    Arc::new(|body: Bytes| {
        Box::pin(async move {
            match &body[..] {
                b"bad" => WebhookAnswer::Malformed("no review".to_owned()),
                b"busy" => WebhookAnswer::Unavailable("busy".to_owned()),
                _ => WebhookAnswer::Review(json!({ "bytes": body.len() })),
            }
        })
    })
}

async fn check(method: &str, path: &str, body: Vec<u8>, status: u16, expected: &str) {
    let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
    let response = router(handler()).oneshot(request).await.unwrap();
    assert_eq!(response.status().as_u16(), status, "{method} {path}");
    let text = to_bytes(response.into_body(), 10_000).await.unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(expected), "{text:?} lacks {expected:?}");
}

#[tokio::test]
async fn each_path_answers_a_review_of_bounded_size() {
    check("POST", "/networking/v1/ingresses", b"{}".to_vec(), 200, "{\"bytes\":2}").await;
    check("POST", "/", Vec::new(), 200, "{\"bytes\":0}").await;
    check("POST", "/?timeout=10s", b"bad".to_vec(), 400, "no review").await;
    check("POST", "/", b"busy".to_vec(), 503, "busy").await;
    check("GET", "/networking/v1/ingresses", Vec::new(), 405, "POST an AdmissionReview").await;
    check("POST", "/", vec![b' '; BODY_BYTES_MAX], 200, "4194304").await;
    check("POST", "/", vec![b' '; BODY_BYTES_MAX + 1], 413, "invalid request body").await;
}
