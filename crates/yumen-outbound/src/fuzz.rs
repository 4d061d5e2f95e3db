//! Entries of the parsers for fuzz targets, which alone see them. Each one panics if its property does not hold.

use std::sync::OnceLock;

use yumen_plugin::KafkaMechanism;

use crate::directory::wire as ldap;
use crate::kafka_sink::scram::ScramLogin;
use crate::kafka_sink::wire as kafka;

/// Messages of an LDAP server: the length of a message does not depend on the bytes behind it, and a part of a message is
/// none.
pub fn ldap_message(bytes: &[u8]) {
    let Ok(Some(length)) = ldap::message_length(bytes) else { return };
    assert!(length <= bytes.len());
    assert_eq!(ldap::message_length(&bytes[..length]), Ok(Some(length)));
    assert_ne!(ldap::message_length(&bytes[..length - 1]), Ok(Some(length)));
    if ldap::read_message(&bytes[..length]).is_some() {
        assert!(ldap::read_message(&bytes[..length - 1]).is_none());
    }
}

/// Responses of a Kafka broker: every reader is total, and lists have no more items than bytes.
pub fn kafka_response(bytes: &[u8]) {
    let Some((_, body)) = kafka::response_parts(bytes) else { return };
    if let Some(layout) = kafka::read_metadata(body) {
        assert!(layout.brokers.len() + layout.partitions.len() <= body.len());
        assert!(layout.partitions.is_sorted_by_key(|partition| partition.partition));
    }
    let _ = kafka::read_produce(body);
    if let Some((_, mechanisms)) = kafka::read_handshake(body) {
        assert!(mechanisms.len() <= body.len());
    }
    if let Some(response) = kafka::read_authenticate(body) {
        assert!(response.message.len() <= body.len());
    }
}

/// Messages of a SCRAM server: none proves a password that the server does not know.
pub fn scram_message(bytes: &[u8]) {
    static LOGIN: OnceLock<ScramLogin> = OnceLock::new();
    let login = LOGIN.get_or_init(|| {
        ScramLogin::new(KafkaMechanism::ScramSha256, "user", "pencil", "n".to_owned()).expect("a mechanism")
    });
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (first, last) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    // Iterations cost time, which the bound of the client limits.
    if first.windows(7).any(|text| text.iter().all(u8::is_ascii_digit)) {
        return;
    }
    if let Ok(end) = login.proof(first) {
        assert!(end.message.starts_with("c=biws,r=n"));
        assert!(end.check(last).is_err(), "a forged signature");
    }
}
