use std::sync::Arc;

use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use serde::de::DeserializeSeed as _;
use serde_json::{Value, json};
use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::proto::{self, ProtoDescriptors};
use yumen_plugin::{BufferedResponse, LocalResponse, ObjectLookup, Plugin, ResponseHead, UpstreamSlot};

use crate::testing::PluginBench;

const SHOP: &str = r#"syntax = "proto3";
package shop;
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Price { int64 units = 1; string currency = 2; }
message Order {
  string item_name = 1;
  int32 count = 2;
  int64 total = 3;
  bool gift = 4;
  Size size = 5;
  Price price = 6;
  repeated string tags = 7;
  map<string, int32> extras = 8;
  google.protobuf.Timestamp at = 9;
  google.protobuf.BoolValue wrapped = 10;
  google.protobuf.Int64Value weight = 11;
  google.protobuf.Struct notes = 12;
}
service Shop {
  rpc Buy (Order) returns (Order);
  rpc Watch (Order) returns (stream Order);
}
"#;

/// An object lookup in which proto `1` is the shop.
struct Shop(Arc<ProtoDescriptors>);

impl ObjectLookup for Shop {
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>> {
        (id == "1").then(|| self.0.clone())
    }

    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn inline_upstream(&self, path: &str, _: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        Err(InvalidSettings::at(path, "there is no room"))
    }
}

fn shop() -> ProtoDescriptors {
    ProtoDescriptors::compile(SHOP).expect("the shop compiles")
}

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(Shop(Arc::new(shop()))));
    bench
}

fn settings(more: Value) -> Value {
    let mut settings = json!({ "proto_id": "1", "service": "shop.Shop", "method": "Buy" });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn order(json: Value) -> Vec<u8> {
    let of = shop().pool().get_message_by_name("shop.Order").expect("the type is there");
    of.deserialize(json).expect("an order").encode_to_vec()
}

/// Checks the message for a request, or the refusal.
fn check_request(request: &str, params: &[(&'static str, &str)], expected: Result<Value, &str>) {
    let bench = bench();
    let plugin = bench.plugin("grpc-transcode", settings(json!({ "deadline": 1500 })));
    let mut ex = bench.exchange(request);
    for (name, value) in params {
        let path = String::from_utf8_lossy(ex.request.path()).into_owned();
        let start = path.find(value).expect("the parameter is in the path");
        ex.route.path_params.push((name, start..start + value.len()));
    }
    let answer = bench.admit(&[plugin], &mut ex, request);
    let expected = match expected {
        Ok(expected) => expected,
        Err(problem) => {
            let answer = answer.expect("it is refused");
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.status == 400 && body.contains(problem), "{request}: {body}");
            return;
        }
    };
    assert!(answer.is_none(), "{request}: {answer:?}");
    let line = [ex.request.method_name(), b" ", ex.request.upstream_target()].concat();
    assert_eq!(line, b"POST /shop.Shop/Buy");
    assert_eq!(ex.request.fields.get("grpc-timeout"), Some(&b"1500m"[..]));
    assert_eq!(ex.request.fields.get("content-type"), Some(&b"application/grpc"[..]));
    let body = ex.body.buffered.expect("a message is sent");
    let of = shop().pool().get_message_by_name("shop.Order").expect("the type is there");
    let sent = DynamicMessage::decode(of.clone(), &body[5..]).expect("an order");
    assert_eq!(body[..5], frame(&body[5..])[..5]);
    assert_eq!(sent, of.deserialize(expected).expect("an order"), "{request}");
}

#[test]
fn a_message_is_made_of_body_query_and_path() {
    let json = |body: &str| format!("POST /buy HTTP/1.1\nContent-Type: application/json\n\n{body}");
    check_request(
        &json(
            r##"{"item_name":"tea","count":2,"total":"#9007199254740993","price":{"units":"#0x10"},"new":1}"##,
        ),
        &[],
        Ok(json!({ "item_name": "tea", "count": 2, "total": "9007199254740993", "price": { "units": 16 } })),
    );
    check_request(
        &json(r#"{"itemName":"tea","size":"LARGE"}"#),
        &[],
        Ok(json!({ "itemName": "tea", "size": 1 })),
    );
    check_request(
        "GET /buy?item_name=a%20b&count=3&gift=true&size=1&tags=x&tags=y&price.currency=EUR&no=1 HTTP/1.1",
        &[],
        Ok(json!({ "itemName": "a b", "count": 3, "gift": true, "size": 1, "tags": ["x", "y"],
            "price": { "currency": "EUR" } })),
    );
    check_request(
        "GET /buy?wrapped=1&weight=%230x10&notes=%7B%22a%22:1%7D&extras=%7B%22b%22:2%7D&price=%7B%22units%22:3%7D HTTP/1.1",
        &[],
        Ok(
            json!({ "wrapped": true, "weight": 16, "notes": { "a": 1 }, "extras": { "b": 2 }, "price": { "units": 3 } }),
        ),
    );
    check_request(
        "GET /buy?at=2026-01-02T03:04:05Z HTTP/1.1",
        &[],
        Ok(json!({ "at": "2026-01-02T03:04:05Z" })),
    );
    check_request(
        "POST /buy HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\nitem_name=tea&count=4",
        &[],
        Ok(json!({ "itemName": "tea", "count": 4 })),
    );
    check_request("POST /buy?count=5 HTTP/1.1", &[], Ok(json!({ "count": 5 })));
    check_request(
        "GET /buy/tea/7?count=5&item_name=other HTTP/1.1",
        &[("item_name", "tea"), ("count", "7"), ("unknown", "buy")],
        Ok(json!({ "itemName": "tea", "count": 7 })),
    );
    check_request(
        "PUT /buy/tea HTTP/1.1\nContent-Type: application/json\n\n{\"itemName\":\"milk\",\"count\":1}",
        &[("item_name", "tea")],
        Ok(json!({ "itemName": "tea", "count": 1 })),
    );
    check_request("GET /buy HTTP/1.1", &[], Ok(json!({})));
    check_request(&json("[1]"), &[], Err("the body is not a JSON object"));
    check_request(&json("{"), &[], Err("the body is not JSON: EOF"));
    check_request(&json(r#"{"count":"many"}"#), &[], Err("the request is no Order"));
    check_request(&json(r#"{"count":1}]"#), &[], Err("the body is not JSON: trailing"));
    check_request(
        &json(r#"{"itemName":"a","item_name":"b"}"#),
        &[],
        Err("the field item_name is there twice"),
    );
    check_request("GET /buy?gift=perhaps HTTP/1.1", &[], Err("the request is no Order"));
    check_request("GET /buy?size=HUGE HTTP/1.1", &[], Err("expected a value of shop.Size"));
    check_request(&json(r#"{"size":"HUGE"}"#), &[], Err("expected a value of shop.Size"));
}

#[test]
fn errors_are_short() {
    let bench = bench();
    let plugin = bench.plugin("grpc-transcode", settings(json!({})));
    let long = "x".repeat(1 << 20);
    let request = format!("POST /buy HTTP/1.1\nContent-Type: application/json\n\n{{\"count\":\"{long}\"}}");
    let reply = bench.run(&plugin, &request);
    assert!(reply.status == 400 && reply.body.len() < 400, "{}", reply.body.len());
    let refused = bench.run(&plugin, &format!("GET /buy?count={} HTTP/1.1", &long[..2000]));
    assert!(refused.status == 400 && refused.body.len() < 400, "{}", refused.body.len());
}

#[test]
fn a_call_is_made_once_where_two_rules_would() {
    let bench = bench();
    let twice = [
        bench.plugin("grpc-transcode", settings(json!({}))),
        bench.plugin("grpc-transcode", settings(json!({}))),
    ];
    let with_web = [twice[0].clone(), bench.plugin("grpc-web", json!({}))];
    for plugins in [twice, with_web] {
        let request = "POST /buy HTTP/1.1\nContent-Type: application/json\n\n{\"count\":7}";
        let mut ex = bench.exchange(request);
        assert!(bench.admit(&plugins, &mut ex, request).is_none());
        assert_eq!(ex.body.buffered.as_deref(), Some(&frame(&order(json!({ "count": 7 })))[..]));
    }
}

#[test]
fn a_body_is_read_up_to_a_bound() {
    let bench = bench();
    let plugin = bench.plugin("grpc-transcode", settings(json!({ "max_req_body_size": 11 })));
    let request = |body: &str| format!("POST /buy HTTP/1.1\nContent-Type: application/json\n\n{body}");
    assert_eq!(bench.run(&plugin, &request(r#"{"count":12}"#)).status, 413);
    assert!(bench.run(&plugin, &request(r#"{"count":1}"#)).upstream.is_some());
}

/// The translated response for a response of the service, from head lines, body and trailer lines.
fn answered(more: Value, head: &str, body: &[u8], trailers: &str) -> LocalResponse {
    let bench = bench();
    let plugin: Arc<dyn Plugin> = bench.plugin("grpc-transcode", settings(more));
    let request = "GET /buy HTTP/1.1";
    let mut ex = bench.exchange(request);
    assert!(bench.admit(&[plugin], &mut ex, request).is_none());
    let mut answer = ResponseHead::default();
    answer.set_status(200);
    for line in head.lines() {
        let (name, value) = line.split_once(": ").expect("a field");
        match name {
            "status" => answer.set_status(value.parse().expect("a status")),
            name => answer.fields.add(name, value.as_bytes()),
        }
    }
    let translate = ex.response.translator.take().expect("the answer is translated");
    translate.translate(BufferedResponse { head: &answer, body, trailers: trailers.as_bytes() })
}

fn body(response: &LocalResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap_or(Value::Null)
}

fn field<'r>(response: &'r LocalResponse, name: &str) -> Option<&'r [u8]> {
    response.fields().get(name)
}

#[test]
fn messages_become_json_of_the_form_that_is_asked_for() {
    let sent = frame(&order(json!({ "itemName": "tea", "total": "-9007199254740993", "size": 1 })));
    let check = |options: Value, expected: Value| {
        let response = answered(options.clone(), "X-Mine: 1\nTrailer: a", &sent, "grpc-status: 0\r\n");
        assert_eq!((response.status, body(&response)), (200, expected), "{options}");
        assert_eq!(field(&response, "content-type"), Some(&b"application/json"[..]));
        assert_eq!(field(&response, "x-mine"), Some(&b"1"[..]));
        assert_eq!(field(&response, "trailer"), None);
    };
    let full = json!({ "item_name": "tea", "count": 0, "total": -9007199254740993_i64, "gift": false, "size": "LARGE",
        "tags": [], "extras": {} });
    check(json!({}), full);
    let with = |options: &[&str]| json!({ "pb_option": options });
    let page = |total: Value, size: Value| json!({ "item_name": "tea", "total": total, "size": size });
    check(with(&["no_default_values"]), page(json!(-9007199254740993_i64), json!("LARGE")));
    check(
        with(&["no_default_values", "enum_as_value", "int64_as_string"]),
        page(json!("#-9007199254740993"), json!(1)),
    );
    check(
        with(&["no_default_values", "int64_as_hexstring"]),
        page(json!("#-0x20000000000001"), json!("LARGE")),
    );
}

#[test]
fn failures_have_a_status_of_http() {
    let check = |head: &str, trailers: &str, status: u16| {
        let response = answered(json!({}), head, b"", trailers);
        assert_eq!((response.status, &*response.body), (status, &b""[..]), "{head} {trailers}");
    };
    for (status_text, status) in
        [(1, 499), (2, 500), (3, 400), (4, 504), (5, 404), (6, 409), (7, 403), (8, 429), (9, 400)]
    {
        check(&format!("grpc-status: {status_text}"), "", status);
        check("", &format!("grpc-status: {status_text}\r\n"), status);
    }
    for (status_text, status) in
        [(10, 409), (11, 400), (12, 501), (13, 500), (14, 503), (15, 500), (16, 401), (99, 599)]
    {
        check(&format!("grpc-status: {status_text}"), "", status);
    }
    let response = answered(json!({}), "Content-Type: text/html\nstatus: 503", b"busy", "");
    assert_eq!((response.status, &*response.body), (503, &b"busy"[..]), "it is no service that answers");
}

#[test]
fn malformed_response_is_reported() {
    let check = |sent: &[u8], trailers: &str, problem: &str| {
        let response = answered(json!({}), "", sent, trailers);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert!(response.status == 502 && text.contains(problem), "{text}");
    };
    let ok = "grpc-status: 0\r\n";
    check(b"", ok, "it has no message");
    check(b"\0\0\0\0\x05a", ok, "its message breaks off");
    check(b"\0\0\0\0\0\0\0\0\0\0", ok, "it has more than one message");
    check(b"\x01\0\0\0\0", ok, "its message is compressed");
    check(b"\0\0\0\0\x01\xff", ok, "the upstream's answer is malformed");
    check(b"\0\0\0\0\0", "", "grpc-status is missing");
}

#[test]
fn an_answer_whose_json_is_too_long_is_refused() {
    let sent = frame(&order(json!({ "itemName": "tea" })));
    let answer_within = |bytes_max: usize| {
        answered(json!({ "max_resp_body_size": bytes_max }), "", &sent, "grpc-status: 0\r\n")
    };
    assert_eq!(answer_within(200).status, 200);
    let refused = answer_within(50);
    let problem =
        "the upstream's answer cannot be told: its JSON is longer than the 50 bytes of max_resp_body_size";
    assert_eq!((refused.status, body(&refused)), (502, json!({ "error_msg": problem })));
}

#[test]
fn status_is_in_the_body_if_configured() {
    use base64::Engine as _;
    let plain = answered(
        json!({ "show_status_in_body": true }),
        "",
        b"",
        "grpc-status: 5\r\ngrpc-message: no%20tea\r\n",
    );
    assert_eq!(body(&plain), json!({ "error": { "code": 5, "message": "no tea" } }));
    assert_eq!(field(&plain, "grpc-message"), Some(&b"no%20tea"[..]));
    let price = shop().pool().get_message_by_name("shop.Price").expect("the type is there");
    let price = price.deserialize(json!({ "units": 3 })).expect("a price").encode_to_vec();
    let mut any = DynamicMessage::new(
        proto::status().parent_pool().get_message_by_name("google.protobuf.Any").expect("any is there"),
    );
    any.set_field_by_name("type_url", prost_reflect::Value::String("type/shop.Price".to_owned()));
    any.set_field_by_name("value", prost_reflect::Value::Bytes(price.into()));
    let mut status = DynamicMessage::new(proto::status());
    status.set_field_by_name("code", prost_reflect::Value::I32(5));
    status.set_field_by_name("message", prost_reflect::Value::String("gone".to_owned()));
    let any = prost_reflect::Value::Message(any);
    status.set_field_by_name("details", prost_reflect::Value::List(vec![any]));
    let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.encode_to_vec());
    let trailers = format!("grpc-status: 5\r\ngrpc-status-details-bin: {text}\r\n");
    let body_with = |more: Value| body(&answered(more, "", b"", &trailers));
    assert_eq!(
        body_with(json!({ "show_status_in_body": true })),
        json!({ "error": { "code": 5, "message": "gone", "details": [{ "type_url": "type/shop.Price", "value": "CAM=" }] } })
    );
    assert_eq!(
        body_with(json!({ "show_status_in_body": true, "status_detail_type": "shop.Price" })),
        json!({ "error": { "code": 5, "message": "gone", "details": [{ "units": 3, "currency": "" }] } })
    );
}

#[test]
fn the_details_of_a_status_are_in_all_no_longer_than_an_answer_may_be() {
    use base64::Engine as _;
    // Each detail is empty and becomes 28 bytes of JSON.
    let status = [&[8, 5, 0x12, 1, b'x'][..], &[0x1a, 0].repeat(20_000)].concat();
    let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status);
    let trailers = format!("grpc-status: 5\r\ngrpc-status-details-bin: {text}\r\n");
    let error_within = |bytes_max: usize| {
        let settings = json!({
            "show_status_in_body": true, "status_detail_type": "shop.Price", "max_resp_body_size": bytes_max,
        });
        body(&answered(settings, "", b"", &trailers))
    };
    let details = vec![json!({ "currency": "", "units": 0 }); 20_000];
    assert_eq!(error_within(1 << 20), json!({ "error": { "code": 5, "message": "x", "details": details } }));
    // Code and message remain.
    assert_eq!(error_within(100_000), json!({ "error": { "code": 5, "message": "x" } }));
}

#[test]
fn unknown_proto_names_are_refused_with_the_known_ones() {
    let check = |more: Value, path: &str, message: &str| {
        let refused = bench().build("grpc-transcode", settings(more)).err().expect("it is refused");
        assert_eq!((refused.path.as_str(), refused.message.as_str()), (path, message));
    };
    check(json!({ "proto_id": 2 }), "proto_id", "proto 2 does not exist or is broken");
    check(json!({ "service": "Shop" }), "service", "proto 1 has no service \"Shop\"; it has: shop.Shop");
    check(
        json!({ "method": "Sell" }),
        "method",
        "service shop.Shop has no method \"Sell\"; it has: Buy, Watch",
    );
    check(
        json!({ "method": "Watch" }),
        "method",
        "Watch is a stream; only calls of one message each way are JSON",
    );
    check(
        json!({ "status_detail_type": "a.B" }),
        "status_detail_type",
        "proto 1 has no message type \"a.B\"",
    );
    assert!(
        PluginBench::new().build("grpc-transcode", settings(json!({ "proto_id": 2 }))).is_ok(),
        "judged alone"
    );
}

/// A shop with HTTP rules.
const RULED: &str = r#"syntax = "proto3";
package shop;
import "google/api/annotations.proto";
message Price { int64 units = 1; string currency = 2; }
message Order { string id = 1; int32 count = 2; Price price = 3; repeated Price more = 4; }
service Shop {
  rpc Get (Order) returns (Order) {
    option (google.api.http) = {
      get: "/v1/orders/{id}"
      additional_bindings { get: "/v1/{id=old/*}" }
    };
  }
  rpc Buy (Order) returns (Order) { option (google.api.http) = { post: "/v1/orders" body: "*" }; }
  rpc Reprice (Order) returns (Order) {
    option (google.api.http) = { put: "/v1/orders/{id}/price" body: "price" response_body: "price" };
  }
  rpc Any (Order) returns (Order) { option (google.api.http) = { custom { kind: "*" path: "/v1/orders/{id}:any" } }; }
  rpc Watch (Order) returns (stream Order) { option (google.api.http) = { get: "/v1/watch" }; }
  rpc Hidden (Order) returns (Order);
}
"#;

fn ruled(content: &str) -> (PluginBench, Value) {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(Shop(Arc::new(ProtoDescriptors::compile(content).expect("it compiles")))));
    (bench, json!({ "proto_id": "1", "service": "shop.Shop" }))
}

/// Checks the target and message of a call, or the refusal.
fn check_ruled(request: &str, expected: Result<(&str, Value), (u16, &str)>) {
    let (bench, settings) = ruled(RULED);
    let plugin = bench.plugin("grpc-transcode", settings);
    let mut ex = bench.exchange(request);
    let answer = bench.admit(&[plugin], &mut ex, request);
    let (method, expected) = match expected {
        Ok(expected) => expected,
        Err((status, part)) => {
            let answer = answer.expect("it is refused");
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.status == status && body.contains(part), "{request}: {} {body}", answer.status);
            return;
        }
    };
    assert!(answer.is_none(), "{request}: {answer:?}");
    assert_eq!(String::from_utf8_lossy(ex.request.upstream_target()), format!("/shop.Shop/{method}"));
    let of = ProtoDescriptors::compile(RULED)
        .unwrap()
        .pool()
        .get_message_by_name("shop.Order")
        .expect("the type is there");
    let sent = DynamicMessage::decode(of.clone(), &ex.body.buffered.expect("a message is sent")[5..])
        .expect("an order");
    assert_eq!(sent, of.deserialize(expected).expect("an order"), "{request}");
}

#[test]
fn methods_are_called_as_their_options_say() {
    check_ruled(
        "GET /v1/orders/a%20b?count=2&id=no HTTP/1.1",
        Ok(("Get", json!({ "id": "a b", "count": 2 }))),
    );
    check_ruled("GET /v1/old/7 HTTP/1.1", Ok(("Get", json!({ "id": "old/7" }))));
    check_ruled(
        "POST /v1/orders?count=9 HTTP/1.1\n\n{\"id\":\"x\",\"count\":1}",
        Ok(("Buy", json!({ "id": "x", "count": 1 }))),
    );
    check_ruled("POST /v1/orders HTTP/1.1", Ok(("Buy", json!({}))));
    check_ruled(
        "PUT /v1/orders/7/price?count=3&price.units=5 HTTP/1.1\n\n{\"currency\":\"EUR\"}",
        Ok(("Reprice", json!({ "id": "7", "count": 3, "price": { "currency": "EUR" } }))),
    );
    check_ruled("PUT /v1/orders/7/price HTTP/1.1\n\nnull", Ok(("Reprice", json!({ "id": "7" }))));
    check_ruled("PURGE /v1/orders/7:any HTTP/1.1", Ok(("Any", json!({ "id": "7" }))));
    check_ruled("POST /v1/orders HTTP/1.1\n\n[1]", Err((400, "the body is not a JSON object")));
    check_ruled("POST /v1/orders HTTP/1.1\n\n{", Err((400, "the body is not JSON: EOF")));
    check_ruled("GET /v1/none HTTP/1.1", Err((404, "no method of shop.Shop is called by this path")));
    check_ruled("GET /v1/watch HTTP/1.1", Err((404, "no method of shop.Shop")));
    check_ruled("PATCH /v1/orders HTTP/1.1", Err((405, "called by this method")));
}

#[test]
fn one_field_may_be_all_of_an_answer() {
    let (bench, settings) = ruled(RULED);
    let plugin = bench.plugin("grpc-transcode", settings);
    let request = "PUT /v1/orders/7/price HTTP/1.1\n\n{}";
    let mut ex = bench.exchange(request);
    assert!(bench.admit(&[plugin], &mut ex, request).is_none());
    let of = ProtoDescriptors::compile(RULED)
        .unwrap()
        .pool()
        .get_message_by_name("shop.Order")
        .expect("the type is there");
    let order = json!({ "id": "7", "price": { "units": 5, "currency": "EUR" } });
    let sent = frame(&of.deserialize(order).expect("an order").encode_to_vec());
    let mut head = ResponseHead::default();
    head.set_status(200);
    let answer = BufferedResponse { head: &head, body: &sent, trailers: b"grpc-status: 0\r\n" };
    let answer = ex.response.translator.expect("the answer is translated").translate(answer);
    assert_eq!(body(&answer), json!({ "units": 5, "currency": "EUR" }));
}

#[test]
fn options_that_cannot_be_followed_are_refused() {
    let check = |option: &str, path: &str, message: &str| {
        let content = format!(
            "syntax = \"proto3\"; package shop; import \"google/api/annotations.proto\";\n\
             message Order {{ string id = 1; }}\n\
             service Shop {{ rpc Get (Order) returns (Order) {{ {option} }} }}"
        );
        let (bench, settings) = ruled(&content);
        let refused = bench.build("grpc-transcode", settings).err().expect("it is refused");
        assert_eq!((refused.path.as_str(), refused.message.as_str()), (path, message));
    };
    let http = |rule: &str| format!("option (google.api.http) = {{ {rule} }};");
    let none = "property \"method\" is required: no unary method of shop.Shop has a google.api.http option";
    check("", "method", none);
    check(
        &http("get: \"/v1/{no}\""),
        "service",
        "method Get of shop.Shop: its path names \"no\", which Order has not",
    );
    check(
        &http("post: \"/v1\" body: \"no\""),
        "service",
        "method Get of shop.Shop: its body is \"no\", which Order has not",
    );
    check(
        &http("get: \"v1\""),
        "service",
        "method Get of shop.Shop: its path \"v1\" does not begin with a slash",
    );
}

#[test]
fn whatever_a_service_sends_is_answered() {
    let valid = frame(&order(json!({ "itemName": "tea", "price": { "units": 7 }, "tags": ["a"] })));
    for at in 0..valid.len() {
        for flip in [0x01, 0x08, 0x80, 0xff] {
            let mut sent = valid.clone();
            sent[at] ^= flip;
            let whole = answered(json!({}), "", &sent, "grpc-status: 0\r\n").status;
            let cut = answered(json!({}), "", &sent[..at], "grpc-status: 0\r\n").status;
            assert!([200, 502].contains(&whole) && cut == 502, "byte {at} ^ {flip}: {whole}, {cut}");
        }
    }
}

/// Calls a method with a recursive message on a quarter of a worker's stack.
fn nested_call(request: String) -> Option<LocalResponse> {
    let work = move || {
        let content = "syntax = \"proto3\"; package shop; message Node { string name = 1; Node next = 2; }\n\
                       service Shop { rpc Buy (Node) returns (Node); }";
        let (bench, mut settings) = ruled(content);
        settings["method"] = json!("Buy");
        let plugin = bench.plugin("grpc-transcode", settings);
        let mut ex = bench.exchange(&request);
        bench.admit(&[plugin], &mut ex, &request)
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).expect("a thread");
    thread.join().expect("it ends")
}

#[test]
fn a_name_leads_into_messages_up_to_a_bound() {
    let name = |depth: usize| "next.".repeat(depth) + "name=q";
    let form = "POST /buy HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\n";
    assert!(nested_call(format!("GET /buy?{} HTTP/1.1", name(100))).is_none());
    assert!(nested_call(format!("{form}{}", name(100))).is_none());
    for request in [format!("GET /buy?{} HTTP/1.1", name(101)), format!("{form}{}", name(200_000))] {
        let refused = nested_call(request).expect("it is refused");
        let body = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.status, 400);
        assert!(body.contains("...\\\" leads into messages more than 100 deep"), "{body}");
    }
}

/// The response with a message that contains an `Any`, on half of a worker's stack.
fn answer_of_any(sent: Vec<u8>) -> LocalResponse {
    let work = move || {
        let content = "syntax = \"proto3\"; package shop; import \"google/protobuf/any.proto\";\n\
                       message Order { google.protobuf.Any any = 1; Order next = 2; }\n\
                       service Shop { rpc Buy (Order) returns (Order); }";
        let (bench, mut settings) = ruled(content);
        settings["method"] = json!("Buy");
        let plugin = bench.plugin("grpc-transcode", settings);
        let request = "GET /buy HTTP/1.1";
        let mut ex = bench.exchange(request);
        assert!(bench.admit(&[plugin], &mut ex, request).is_none());
        let mut head = ResponseHead::default();
        head.set_status(200);
        let translate = ex.response.translator.take().expect("the answer is translated");
        translate.translate(BufferedResponse { head: &head, body: &sent, trailers: b"grpc-status: 0\r\n" })
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(work).expect("a thread");
    thread.join().expect("it ends")
}

/// The encoding of a length-delimited field.
fn length_delimited(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost_reflect::prost::encoding::encode_varint(value.len() as u64, &mut field);
    [field, value.to_vec()].concat()
}

#[test]
fn an_answer_nests_up_to_a_bound() {
    let any = |value: &[u8]| {
        [length_delimited(1, b"type.googleapis.com/google.protobuf.Any"), length_delimited(2, value)].concat()
    };
    let sent = |depth: usize| {
        let innermost = length_delimited(1, b"type.googleapis.com/shop.Order");
        let nested = (0..depth).fold(innermost, |inner, _| any(&inner));
        frame(&length_delimited(1, &nested))
    };
    let deep = answer_of_any(sent(100));
    assert_eq!(deep.status, 200, "{}", String::from_utf8_lossy(&deep.body));
    let refused = answer_of_any(sent(3000));
    let body = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 502 && body.contains("more than 256 levels deep"), "{} {body}", refused.status);
    let nexts = |depth: usize| frame(&(0..depth).fold(Vec::new(), |inner, _| length_delimited(2, &inner)));
    assert_eq!(answer_of_any(nexts(100)).status, 200);
    assert_eq!(answer_of_any(nexts(5000)).status, 502);
    // Nested groups with the unknown number 5.
    assert_eq!(answer_of_any(frame(&[5 << 3 | 3].repeat(100_000))).status, 502);
}
