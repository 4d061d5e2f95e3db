//! The three compressors: rules, and decoding of complete and partial output.

use std::io::Read;

use serde_json::{Value, json};
use yumen_plugin::{BodyChunk, ResponseHead, ResponseHeadPhase};

use crate::testing::{PluginBench, TestReply};

/// Plugin and coding.
const ALL: [(&str, &str); 3] = [("gzip", "gzip"), ("brotli", "br"), ("zstd", "zstd")];

/// Decodes as much as possible of complete or truncated bytes.
fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "br" => Box::new(::brotli::Decompressor::new(bytes, 4096)),
        _ => Box::new(::zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
    };
    let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        out.extend_from_slice(&buffer[..count]);
    }
    out
}

fn page(fields: &str, body: &str) -> String {
    let status = if fields.starts_with("HTTP/") { "" } else { "HTTP/1.1 200 OK\r\n" };
    let length = format!("Content-Length: {}\r\n", body.len());
    format!("{status}{fields}{length}\r\n{body}")
}

const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";

fn body() -> String {
    "<p>once and again</p>".repeat(500)
}

fn run(plugin: &str, settings: Value, request: &str, answer: String) -> TestReply {
    let mut bench = PluginBench::new();
    bench.upstream_reply = answer;
    bench.run(&bench.plugin(plugin, settings), request)
}

#[test]
fn a_page_is_compressed_and_reads_the_same() {
    for (plugin, coding) in ALL {
        let request = format!("GET / HTTP/1.1\nAccept-Encoding: {coding}");
        let reply = run(plugin, json!({}), &request, page(HTML, &body()));
        assert_eq!(reply.field("Content-Encoding").as_deref(), Some(coding));
        assert_eq!(reply.field("Content-Length"), None);
        assert!(reply.raw.len() < 300, "{plugin}: {} bytes", reply.raw.len());
        assert_eq!(decoded(coding, &reply.raw), body().as_bytes(), "{plugin}");
    }
}

#[test]
fn settings_say_which_answers() {
    let get = "GET / HTTP/1.1";
    for (settings, version, answer, expected) in [
        (json!({}), get, page("", &body()), false),
        (json!({}), get, page("Content-Type: text/css\r\n", &body()), false),
        (json!({}), get, page("Content-Type: TEXT/html\r\n", &body()), true),
        (json!({"types": ["text/css", "a/b"]}), get, page("Content-Type: a/b ;c=d\r\n", &body()), true),
        (json!({"types": ["text/css"]}), get, page(HTML, &body()), false),
        (json!({"types": "*"}), get, page("Content-Type: x/y\r\n", &body()), true),
        (json!({"types": "*"}), get, page("", &body()), false),
        (json!({"types": "*"}), get, page("Content-Type: application/grpc+proto\r\n", &body()), false),
        (json!({}), get, page(HTML, "nineteen bytes, no."), false),
        (json!({}), get, page(HTML, "twenty bytes are ok."), true),
        (json!({"min_length": 1}), get, page(HTML, "x"), true),
        (json!({}), "GET / HTTP/1.0", page(HTML, &body()), false),
        (json!({"http_version": 1.0}), "GET / HTTP/1.0", page(HTML, &body()), true),
    ] {
        for (plugin, coding) in ALL {
            let request = format!("{version}\nAccept-Encoding: {coding}");
            let reply = run(plugin, settings.clone(), &request, answer.clone());
            let coded = reply.field("Content-Encoding").is_some();
            assert_eq!(coded, expected, "{plugin} {settings} {version} {}", &answer[..60]);
        }
    }
}

#[test]
fn gzip_takes_the_statuses_nginx_takes() {
    for (status, expected) in [(200, true), (403, true), (404, true), (201, false), (500, false)] {
        let answer = page(&format!("HTTP/1.1 {status} X\r\n{HTML}"), &body());
        let reply = run("gzip", json!({}), "GET / HTTP/1.1\nAccept-Encoding: gzip", answer);
        assert_eq!(reply.field("Content-Encoding").is_some(), expected, "{status}");
    }
}

#[test]
fn the_field_vary_is_a_setting() {
    for (plugin, coding) in ALL {
        let request = format!("GET / HTTP/1.1\nAccept-Encoding: {coding}");
        for (settings, expected) in [(json!({}), None), (json!({"vary": true}), Some("Accept-Encoding"))] {
            let reply = run(plugin, settings, &request, page(HTML, &body()));
            assert_eq!(reply.field("Vary").as_deref(), expected, "{plugin}");
        }
    }
}

#[test]
fn a_304_varies_where_its_answer_might_have_been_coded() {
    let vary = json!({"vary": true});
    for (settings, request, fields, expected) in [
        (&vary, "GET / HTTP/1.1", "ETag: \"a\"\r\n", Some("Accept-Encoding")),
        (&vary, "GET / HTTP/1.1", HTML, Some("Accept-Encoding")),
        (&vary, "GET / HTTP/1.1", "Content-Type: image/png\r\n", None),
        (&vary, "GET / HTTP/1.0", "ETag: \"a\"\r\n", None),
        (&json!({}), "GET / HTTP/1.1", "ETag: \"a\"\r\n", None),
    ] {
        for (plugin, coding) in ALL {
            let request = format!("{request}\nAccept-Encoding: {coding}");
            let answer = format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n");
            let reply = run(plugin, settings.clone(), &request, answer);
            assert_eq!(reply.field("Vary").as_deref(), expected, "{plugin} {settings} {request} {fields}");
        }
    }
}

#[test]
fn pause_flushes_pending_output_only() {
    let levels = json!([{"comp_level": 1}, {"comp_level": 9}]);
    for (plugin, coding) in ALL {
        for settings in levels.as_array().expect("a list") {
            let bench = PluginBench::new();
            let built = bench.plugin(plugin, settings.clone());
            let mut ex = bench.exchange(&format!("GET / HTTP/1.1\nAccept-Encoding: {coding}"));
            let mut head = ResponseHead::default();
            head.set_status(200);
            head.fields.set("Content-Type", b"text/html");
            built.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut head);
            ex.choose_coding(&mut head);
            let pause = || BodyChunk { pause: true, ..BodyChunk::default() };
            assert_eq!(ex.code(pause()), b"", "{plugin} {settings}");
            let (mut sent, mut pauses) = (Vec::new(), Vec::new());
            for event in 0..50 {
                let data = format!("data: event {event}\n\n").into_bytes();
                pauses.extend_from_slice(&data);
                sent.extend(ex.code(BodyChunk { data, last: false, pause: false, ..BodyChunk::default() }));
                sent.extend(ex.code(pause()));
                assert_eq!(ex.code(pause()), b"", "{plugin} {settings} after event {event}");
                assert_eq!(decoded(coding, &sent), pauses, "{plugin} {settings} after event {event}");
            }
            sent.extend(ex.code(BodyChunk {
                data: Vec::new(),
                last: true,
                pause: false,
                ..BodyChunk::default()
            }));
            assert_eq!(decoded(coding, &sent), pauses);
        }
    }
}

#[test]
fn the_clients_favourite_wins_and_other_plugins_see_the_plain_body() {
    for (accepts, expected) in [("gzip, br, zstd", "zstd"), ("gzip, br", "br"), ("br;q=0.5, gzip", "gzip")] {
        let mut bench = PluginBench::new();
        bench.upstream_reply = page(HTML, &body());
        let filter = json!({"filters": [{"regex": "again", "replace": "more", "scope": "global"}]});
        // In the order of their priorities: compressors come before the plugin that edits the body.
        let plugins = [
            bench.plugin("zstd", json!({})),
            bench.plugin("brotli", json!({})),
            bench.plugin("gzip", json!({})),
            bench.plugin("response-rewrite", filter),
        ];
        let reply = bench.run_all(&plugins, &format!("GET / HTTP/1.1\nAccept-Encoding: {accepts}"));
        assert_eq!(reply.field("Content-Encoding").as_deref(), Some(expected));
        let read = decoded(expected, &reply.raw);
        assert_eq!(String::from_utf8_lossy(&read), body().replace("again", "more"));
    }
}

#[test]
fn the_extremes_of_the_settings_work() {
    for (plugin, settings) in [
        ("gzip", json!({"comp_level": 9, "buffers": {"number": 1}})),
        ("brotli", json!({"comp_level": 0, "mode": 2, "lgwin": 0})),
        ("brotli", json!({"comp_level": 11, "mode": 1, "lgwin": 24, "lgblock": 24})),
        ("zstd", json!({"comp_level": 1, "window_log": 10})),
        ("zstd", json!({"comp_level": 19, "window_log": 23})),
    ] {
        let coding = ALL.iter().find(|(name, _)| *name == plugin).expect("in the list").1;
        let request = format!("GET / HTTP/1.1\nAccept-Encoding: {coding}");
        let reply = run(plugin, settings.clone(), &request, page(HTML, &body()));
        assert_eq!(decoded(coding, &reply.raw), body().as_bytes(), "{plugin} {settings}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    for (plugin, settings) in [
        ("gzip", json!({"comp_level": 0})),
        ("gzip", json!({"types": []})),
        ("gzip", json!({"types": "text/html"})),
        ("gzip", json!({"http_version": 2})),
        ("gzip", json!({"min_length": 0})),
        ("gzip", json!({"buffers": {"size": 0}})),
        ("brotli", json!({"comp_level": 12})),
        ("brotli", json!({"lgwin": 9})),
        ("brotli", json!({"mode": 3})),
        ("zstd", json!({"comp_level": 20})),
        ("zstd", json!({"window_log": 24})),
    ] {
        assert!(PluginBench::new().build(plugin, settings.clone()).is_err(), "{plugin} {settings}");
    }
}
