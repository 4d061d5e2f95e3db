//! Conversion of `certificates`, `snis` and `ca_certificates`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use super::document::{EntityIndex, KongDocument};
use super::entity::KongEntity;
use super::ids::IdAllocator;
use crate::report::{ImportReport, different, dropped};

/// The converted certificates, and those that services refer to.
#[derive(Debug, Default)]
pub(super) struct KongCertificates {
    pub(super) resources: Vec<Resource>,
    index: EntityIndex,
    /// Ids of client certificates for upstreams.
    client_ids: BTreeMap<usize, String>,
    authorities: Vec<KongEntity>,
    authority_index: EntityIndex,
}

impl KongCertificates {
    /// The id of a client certificate for upstreams.
    pub(super) fn client(&self, reference: &Value) -> Option<&str> {
        Some(self.client_ids.get(&self.index.find(reference)?)?.as_str())
    }

    /// The certificate of an authority in PEM.
    pub(super) fn authority(&self, reference: &Value) -> Option<&str> {
        self.authorities[self.authority_index.find(reference)?].peek("cert")?.as_str()
    }
}

pub(super) fn translate(document: &mut KongDocument, report: &mut ImportReport) -> KongCertificates {
    let mut result =
        KongCertificates { index: EntityIndex::of(&document.certificates), ..KongCertificates::default() };
    let names = names(document, &result.index, report);
    let client_certificates = client_certificates(document, &result.index);
    let mut ids = IdAllocator::of([]);
    for (at, certificate) in document.certificates.iter_mut().enumerate() {
        let snis: Vec<&String> = names.get(&at).into_iter().flatten().collect();
        let mut pairs = Vec::new();
        for (cert, key) in [("cert", "key"), ("cert_alt", "key_alt")] {
            if let (Some(cert), Some(key)) = (certificate.text(cert, report), certificate.text(key, report)) {
                pairs.push((cert, key));
            }
        }
        let labels = super::labels::labels(certificate, report);
        let Some(((cert, key), alternatives)) = pairs.split_first() else {
            let line =
                dropped(&certificate.label, "cert", "left out").why("there is no certificate with its key");
            report.add(line);
            continue;
        };
        let name = snis.first().map_or(certificate.name.as_str(), |sni| sni.trim_start_matches("*."));
        let mut base = json!({ "cert": cert, "key": key });
        if let Some((cert, key)) = alternatives.first() {
            base["certs"] = json!([cert]);
            base["keys"] = json!([key]);
        }
        if let Some(labels) = labels {
            base["labels"] = labels;
        }
        let is_client = client_certificates.contains(&at);
        if is_client {
            let id = ids.allocate(&format!("{name}-client"));
            let mut ssl = base.clone();
            ssl["type"] = json!("client");
            result.resources.push(Resource::new(Kind::Ssls, &id, &ssl));
            result.client_ids.insert(at, id);
        }
        if !snis.is_empty() {
            base["snis"] = json!(snis);
            result.resources.push(Resource::new(Kind::Ssls, &ids.allocate(name), &base));
        } else if !is_client {
            let line = dropped(&certificate.label, "", "left out")
                .why("it has no server name and no service shows it");
            report.add(line.hint("give it snis"));
        }
    }
    let mut authorities = std::mem::take(&mut document.ca_certificates);
    for authority in &mut authorities {
        // The digest follows from the certificate.
        authority.take("cert_digest");
        super::labels::no_labels(authority, report);
        let mut rest = authority.clone();
        rest.take("cert");
        rest.finish(report);
    }
    result.authority_index = EntityIndex::of(&authorities);
    result.authorities = authorities;
    result
}

/// Server names by certificate.
fn names(
    document: &mut KongDocument,
    index: &EntityIndex,
    report: &mut ImportReport,
) -> BTreeMap<usize, BTreeSet<String>> {
    let mut names: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for sni in &mut document.snis {
        let name = sni.text("name", report).unwrap_or_default();
        super::labels::no_labels(sni, report);
        match index.take(sni, "certificate") {
            Ok(Some(at)) if name.ends_with(".*") => {
                let line = different(&sni.label, "name", "left out of the certificate's names");
                report.add(line.why("a wildcard at the end of a server name is not matched here"));
                names.entry(at).or_default();
            }
            Ok(Some(at)) => drop(names.entry(at).or_default().insert(name)),
            Ok(None) => {
                report.add(dropped(&sni.label, "certificate", "left out").why("it names no certificate"))
            }
            Err(found) => {
                let line = dropped(&sni.label, "certificate", "left out");
                report.add(line.why(format!("there is no certificate {found}")));
            }
        }
    }
    names
}

/// Indexes of the certificates that a service or an upstream presents to its endpoints.
fn client_certificates(document: &KongDocument, index: &EntityIndex) -> BTreeSet<usize> {
    let users = document.services.iter().chain(&document.upstreams);
    users.filter_map(|user| index.find(user.peek("client_certificate")?)).collect()
}
