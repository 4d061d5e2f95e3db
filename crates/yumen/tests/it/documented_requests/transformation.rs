//! Pages of plugins that change requests or responses.

use super::{check, check_plugins, gateway};

#[test]
fn routes_of_the_transformation_pages_are_accepted() {
    check_plugins(&[
        (
            "proxy-rewrite",
            r#"{"uri":"/b","host":"a.example","method":"POST","headers":{"set":{"X-A":"1","X-C":"$consumer_name"},"add":{"X-B":"2"},"remove":["User-Agent"]}}"#,
        ),
        ("proxy-rewrite", r#"{"regex_uri":["^/t/(.*)/(.*)","/$1/$2"],"use_real_request_uri_unsafe":false}"#),
        (
            "response-rewrite",
            r#"{"body":"{\"code\":\"ok\"}","headers":{"set":{"X-Id":3,"X-Addr":"$balancer_ip:$balancer_port"}},"vars":[["status","==",200]]}"#,
        ),
        (
            "response-rewrite",
            r#"{"filters":[{"regex":"X-Amzn","scope":"global","replace":"X","options":"jo"}],"headers":{"add":["a: b"],"remove":["c"]},"status_code":200}"#,
        ),
        ("response-rewrite", r#"{"body_base64":true,"body":"aGk="}"#),
        ("redirect", r#"{"uri":"/d.html","ret_code":301}"#),
        ("redirect", r#"{"http_to_https":true}"#),
        ("redirect", r#"{"regex_uri":["^/a/(.*)","/b/$1"],"append_query_string":true}"#),
        (
            "mocking",
            r#"{"response_example":"{\"a\":1}","response_status":201,"response_headers":{"X-Id":"1"},"content_type":"application/json","delay":1}"#,
        ),
        (
            "mocking",
            r#"{"response_schema":{"type":"object","properties":{"id":{"type":"string","example":"a"},"n":{"type":"integer"}}}}"#,
        ),
        (
            "fault-injection",
            r#"{"abort":{"http_status":404,"body":"no","headers":{"X-A":"$remote_addr"},"vars":[[["arg_n","==","j"]]]},"delay":{"duration":3}}"#,
        ),
        ("echo", r#"{"before_body":"a"}"#),
        ("gzip", r#"{"buffers":{"number":8},"types":"*","comp_level":5}"#),
        ("brotli", "{}"),
        ("degraphql", r#"{"query":"{ a }","variables":["v"],"operation_name":"o"}"#),
        (
            "body-transformer",
            r#"{"request":{"template":"t","input_format":"json"},"response":{"template":"t","input_format":"xml"}}"#,
        ),
        (
            "exit-transformer",
            r#"{"functions":["return (function(code, body, header) return code, body, header end)(...)"]}"#,
        ),
        ("proxy-buffering", r#"{"disable_proxy_buffering":true}"#),
        ("grpc-web", "{}"),
    ]);
}

#[test]
fn protos_and_routes_that_use_them_are_accepted() {
    let gateway = gateway();
    let proto = r#"{"content":"syntax = \"proto3\"; package e; service S { rpc Echo (M) returns (M); } message M { string msg = 1; }"}"#;
    let route = r#"{"uri":"/echo","plugins":{"grpc-transcode":{"proto_id":"e","service":"e.S","method":"Echo","pb_option":["int64_as_string"],"show_status_in_body":true,"status_detail_type":"e.M"}},"upstream":{"scheme":"grpc","nodes":{"127.0.0.1:50051":1}}}"#;
    check(
        &gateway,
        &[
            ("PUT protos/e", proto, 201, r#"{"/key":"/apisix/protos/e"}"#),
            ("PUT routes/e", route, 201, ""),
            (
                "DELETE protos/e",
                "",
                400,
                r#"{"/error_msg":"can not delete this proto, route [e] is still using it now"}"#,
            ),
            ("DELETE routes/e", "", 200, ""),
            ("DELETE protos/e", "", 200, r#"{"/deleted":"1","/key":"/apisix/protos/e"}"#),
            ("PUT protos/bad", r#"{"content":"message"}"#, 400, ""),
        ],
    );
}
