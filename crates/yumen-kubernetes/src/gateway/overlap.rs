//! Overlapping TLS configuration: a client that reuses an HTTP/2 connection for another host name may reach a listener
//! whose certificate or name fits the host only by coincidence.
//!
//! Work is proportional to the sections: host names and names of certificates are looked up, not compared in pairs.

use std::collections::{BTreeMap, HashMap};

use super::sections::ListenerSection;
use crate::derived::{ConditionReason, SectionProtocol};

/// An overlap of a section with another one, by index. Overlapping certificates take precedence: the API asks for that
/// reason where both hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundOverlap {
    Hostname(usize),
    Certificate(usize),
}

/// Marks the HTTPS sections of one port whose host names or certificates overlap.
pub(super) fn mark_overlaps(sections: &mut [ListenerSection<'_>]) {
    let mut ports: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (at, section) in sections.iter().enumerate() {
        if section.protocol == SectionProtocol::Https && section.is_valid() {
            ports.entry(section.spec.port).or_default().push(at);
        }
    }
    let mut found: Vec<Option<FoundOverlap>> = vec![None; sections.len()];
    for members in ports.values().filter(|members| members.len() > 1) {
        find_hostname_overlaps(sections, members, &mut found);
        find_certificate_overlaps(sections, members, &mut found);
    }
    let reasons: Vec<Option<ConditionReason>> =
        found.into_iter().map(|found| Some(reason(sections, found?))).collect();
    for (section, overlap) in sections.iter_mut().zip(reasons) {
        section.overlap = overlap;
    }
}

fn reason(sections: &[ListenerSection<'_>], found: FoundOverlap) -> ConditionReason {
    let peer = |at: usize| format!("{} of {}", sections[at].spec.name, sections[at].parent);
    match found {
        FoundOverlap::Hostname(at) => {
            let message = format!("The host name overlaps that of listener {}.", peer(at));
            ConditionReason::new("OverlappingHostnames", message)
        }
        FoundOverlap::Certificate(at) => {
            let message =
                format!("A certificate also covers the host name of listener {}, or vice versa.", peer(at));
            ConditionReason::new("OverlappingCertificates", message)
        }
    }
}

/// Host names of one port are distinct, so a name overlaps another if a wildcard above it, or no name, is present.
fn find_hostname_overlaps(
    sections: &[ListenerSection<'_>],
    members: &[usize],
    found: &mut [Option<FoundOverlap>],
) {
    let by_host: HashMap<Option<&str>, usize> =
        members.iter().map(|at| (sections[*at].hostname.as_deref(), *at)).collect();
    let mut note = |at: usize, other: usize| {
        found[at].get_or_insert(FoundOverlap::Hostname(other));
        found[other].get_or_insert(FoundOverlap::Hostname(at));
    };
    for at in members {
        let Some(hostname) = sections[*at].hostname.as_deref() else { continue };
        if let Some(hostless) = by_host.get(&None) {
            note(*at, *hostless);
        }
        let mut rest = hostname.strip_prefix("*.").unwrap_or(hostname);
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(above) = by_host.get(&Some(format!("*.{parent}").as_str())) {
                note(*at, *above);
            }
            rest = parent;
        }
    }
}

/// The sections that have a certificate with a name, and those whose host the name covers.
#[derive(Default)]
struct CertificateNameUse {
    owners: Vec<usize>,
    covered: Vec<usize>,
}

fn find_certificate_overlaps(
    sections: &[ListenerSection<'_>],
    members: &[usize],
    found: &mut [Option<FoundOverlap>],
) {
    let mut names: HashMap<&str, CertificateNameUse> = HashMap::new();
    for at in members {
        let certificates = sections[*at].certificates.iter();
        for name in certificates.flat_map(|certificate| &certificate.names) {
            names.entry(name).or_default().owners.push(*at);
        }
    }
    for at in members {
        let Some(hostname) = sections[*at].hostname.as_deref() else { continue };
        // `*` in a certificate is one label (RFC 6125 §6.4.3).
        let wildcard = hostname.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let wildcard = wildcard.as_deref().filter(|wildcard| *wildcard != hostname);
        for name in [Some(hostname), wildcard].into_iter().flatten() {
            if let Some(used) = names.get_mut(name) {
                used.covered.push(*at);
            }
        }
    }
    for used in names.into_values() {
        note_peers(&used.owners, &used.covered, found);
        note_peers(&used.covered, &used.owners, found);
    }
}

/// Notes for each of `some` the first of `others` that is not itself.
fn note_peers(some: &[usize], others: &[usize], found: &mut [Option<FoundOverlap>]) {
    for at in some {
        let Some(peer) = others.iter().find(|other| *other != at) else { continue };
        // The lowest peer, whatever the order of names.
        let lowest = match found[*at] {
            Some(FoundOverlap::Certificate(known)) => known.min(*peer),
            _ => *peer,
        };
        found[*at] = Some(FoundOverlap::Certificate(lowest));
    }
}
