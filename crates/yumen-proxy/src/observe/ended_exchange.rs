//! Ended exchanges for the tests of their records.

use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, ExchangeOutcome, Now, StillHost};

/// The record that `write` appends about an exchange with this request head and outcome.
pub(crate) fn recorded(
    head: &[u8],
    outcome: &ExchangeOutcome<'_>,
    write: impl FnOnce(&mut Exchange<'_>, &ExchangeOutcome<'_>, &mut Vec<u8>),
) -> Vec<u8> {
    let client = ClientInfo {
        peer: "192.0.2.7:4711".parse().unwrap(),
        local: "127.0.0.1:80".parse().unwrap(),
        tls: None,
        connection_id: 1,
        listener: yumen_plugin::ListenerNumber::STATIC,
        mapped_port: 0,
    };
    let (host, consumers) = (StillHost::default(), ConsumerIndex::default());
    let mut request = RequestHead::default();
    parse::request(head, 0, &HeadLimits::default(), &mut request).unwrap();
    let now = Now { mono_us: 5, unix_ms: 1_700_000_000_123 };
    let mut ex = Exchange::new(request, &client, now, &host, &consumers);
    let mut out = Vec::new();
    write(&mut ex, outcome, &mut out);
    out
}
