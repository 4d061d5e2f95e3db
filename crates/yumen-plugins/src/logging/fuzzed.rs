//! Forms of log entries for fuzz targets.

use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, ExchangeOutcome, Now, StillHost};

use super::entry::{LogEntry, LogEntryForm};
use super::format::{FormatFacts, LogFormat};

/// A `log_format` in its first line, a request head in the others: each entry is one JSON object on one line.
pub fn log_format(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (format, head) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    let client = ClientInfo {
        peer: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 80).into(),
        tls: None,
        connection_id: 0,
        listener: Default::default(),
        mapped_port: 0,
    };
    let (host, consumers) = (StillHost::default(), ConsumerIndex::default());
    let mut request = RequestHead::default();
    if parse::request(head, 0, &HeadLimits::default(), &mut request).is_err() {
        request = RequestHead::default();
        let fallback = b"GET /a?b=%ff&c HTTP/1.1\r\nHost: a\r\n\r\n";
        parse::request(fallback, 0, &HeadLimits::default(), &mut request).expect("a request");
    }
    let ex = Exchange::new(request, &client, Now::default(), &host, &consumers);
    let outcome = ExchangeOutcome::default();
    let mut facts = FormatFacts::default();
    let written = serde_json::from_slice(format).ok();
    let compiled = written.and_then(|format| LogFormat::compile("log_format", &format, &mut facts).ok());
    for form in [Some(LogEntryForm::Default(None)), compiled.map(LogEntryForm::Custom)].into_iter().flatten()
    {
        let entry = LogEntry {
            ex: &ex,
            outcome: &outcome,
            form: &form,
            request_bytes_max: Some(100),
            includes_request_body: true,
            response_body: Some(head.into()),
            unmatched_route: None,
        };
        let mut out = Vec::new();
        entry.write_json(&mut out);
        let read: Result<serde_json::Map<_, serde_json::Value>, _> = serde_json::from_slice(&out);
        assert!(read.is_ok(), "{:?}\n{}", read.err(), String::from_utf8_lossy(&out));
        assert!(!out.contains(&b'\n'), "an entry of two lines");
    }
}
