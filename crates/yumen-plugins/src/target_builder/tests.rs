//! Templates for one request, and the resulting targets.

use super::{LiteralEncoding, TargetBuilder};
use crate::testing::PluginBench;
use crate::text::TextTemplate;

fn check(template: &str, request: &str, expected: &str) {
    let bench = PluginBench::new();
    let ex = bench.exchange(request);
    let mut target = TargetBuilder::new(LiteralEncoding::Path);
    TextTemplate::parse(template).fill_target(&ex, &mut target);
    target.add_query(ex.request.query().unwrap_or_default());
    assert_eq!(target.finish().escape_ascii().to_string(), expected, "{template}");
}

#[test]
fn values_are_encoded_for_their_place() {
    let request = "GET /p/%2Fq?n=a%26b%3F HTTP/1.1\nX-H: c&d=e?f#g%20";
    check("/$http_x_h", request, "/c&d=e%3Ff%23g%2520?n=a%26b%3F");
    check("/?h=$http_x_h", request, "/?h=c%26d%3De%3Ff%23g%2520&n=a%26b%3F");
    check("/$arg_n?n=$arg_n", request, "/a&b%3F?n=a%26b%3F&n=a%26b%3F");
    check("/?from=$request_uri", request, "/?from=/p/%252Fq%3Fn%3Da%2526b%253F&n=a%26b%3F");
    check("/$args", request, "/n=a%26b%3F?n=a%26b%3F");
}

#[test]
fn a_default_stands_in_for_a_value() {
    check("/${http_x_none ?? a b}", "GET / HTTP/1.1", "/a%20b");
    check("/?${args ?? a=1}", "GET / HTTP/1.1", "/?a=1");
}
