//! Parses and writes request heads again and again, for counting instructions:
//! `valgrind --tool=callgrind target/release/examples/head_bench browser 10000`.

use std::hint::black_box;

use yumen_http::parse::{self, ParsedHead};
use yumen_http::{HeadLimits, Method, RequestHead, ResponseHead, encode};

const MINIMAL: &[u8] = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:9080\r\n\r\n";

const BROWSER: &[u8] = b"GET /products/4711?color=blue&size=42 HTTP/1.1\r\n\
Host: shop.example.com\r\n\
Connection: keep-alive\r\n\
sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
sec-ch-ua-mobile: ?0\r\n\
sec-ch-ua-platform: \"Linux\"\r\n\
Upgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Sec-Fetch-Site: same-origin\r\n\
Sec-Fetch-Mode: navigate\r\n\
Referer: https://shop.example.com/products\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-US,en;q=0.9\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: upstream\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\n\
Content-Type: text/plain\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\n";

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let count: usize = args.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    match what.as_str() {
        "browser" => requests(BROWSER, count),
        "response" => responses(count),
        _ => requests(MINIMAL, count),
    }
}

fn requests(bytes: &[u8], count: usize) {
    let limits = HeadLimits::default();
    let mut head = RequestHead::default();
    let mut out = Vec::with_capacity(4096);
    for _ in 0..count {
        head.clear();
        out.clear();
        let parsed = parse::request(black_box(bytes), 0, &limits, &mut head);
        assert_eq!(parsed, Ok(ParsedHead::Head(bytes.len())));
        encode::request_line(&mut out, &head);
        encode::request_fields(&mut out, &head, |_| false);
        black_box(&out);
    }
}

fn responses(count: usize) {
    let limits = HeadLimits::default();
    let mut head = ResponseHead::default();
    let mut out = Vec::with_capacity(4096);
    for _ in 0..count {
        head.clear();
        out.clear();
        let parsed = parse::response(black_box(RESPONSE), 0, &limits, Method::Get, &mut head);
        assert_eq!(parsed, Ok(ParsedHead::Head(RESPONSE.len())));
        encode::status_line(&mut out, head.status, head.reason());
        encode::response_fields(&mut out, &head, |_| false);
        black_box(&out);
    }
}
