use std::sync::Arc;

use base64::Engine as _;
use serde_json::json;
use yumen_plugin::{BodyChunk, Plugin, ResponseBodyPhase, ResponseHead, ResponseHeadPhase};

use super::{decode, encoding, trailers_frame};
use crate::testing::PluginBench;

fn bench() -> (PluginBench, Arc<dyn Plugin>) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("grpc-web", json!({}));
    (bench, plugin)
}

#[test]
fn only_media_types_of_grpc_web_are_taken() {
    let table: [(&str, Option<(bool, &str)>); 9] = [
        ("application/grpc-web", Some((false, ""))),
        ("application/grpc-web+proto", Some((false, "+proto"))),
        ("Application/gRPC-Web-Text+proto; charset=utf-8", Some((true, "+proto"))),
        ("application/grpc-web-text", Some((true, ""))),
        ("application/grpc-web+json", Some((false, "+json"))),
        ("application/grpc", None),
        ("application/grpc-webs", None),
        ("application/grpc-web-texts", None),
        ("", None),
    ];
    for (content_type, expected) in table {
        let expected = expected.map(|(is_text, format)| (is_text, format.as_bytes()));
        assert_eq!(encoding(content_type.as_bytes()), expected, "{content_type}");
    }
}

#[test]
fn base64_may_be_padded_in_the_middle() {
    let table: [(&str, Option<&str>); 7] = [
        ("", Some("")),
        ("YWJj", Some("abc")),
        ("YQ==YmM=", Some("abc")),
        ("YQ==YWJj\n", Some("aabc")),
        ("YWI", Some("ab")),
        ("Y", None),
        ("Y*Jj", None),
    ];
    for (text, expected) in table {
        assert_eq!(decode(text.as_bytes()), expected.map(|text| text.as_bytes().to_vec()), "{text}");
    }
}

#[test]
fn trailers_are_a_frame_of_lines_in_lower_case() {
    let frame = trailers_frame(b"Grpc-Status: 5\r\ngrpc-message: No\r\n");
    assert_eq!(frame, [b"\x80\0\0\0\x22", &b"grpc-status: 5\r\ngrpc-message: No\r\n"[..]].concat());
    assert!(
        trailers_frame(b"").ends_with(b"grpc-status:2\r\ngrpc-message:upstream grpc status not received\r\n")
    );
}

/// Checks path, content type and body of the upstream request.
fn check_request(pattern: &'static str, request: &str, expected: Result<(&str, &str, &[u8]), u16>) {
    let uris = [Box::from(pattern)];
    let (bench, plugin) = bench();
    let mut ex = bench.exchange(request);
    (ex.route.uris, ex.route.uri_index) = (&uris, 0);
    let answer = bench.admit(&[plugin], &mut ex, request);
    let went = answer.map_or_else(
        || {
            let content_type = ex.request.fields.get("content-type").unwrap_or_default();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Ok((
                text(ex.request.upstream_target()),
                text(content_type),
                ex.body.buffered.as_deref().unwrap_or_default().to_vec(),
            ))
        },
        |response| Err(response.status),
    );
    let expected = expected.map(|(path, kind, body)| (path.to_owned(), kind.to_owned(), body.to_vec()));
    assert_eq!(went, expected, "{pattern} {request}");
}

#[test]
fn a_call_goes_on_as_one_of_grpc() {
    let call = |kind: &str, path: &str, body: &str| {
        format!("POST {path} HTTP/1.1\nContent-Type: application/{kind}\n\n{body}")
    };
    check_request(
        "/*",
        &call("grpc-web+proto", "/a.B/C", "x"),
        Ok(("/a.B/C", "application/grpc+proto", b"")),
    );
    check_request("/*", &call("grpc-web", "/a.B/C", "x"), Ok(("/a.B/C", "application/grpc", b"")));
    check_request("/*", &call("grpc-web-text", "/a.B/C", "eHg="), Ok(("/a.B/C", "application/grpc", b"xx")));
    check_request("/*", &call("grpc-web-text", "/a.B/C", "e"), Err(400));
    check_request("/web/*", &call("grpc-web", "/web/a.B/C", ""), Ok(("/a.B/C", "application/grpc", b"")));
    check_request("/a.B/*", &call("grpc-web", "/a.B/C", ""), Ok(("/a.B/C", "application/grpc", b"")));
    check_request("/a.*", &call("grpc-web", "/a.B/C", ""), Ok(("/a.B/C", "application/grpc", b"")));
    check_request("/a.B/C", &call("grpc-web", "/a.B/C", ""), Ok(("/a.B/C", "application/grpc", b"")));
    check_request("/*", &call("json", "/a.B/C", ""), Err(400));
    check_request("/*", "GET /a.B/C HTTP/1.1\nContent-Type: application/grpc-web", Err(400));
    check_request("/*", "OPTIONS /a.B/C HTTP/1.1", Err(204));
}

#[test]
fn a_body_larger_than_the_bound_is_refused() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("grpc-web", json!({"max_req_body_size": 3}));
    let request = "POST /a.B/C HTTP/1.1\nContent-Type: application/grpc-web-text\n\nYWJj";
    assert_eq!(bench.run(&plugin, request).status, 413);
}

#[test]
fn preflight_lists_allowed_fields() {
    let (bench, plugin) = bench();
    let reply = bench.run(&plugin, "OPTIONS /a.B/C HTTP/1.1\nOrigin: http://a");
    assert_eq!(reply.status, 204);
    let field = |name| reply.field(name).unwrap_or_default();
    assert_eq!(field("access-control-allow-origin"), "*");
    assert_eq!(field("access-control-allow-methods"), "POST");
    assert_eq!(field("access-control-allow-headers"), "content-type,x-grpc-web,x-user-agent");
    assert_eq!(field("access-control-expose-headers"), "grpc-message,grpc-status");
    let plugin = bench.plugin("grpc-web", json!({"cors_allow_headers": "x-mine"}));
    let reply = bench.run(&plugin, "OPTIONS /a.B/C HTTP/1.1");
    assert_eq!(reply.field("access-control-allow-headers").as_deref(), Some("x-mine"));
}

#[test]
fn cors_fields_are_merged_with_those_of_grpc_web() {
    let check = |method: &str, head: &[(&str, &str)], name: &str, expected: &str| {
        let (bench, plugin) = bench();
        let mut ex = bench.exchange(&format!("{method} /a.B/C HTTP/1.1\nOrigin: http://a"));
        let mut answer = ResponseHead::default();
        head.iter().for_each(|(name, value)| answer.fields.add(name, value.as_bytes()));
        plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut answer);
        let values: Vec<_> = answer.fields.all(name).map(String::from_utf8_lossy).collect();
        assert_eq!(values, [expected], "{method} {head:?}");
    };
    let expose = "Access-Control-Expose-Headers";
    check("POST", &[(expose, "x-e")], expose, "x-e,grpc-message,grpc-status");
    check("POST", &[(expose, "Grpc-Status, x-e")], expose, "Grpc-Status, x-e,grpc-message");
    check("POST", &[(expose, "x-e"), (expose, "")], expose, "x-e,grpc-message,grpc-status");
    check("POST", &[(expose, "*")], expose, "*,grpc-message,grpc-status");
    let allow = "Access-Control-Allow-Headers";
    let own = "content-type,x-grpc-web,x-user-agent";
    check("OPTIONS", &[(allow, "*")], allow, &format!("*,{own}"));
    let sent = [(allow, "authorization,X-Grpc-Web")];
    check("OPTIONS", &sent, allow, "authorization,X-Grpc-Web,content-type,x-user-agent");
    check("POST", &sent, allow, "authorization,X-Grpc-Web");
}

#[test]
fn origin_not_admitted_by_cors_gets_no_fields() {
    let check = |names: &[&str], origin: &str, expected: Option<&str>| {
        let bench = PluginBench::new();
        let origins = json!({
            "allow_origins": "https://good.example", "allow_methods": "GET,PUT", "allow_headers": "x-a",
            "allow_credential": true,
        });
        let settings = |name: &str| match name {
            "cors" => origins.clone(),
            "fault-injection" => json!({ "abort": { "http_status": 503 } }),
            _ => json!({}),
        };
        let plugins: Vec<_> = names.iter().map(|name| bench.plugin(name, settings(name))).collect();
        for call in ["OPTIONS /a.B/C HTTP/1.1", "POST /a.B/C HTTP/1.1\nContent-Type: application/grpc-web"] {
            let reply = bench.run_all(&plugins, &format!("{call}\nOrigin: {origin}"));
            let allowed = reply.field("access-control-allow-origin");
            assert_eq!(allowed.as_deref(), expected, "{names:?} {origin} {call}");
            let methods = reply.field("access-control-allow-methods");
            let is_answered_by_cors = call.starts_with("OPTIONS") && expected.is_some() && names[0] == "cors";
            assert!(!is_answered_by_cors || methods.as_deref() == Some("GET,PUT,POST"), "{methods:?}");
        }
    };
    // Also if `_meta.priority` inverts their order, and after a local response of an earlier plugin.
    for names in [&["cors", "grpc-web"][..], &["grpc-web", "cors"], &["fault-injection", "cors", "grpc-web"]]
    {
        check(names, "https://good.example", Some("https://good.example"));
        check(names, "https://evil.example", None);
    }
    check(&["grpc-web"], "https://evil.example", Some("*"));
}

/// The chunks of a response body for the client.
fn pieces(kind: &str, head: &str, chunks: Vec<BodyChunk>) -> (ResponseHead, Vec<Vec<u8>>) {
    let (bench, plugin) = bench();
    let request = format!("POST /a.B/C HTTP/1.1\nContent-Type: application/{kind}\n\n");
    let mut ex = bench.exchange(&request);
    ex.body.buffered = Some(Vec::new().into());
    assert!(bench.admit(std::slice::from_ref(&plugin), &mut ex, &request).is_none());
    let mut answer = ResponseHead::default();
    answer.set_status(200);
    answer.framing = yumen_http::Framing::Chunked;
    for line in head.lines() {
        let (name, value) = line.split_once(": ").expect("a field");
        answer.fields.add(name, value.as_bytes());
    }
    plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut answer);
    if !ex.response.edits_body() {
        return (answer, Vec::new());
    }
    let edit = |chunk| {
        let edited = plugin.response_body(&mut ResponseBodyPhase::new(&mut ex), chunk);
        assert!(edited.trailers.is_empty(), "no trailers are left behind the body");
        edited.data
    };
    (answer, chunks.into_iter().map(edit).collect())
}

fn piece(data: &str) -> BodyChunk {
    BodyChunk { data: data.into(), ..BodyChunk::default() }
}

fn last(data: &str, trailers: &str) -> BodyChunk {
    BodyChunk { last: true, trailers: trailers.into(), ..piece(data) }
}

#[test]
fn trailers_come_behind_the_messages() {
    let grpc = "Content-Type: application/grpc";
    let (head, body) = pieces("grpc-web+proto", grpc, vec![piece("abcd"), last("e", "grpc-status:  0\r\n")]);
    assert_eq!(head.fields.get("content-type"), Some(&b"application/grpc-web+proto"[..]));
    assert_eq!(body, [&b"abcd"[..], b"e\x80\0\0\0\x11grpc-status:  0\r\n"]);
}

#[test]
fn text_is_padded_only_where_the_source_pauses() {
    let grpc = "Content-Type: application/grpc";
    let pause = BodyChunk { pause: true, ..BodyChunk::default() };
    let (_, body) = pieces(
        "grpc-web-text",
        grpc,
        vec![piece("abcd"), piece("ef"), piece("g"), pause, last("", "a:b\r\n")],
    );
    let body: Vec<_> = body.iter().map(|piece| String::from_utf8_lossy(piece)).collect();
    assert_eq!(body, ["YWJj", "ZGVm", "", "Zw==", "gAAAAAVhOmINCg=="]);
}

#[test]
fn trailers_only_and_non_grpc_responses_have_no_trailer_frame() {
    let (head, body) = pieces("grpc-web", "Content-Type: application/grpc\ngrpc-status: 5", Vec::new());
    assert_eq!((head.fields.get("content-type"), body.len()), (Some(&b"application/grpc-web"[..]), 0));
    let (head, body) = pieces("grpc-web", "Content-Type: text/html", vec![last("x", "")]);
    assert_eq!((head.fields.get("content-type"), body.len()), (Some(&b"text/html"[..]), 0));
}

#[test]
fn untranslated_bodies_pass_with_body_plugins() {
    let check = |kind: &str, head: &str, status: u16| {
        let (bench, plugin) = bench();
        let request = format!("POST /a.B/C HTTP/1.1\nContent-Type: application/{kind}\n\n");
        let mut ex = bench.exchange(&request);
        ex.body.buffered = Some(Vec::new().into());
        assert!(bench.admit(std::slice::from_ref(&plugin), &mut ex, &request).is_none());
        let mut answer = ResponseHead::default();
        answer.set_status(status);
        answer.framing = yumen_http::Framing::Chunked;
        for line in head.lines() {
            let (name, value) = line.split_once(": ").expect("a field");
            answer.fields.add(name, value.as_bytes());
        }
        plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut answer);
        assert!(!ex.response.edits_body(), "{head}");
        let passed =
            plugin.response_body(&mut ResponseBodyPhase::new(&mut ex), last("<p>no</p>", "x-sum: 1\r\n"));
        assert_eq!((&*passed.data, &*passed.trailers), (&b"<p>no</p>"[..], &b"x-sum: 1\r\n"[..]), "{head}");
    };
    for kind in ["grpc-web", "grpc-web-text"] {
        check(kind, "Content-Type: text/html", 404);
        check(kind, "Content-Type: application/grpc\ngrpc-status: 5", 200);
        check(kind, "Content-Type: application/grpc-web+proto", 200);
    }
}

#[test]
fn a_call_is_translated_once_where_two_rules_would() {
    let bench = PluginBench::new();
    let plugins = [bench.plugin("grpc-web", json!({})), bench.plugin("grpc-web", json!({}))];
    let whole = b"\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n";
    let in_base64 = base64::engine::general_purpose::STANDARD.encode(whole).into_bytes();
    for (kind, expected) in [("grpc-web-text", in_base64), ("grpc-web", whole.to_vec())] {
        let request = format!("POST /a.B/C HTTP/1.1\nContent-Type: application/{kind}\n\nAAAAAAA=");
        let mut ex = bench.exchange(&request);
        assert!(bench.admit(&plugins, &mut ex, &request).is_none());
        if kind == "grpc-web-text" {
            assert_eq!(ex.body.buffered.as_deref(), Some(&[0; 5][..]));
        }
        assert_eq!(ex.request.fields.get("content-type"), Some(&b"application/grpc"[..]));
        let mut head = ResponseHead::default();
        head.set_status(200);
        head.framing = yumen_http::Framing::Chunked;
        head.fields.set("Content-Type", b"application/grpc");
        plugins
            .iter()
            .for_each(|plugin| plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut head));
        assert_eq!(head.fields.get("content-type"), Some(format!("application/{kind}").as_bytes()));
        let answer = last("\0\0\0\0\0", "grpc-status: 0\r\n");
        let edited = plugins
            .iter()
            .fold(answer, |chunk, plugin| plugin.response_body(&mut ResponseBodyPhase::new(&mut ex), chunk));
        assert!(edited.trailers.is_empty());
        assert_eq!(edited.data, expected, "{kind}");
    }
}
