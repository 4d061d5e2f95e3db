//! Overlapping TLS configuration: a client that reuses an HTTP/2 connection for another host name may reach a listener
//! whose certificate or name fits the host only by coincidence.

use super::sections::ListenerSection;
use crate::derived::{ConditionReason, SectionProtocol};

/// Marks the HTTPS sections of one port whose host names or certificates overlap.
pub(super) fn mark_overlaps(sections: &mut [ListenerSection<'_>]) {
    let mut found: Vec<Option<ConditionReason>> = vec![None; sections.len()];
    for (at, section) in sections.iter().enumerate() {
        let is_peer = |(other_at, other): &(usize, &ListenerSection<'_>)| {
            *other_at != at && other.spec.port == section.spec.port && is_candidate(other)
        };
        if !is_candidate(section) {
            continue;
        }
        for (_, other) in sections.iter().enumerate().filter(is_peer) {
            let peer = format!("{} of {}", other.spec.name, other.parent);
            if certificate_covers(section, other) || certificate_covers(other, section) {
                let message =
                    format!("A certificate also covers the host name of listener {peer}, or vice versa.");
                found[at] = Some(ConditionReason::new("OverlappingCertificates", message));
                break;
            }
            if hosts_overlap(section.hostname.as_deref(), other.hostname.as_deref()) && found[at].is_none() {
                let message = format!("The host name overlaps that of listener {peer}.");
                found[at] = Some(ConditionReason::new("OverlappingHostnames", message));
            }
        }
    }
    for (section, overlap) in sections.iter_mut().zip(found) {
        section.overlap = overlap;
    }
}

fn is_candidate(section: &ListenerSection<'_>) -> bool {
    section.protocol == SectionProtocol::Https && section.holds_port()
}

fn hosts_overlap(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => covers(one, other) || covers(other, one),
        _ => true,
    }
}

/// Whether a pattern with `*.` in front, or an exact name, has all names of `name`.
fn covers(pattern: &str, name: &str) -> bool {
    let Some(suffix) = pattern.strip_prefix('*') else { return pattern == name };
    name == pattern || (name.ends_with(suffix) && name.len() > suffix.len())
}

/// Whether a certificate of one section has the host name of the other.
fn certificate_covers(owner: &ListenerSection<'_>, other: &ListenerSection<'_>) -> bool {
    let Some(hostname) = other.hostname.as_deref() else { return false };
    // `*` in a certificate is one label (RFC 6125 §6.4.3).
    let one_label = |pattern: &str| match (pattern.strip_prefix('*'), hostname.split_once('.')) {
        (Some(suffix), Some((_, rest))) => suffix.strip_prefix('.') == Some(rest),
        _ => pattern == hostname,
    };
    owner.certificates.iter().any(|certificate| certificate.names.iter().any(|name| one_label(name)))
}
