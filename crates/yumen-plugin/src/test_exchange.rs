//! Exchanges for the tests of this crate, from request text, with fixed addresses and time.

use std::sync::Arc;

use yumen_base::Now;
use yumen_http::{HeadLimits, RequestHead, parse};

use crate::{ClientCertVerdict, ClientCertificate, ClientInfo, ConsumerIndex, Exchange, StillHost, TlsInfo};

pub(crate) fn client(tls: bool) -> ClientInfo {
    ClientInfo {
        peer: "192.0.2.7:4711".parse().unwrap(),
        local: "198.51.100.1:8443".parse().unwrap(),
        tls: tls.then(|| TlsInfo {
            sni: Some("shop.example".into()),
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            group: "X25519MLKEM768",
            verdict: ClientCertVerdict::Verified,
            certificate: Some(Arc::new(ClientCertificate {
                chain: [Box::from(&b"not really DER"[..])].into(),
                subject: "CN=robot,O=Shop".into(),
                issuer: "CN=Shop Robots".into(),
                serial: "0A1B".into(),
                fingerprint: "c0ffee".into(),
                valid_from: "Jan  1 00:00:00 1970 GMT".into(),
                valid_until: "Nov 22 00:00:00 2024 GMT".into(),
                not_after_unix_s: 20_049 * 24 * 60 * 60,
            })),
            ..TlsInfo::default()
        }),
        connection_id: 12,
        listener: crate::ListenerNumber::STATIC,
        mapped_port: 0,
    }
}

/// Runs `look` on the exchange of a request with `\n` line ends.
pub(crate) fn with_exchange<T>(tls: bool, text: &str, look: impl FnOnce(&mut Exchange<'_>) -> T) -> T {
    let (head_text, body) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
    let bytes = format!("{}\r\n\r\n", head_text.replace('\n', "\r\n"));
    let mut head = RequestHead::default();
    parse::request(bytes.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a well-formed request");
    let (client, host, consumers) = (client(tls), StillHost::default(), ConsumerIndex::default());
    let now = Now { mono_us: 0, unix_ms: 1_732_105_994_042 };
    let mut ex = Exchange::new(head, &client, now, &host, &consumers);
    if !body.is_empty() {
        ex.body.buffered = Some(body.as_bytes().to_vec().into());
    }
    look(&mut ex)
}
