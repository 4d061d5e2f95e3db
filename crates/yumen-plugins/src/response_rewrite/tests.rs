//! Upstream responses and the resulting responses for the client.

use serde_json::{Value, json};
use yumen_plugin::{BodyChunk, ResponseBodyPhase, ResponseHead, ResponseHeadPhase};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, answer: &str) -> TestReply {
    let mut bench = PluginBench::new();
    bench.upstream_reply = answer.to_owned();
    bench.run(&bench.plugin("response-rewrite", settings), "GET / HTTP/1.1")
}

const HELLO: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nETag: x\r\nX-A: 1\r\nX-B: 2\r\n\r\nhello hello\n";

#[test]
fn the_body_is_replaced_and_no_longer_described() {
    let reply = run(json!({"body": "new", "status_code": 201}), HELLO);
    assert_eq!((reply.status, reply.body.as_str()), (201, "new"));
    assert_eq!((reply.field("ETag"), reply.field("Content-Length")), (None, None));
    assert_eq!(run(json!({"body": "bmV3", "body_base64": true}), HELLO).body, "new");
}

#[test]
fn matches_in_the_body_are_replaced() {
    for (filter, expected) in [
        (json!({"regex": "hello", "replace": "hi"}), "hi hello\n"),
        (json!({"regex": "hello", "scope": "global", "replace": "hi"}), "hi hi\n"),
        (json!({"regex": "H(E)L", "scope": "global", "replace": "<$1>", "options": "ijo"}), "<e>lo <e>lo\n"),
        (json!({"regex": "none", "replace": "x"}), "hello hello\n"),
    ] {
        assert_eq!(run(json!({"filters": [filter]}), HELLO).body, expected, "{filter}");
    }
}

#[test]
fn a_body_past_the_limit_is_cut_off() {
    let settings =
        json!({"filters": [{"regex": "l", "replace": "L", "scope": "global"}], "max_resp_body_size": 4});
    assert_eq!(run(settings, HELLO).body, "heLL");
}

#[test]
fn a_body_in_another_coding_and_a_part_of_one_pass_as_they_are() {
    for (status, coding) in [(200, "compress"), (200, "gzip, br"), (206, "gzip")] {
        let answer =
            format!("HTTP/1.1 {status} OK\r\nContent-Encoding: {coding}\r\nContent-Length: 1\r\n\r\nl");
        let reply = run(json!({"filters": [{"regex": "l", "replace": "L"}]}), &answer);
        assert_eq!((reply.body.as_str(), reply.field("Content-Encoding").as_deref()), ("l", Some(coding)));
    }
}

#[test]
fn a_compressed_body_is_decoded_for_the_replacements() {
    let rewritten = |coded: &[u8]| {
        let bench = PluginBench::new();
        let plugin =
            bench.plugin("response-rewrite", json!({"filters": [{"regex": "secret", "replace": "***"}]}));
        let mut ex = bench.exchange("GET / HTTP/1.1");
        let mut head = ResponseHead::default();
        head.fields.add("Content-Encoding", b"gzip");
        plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut head);
        assert!(!head.fields.has("Content-Encoding"));
        let (first, rest) = coded.split_at(5);
        let piece = BodyChunk { data: first.to_vec(), ..BodyChunk::default() };
        assert_eq!(plugin.response_body(&mut ResponseBodyPhase::new(&mut ex), piece).data, b"");
        plugin.response_body(
            &mut ResponseBodyPhase::new(&mut ex),
            BodyChunk { data: rest.to_vec(), last: true, ..BodyChunk::default() },
        )
    };
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, b"a secret, told").unwrap();
    let coded = encoder.finish().unwrap();
    let whole = rewritten(&coded);
    assert_eq!((whole.data.as_slice(), whole.broken), (&b"a ***, told"[..], false));
    let cut = rewritten(&coded[..coded.len() - 3]);
    assert_eq!((cut.data.as_slice(), cut.broken), (&b""[..], true));
}

#[test]
fn a_body_in_pieces_is_replaced_once() {
    for (settings, expected) in
        [(json!({"body": "new"}), "new"), (json!({"filters": [{"regex": "a.*d", "replace": "X"}]}), "X\n")]
    {
        let bench = PluginBench::new();
        // A replaced body does not need the rest of the original.
        let ends_at_once = settings.get("body").is_some();
        let plugin = bench.plugin("response-rewrite", settings);
        let mut ex = bench.exchange("GET / HTTP/1.1");
        plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut ResponseHead::default());
        let mut body = Vec::new();
        for (data, last) in [("ab", false), ("cd", false), ("\n", false), ("", true)] {
            let chunk = plugin.response_body(
                &mut ResponseBodyPhase::new(&mut ex),
                BodyChunk { data: data.into(), last, pause: false, ..BodyChunk::default() },
            );
            assert_eq!(chunk.last, last || ends_at_once);
            body.extend(chunk.data);
        }
        assert_eq!(String::from_utf8(body).expect("text"), expected);
    }
}

#[test]
fn fields_are_added_set_and_removed() {
    let operations = json!({"add": ["X-A: 3", "Set-Cookie: a=b; Max-Age=1", "X-Time: 12:30", "Link: http://h/"], "set": {"X-B": 4, "X-N": "n"}, "remove": ["ETag"]});
    let reply = run(json!({"headers": operations}), HELLO);
    for (name, expected) in [
        ("X-A", Some("1|3")),
        ("X-B", Some("4")),
        ("X-N", Some("n")),
        ("ETag", None),
        ("Set-Cookie", Some("a=b; Max-Age=1")),
        ("X-Time", Some("12:30")),
        ("Link", Some("http://h/")),
    ] {
        assert_eq!(reply.field(name).as_deref(), expected, "{name}");
    }
    assert_eq!(run(json!({"headers": {"X-A": "new"}}), HELLO).field("X-A").as_deref(), Some("new"));
    assert_eq!(reply.body, "hello hello\n");
}

#[test]
fn broken_settings_are_refused() {
    for (settings, part) in [
        (json!({"body": "", "body_base64": true}), "invalid base64 content"),
        (json!({"body": "1", "body_base64": true}), "invalid base64 content"),
        (json!({"body_base64": true}), "invalid base64 content"),
        (json!({"filters": [{"regex": "(", "replace": ""}]}), "regex \"(\" validation failed: "),
        (
            json!({"filters": [{"regex": "a", "replace": "", "options": "h"}]}),
            "regex \"a\" validation failed: ",
        ),
        (json!({"headers": {"add": ["a b: c"]}}), "\"a b: c\" is not a field"),
    ] {
        let error = PluginBench::new().build("response-rewrite", settings).err().expect(part);
        assert!(error.message.starts_with(part), "{}", error.message);
    }
}

#[test]
fn conditions_look_at_the_answer() {
    let settings =
        json!({"vars": [["status", "==", 404]], "body": "mine", "headers": {"set": {"X-S": "$status"}}});
    assert_eq!(run(settings.clone(), HELLO).body, "hello hello\n");
    let reply = run(settings, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((reply.body.as_str(), reply.field("X-S").as_deref()), ("mine", Some("404")));
    let error = PluginBench::new()
        .build("response-rewrite", json!({"vars": [["a", "?", 1]]}))
        .err()
        .expect("refused");
    assert!(error.message.starts_with("failed to validate the 'vars' expression: "), "{}", error.message);
}

#[test]
fn a_field_set_to_nothing_is_removed() {
    for settings in [
        json!({"headers": {"X-A": "", "X-B": "$arg_none"}}),
        json!({"headers": {"set": {"X-A": "", "X-B": "$arg_none"}}}),
    ] {
        let reply = run(settings, HELLO);
        assert_eq!((reply.field("X-A"), reply.field("X-B")), (None, None));
    }
}
