//! Conditions and templates: no panic during compilation or evaluation.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, ConditionExpr, PluginHost, Now, VarTemplate};

struct NoHost;

impl PluginHost for NoHost {
    fn sleep(&self, _delay: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        0
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(7);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        Now::default()
    }
}

const HEAD: &[u8] = b"POST /a?b=1&query=%7Ba%7D HTTP/1.1\r\nHost: a\r\nCookie: c=d\r\n\
    Content-Type: application/json\r\nContent-Length: 1\r\n\r\n";

// The rules, a line break, and the request body for them.
fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (rules, body) = text.split_once('\n').unwrap_or((text, "{\"a\":[1]}"));
    let mut head = RequestHead::default();
    parse::request(HEAD, 0, &HeadLimits::default(), &mut head).expect("the head is well-formed");
    let client = ClientInfo {
        peer: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 80).into(),
        tls: None,
        connection_id: 0, listener: Default::default(), mapped_port: 0 };
    let consumers = ConsumerIndex::default();
    let mut ex = Exchange::new(head, &client, Now::default(), &NoHost, &consumers);
    ex.body.buffered = Some(body.as_bytes().to_vec().into());
    let template = VarTemplate::parse(rules);
    let mut out = Vec::new();
    let resolved = template.render(&ex, &mut out);
    // `${$}` is a constant that renders to less than its source.
    assert!(!template.is_constant() || (resolved == 0 && (out == rules.as_bytes() || rules.contains("${"))));
    let Ok(value) = serde_json::from_str(rules) else { return };
    if let Ok(expr) = ConditionExpr::parse(&value) {
        assert_eq!(expr.eval(&ex), expr.eval(&ex));
    }
});
