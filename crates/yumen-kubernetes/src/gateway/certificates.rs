//! Certificates of listeners, and the client certificate for backends: references, grants, Secrets.

use std::sync::Arc;

use super::sections::ListenerSection;
use crate::certificates::served_names;
use crate::derived::ConditionReason;
use crate::engine::{ReferencedObject, TrackedView};
use crate::grants::{GrantQuestion, is_permitted};
use crate::model::{ClusterKind, ObjectKey, ObjectReference};

/// A certificate of a section.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SectionCertificate {
    /// Index of the reference, so that ids do not move when another reference ceases to resolve.
    pub(super) position: usize,
    pub(super) pair: CertificatePair,
    /// DNS names in lower case.
    pub(super) names: Vec<String>,
}

/// PEM texts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CertificatePair {
    pub(super) cert: String,
    pub(super) key: String,
}

/// Resolves the certificates of a section that ends TLS. Those that resolve serve, even beside others that do not.
pub(super) fn resolve_certificates(view: &TrackedView<'_>, section: &mut ListenerSection<'_>) {
    if !section.terminates_tls() {
        return;
    }
    let references = section.spec.tls.as_ref().map(|tls| tls.certificate_refs.as_slice()).unwrap_or_default();
    if references.is_empty() {
        let message = "tls.certificateRefs is empty; a listener that ends TLS needs a certificate.";
        section.mark_unresolved(ConditionReason::new("InvalidCertificateRef", message));
    }
    for (position, reference) in references.iter().enumerate() {
        match resolve_pair(view, &section.parent, reference, "InvalidCertificateRef") {
            Ok(certificate) => section.certificates.push(SectionCertificate { position, ..certificate }),
            Err(reason) => section.mark_unresolved(reason),
        }
    }
}

/// Resolves the client certificate that backends are shown.
pub(super) fn resolve_client_certificate(
    view: &TrackedView<'_>,
    gateway: &ObjectKey,
    reference: &ObjectReference,
) -> Result<CertificatePair, ConditionReason> {
    resolve_pair(view, gateway, reference, "InvalidClientCertificateRef").map(|certificate| certificate.pair)
}

fn resolve_pair(
    view: &TrackedView<'_>,
    owner: &ObjectKey,
    reference: &ObjectReference,
    invalid: &'static str,
) -> Result<SectionCertificate, ConditionReason> {
    let namespace = reference.namespace_or(&owner.namespace);
    let name = format!("Secret {namespace}/{}", reference.name);
    if !reference.group().is_empty() || reference.kind_or("Secret") != "Secret" {
        let message = format!(
            "Certificate reference {:?} has kind {}/{}; allowed: Secret of the core group.",
            reference.name,
            reference.group(),
            reference.kind_or("Secret")
        );
        return Err(ConditionReason::new(invalid, message));
    }
    require_grant(view, owner, namespace, "Secret", &reference.name)?;
    let secret = match view.secret(namespace, &reference.name) {
        ReferencedObject::Found(secret) => secret,
        ReferencedObject::Missing | ReferencedObject::Pending => {
            return Err(ConditionReason::new(invalid, format!("{name} does not exist.")));
        }
    };
    let (Some(cert), Some(key)) = (secret.text("tls.crt"), secret.text("tls.key")) else {
        let message = format!("{name} has no text in tls.crt and tls.key.");
        return Err(ConditionReason::new(invalid, message));
    };
    let names = served_names(view.certificates(), cert, key)
        .map_err(|reason| ConditionReason::new(invalid, format!("{name} does not serve: {reason}.")))?;
    let pair = CertificatePair { cert: cert.to_owned(), key: key.to_owned() };
    Ok(SectionCertificate { position: 0, pair, names: names.dns })
}

/// Checks that a reference of `owner` stays in its namespace or is granted.
pub(super) fn require_grant(
    view: &TrackedView<'_>,
    owner: &ObjectKey,
    namespace: &Arc<str>,
    kind: &str,
    name: &str,
) -> Result<(), ConditionReason> {
    let question = GrantQuestion {
        from: owner.kind,
        from_namespace: &owner.namespace,
        to_group: "",
        to_kind: kind,
        to_namespace: namespace,
        to_name: name,
    };
    if is_permitted(view, question) {
        return Ok(());
    }
    let from = if owner.kind == ClusterKind::ListenerSet { "ListenerSet" } else { "Gateway" };
    let message = format!(
        "No ReferenceGrant in namespace {namespace} permits a {from} of namespace {} to refer to {kind} {name}.",
        owner.namespace
    );
    Err(ConditionReason::new("RefNotPermitted", message))
}
