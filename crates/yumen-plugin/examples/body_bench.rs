//! Evaluates a condition over bodies and prints the CPU time for each: `cargo run --release -p yumen-plugin
//! --example body_bench`.

// The measurements are the output.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use serde_json::json;
use yumen_http::{HeadLimits, parse};
use yumen_plugin::{
    BodyIndexing, ClientInfo, ConditionExpr, ConsumerIndex, Exchange, IndexingProgress, Now, RequestHead,
    StillHost,
};

const ROUNDS: u32 = 50;

fn main() {
    let megabyte = 1_000_000;
    let filled = |open: &str, item: &str, close: &str| {
        let count = (megabyte - open.len() - close.len()) / item.len();
        format!("{open}{}{close}", item.repeat(count))
    };
    let json = "application/json";
    for (name, content_type, body) in [
        ("ones", json, filled(r#"{"b":["#, "1,", "1]}")),
        ("members", json, filled("{", r#""abc":1,"#, r#""b":1}"#)),
        ("objects", json, filled("[", r#"{"id":1234,"name":"someone","price":12.5},"#, "1]")),
        ("one string", json, filled("{\"b\":\"", "x", "\"}")),
        ("umlauts", json, filled("{\"b\":\"", "ä", "\"}")),
        ("spaces", json, filled("{", " ", "}")),
        (
            "form",
            "application/x-www-form-urlencoded",
            filled("", &format!("%61{}=1&", "x".repeat(100)), "a=1"),
        ),
        ("graphql", "application/graphql", format!("query{{a}} #{}", "x".repeat(megabyte))),
        ("graphql fields", "application/graphql", format!("{{{}}}", "a ".repeat(4900))),
    ] {
        measure(name, content_type, body.as_bytes());
    }
}

fn measure(name: &str, content_type: &str, body: &[u8]) {
    let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\r\n");
    let client = ClientInfo {
        peer: "192.0.2.7:4711".parse().expect("an address"),
        local: "198.51.100.1:80".parse().expect("an address"),
        tls: None,
        connection_id: 1,
        listener: yumen_plugin::ListenerNumber::STATIC,
        mapped_port: 0,
    };
    let consumers = ConsumerIndex::default();
    let is_graphql = content_type.ends_with("graphql");
    let variable = if is_graphql { "graphql_operation" } else { "post_arg.none" };
    let condition = ConditionExpr::parse(&json!([[variable, "==", "x"]])).expect("a condition");
    let (mut total_ns, mut turns) = (0, 0);
    for _ in 0..ROUNDS {
        let mut head = RequestHead::default();
        parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a request");
        let host = StillHost::default();
        let mut ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
        ex.body.buffered = Some(body.to_vec().into());
        let begun_ns = processor_ns();
        let mut indexing = BodyIndexing::default();
        while indexing.turn(&ex) == IndexingProgress::More {
            turns += 1;
        }
        condition.eval(&ex);
        total_ns += processor_ns() - begun_ns;
    }
    let (mean, bytes) = (Duration::from_nanos(total_ns / u64::from(ROUNDS)), body.len());
    println!("{name:>15}: {bytes} bytes, {mean:?} of the processor, {} turns", turns / ROUNDS + 1);
}

/// CPU time of this thread in nanoseconds. The yield makes the kernel update the value.
fn processor_ns() -> u64 {
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}
