//! Local responses.

use serde_json::json;

use super::LocalResponse;

fn check(response: &LocalResponse, status: u16, body: &str) {
    assert_eq!(response.status, status);
    assert_eq!(std::str::from_utf8(&response.body).unwrap(), body);
    let fields: Vec<_> = response.fields().iter().collect();
    assert_eq!(fields, [(&b"Content-Type"[..], &b"application/json"[..])]);
}

#[test]
fn json_answers_end_with_a_line_end_and_say_what_they_are() {
    check(&LocalResponse::message(401, "Missing \"key\""), 401, "{\"message\":\"Missing \\\"key\\\"\"}\n");
    check(
        &LocalResponse::error_msg(404, "404 Route Not Found"),
        404,
        "{\"error_msg\":\"404 Route Not Found\"}\n",
    );
    check(&LocalResponse::json(200, &json!({"b": 1, "a": [2]})), 200, "{\"b\":1,\"a\":[2]}\n");
}

#[test]
fn fields_keep_their_order_and_the_body_can_be_replaced() {
    let response = LocalResponse::status(429).field("A", "1").field("B", String::from("2")).field("A", "3");
    let names: Vec<&[u8]> = response.fields().iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"A", b"B", b"A"]);
    assert!(response.body.is_empty());
    let response = response.body(&b"x"[..]).body(b"yz".to_vec());
    assert_eq!((&*response.body, response.status), (&b"yz"[..], 429));
}
