use std::sync::Arc;

use yumen_config::Kind;

use super::ServerNames;
use crate::certificates::CompiledCertificate;
use crate::compile::names::ObjectName;

fn certificate(id: &str) -> Arc<CompiledCertificate> {
    let keys = [Arc::new(()) as Arc<_>].into();
    Arc::new(CompiledCertificate { id: id.into(), keys, rules: None, client: None })
}

/// The id of the certificate that is presented for `x`.
fn presented(names: &ServerNames) -> Option<String> {
    names.presented().get("x").map(|certificate| certificate.id.to_string())
}

#[test]
fn name_passes_to_the_next_claimant_when_its_certificate_is_removed() {
    let mut names = ServerNames::new(Arc::default());
    for id in ["a", "b"] {
        names.insert(&id.into(), certificate(id), vec!["x".into()]);
    }
    assert_eq!(presented(&names).as_deref(), Some("b"), "the last claimant");
    assert_eq!(names.contested_objects().count(), 2);
    assert_eq!(names.problems_of(&ObjectName::new(Kind::Ssls, "a")).len(), 1);
    names.insert(&"b".into(), certificate("b"), vec!["y".into()]);
    assert_eq!(presented(&names).as_deref(), Some("a"));
    assert_eq!(names.contested_objects().count(), 0);
    names.remove("a");
    assert_eq!(presented(&names), None);
    names.remove("b");
    assert!(names.claims.is_empty() && names.objects.is_empty());
}
