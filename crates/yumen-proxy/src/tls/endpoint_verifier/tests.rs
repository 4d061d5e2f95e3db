use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use std::time::SystemTime;

use super::*;

/// An authority; `above` has signed it.
struct TestAuthority {
    der: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str, above: Option<&TestAuthority>) -> TestAuthority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let signed = match above {
        Some(above) => params.signed_by(&key, &above.issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    TestAuthority { der: signed.der().clone(), pem: signed.pem(), issuer: Issuer::new(params, key) }
}

impl TestAuthority {
    fn server(&self, names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = |text: &&str| match text.contains("://") {
            true => SanType::URI((*text).try_into().unwrap()),
            false => SanType::DnsName((*text).try_into().unwrap()),
        };
        params.subject_alt_names = names.iter().map(name).collect();
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
    }
}

fn settings(root: &TestAuthority, names: &[&str], depth_max: Option<u8>) -> UpstreamTls {
    let name = |text: &&str| match text.contains("://") {
        true => EndpointName::Uri((*text).into()),
        false => EndpointName::Dns((*text).into()),
    };
    UpstreamTls {
        verify: true,
        ca_pem: Some(root.pem.as_str().into()),
        names: names.iter().map(name).collect(),
        depth_max,
        ..UpstreamTls::default()
    }
}

fn verify(tls: &UpstreamTls, leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> bool {
    let given = TrustedAuthorities::read(tls.ca_pem.as_deref().unwrap()).unwrap();
    let verifier = EndpointVerifier::shared(EndpointAnchors::Given(Arc::new(given)), tls);
    let now = UnixTime::since_unix_epoch(SystemTime::UNIX_EPOCH.elapsed().unwrap());
    verifier.verify_server_cert(leaf, above, &"sni.test".try_into().unwrap(), &[], now).is_ok()
}

#[test]
fn one_of_the_names_must_be_in_the_certificate() {
    let root = authority("root", None);
    let check = |found: &[&str], expected: &[&str], admits: bool| {
        let tls = settings(&root, expected, None);
        assert_eq!(verify(&tls, &root.server(found), &[]), admits, "{found:?} {expected:?}");
    };
    // Without names, that of SNI.
    check(&["sni.test"], &[], true);
    check(&["other.test"], &[], false);
    // With names, that of SNI does not count.
    check(&["sni.test"], &["a.test"], false);
    check(&["x.test", "a.test"], &["a.test"], true);
    check(&["A.test"], &["b.test", "a.test"], true);
    check(&["spiffe://a/b"], &["spiffe://a/b"], true);
    check(&["spiffe://a/B"], &["spiffe://a/b"], false);
    check(&["spiffe://a/b"], &["a.test", "spiffe://a/b"], true);
    check(&["*.a.test"], &["b.a.test"], true);
    check(&["*.a.test"], &["c.b.a.test"], false);
    check(&["*.a.test"], &["a.test"], false);
    check(&["*.a.test"], &["*.a.test"], true);
    check(&["b.a.test"], &["*.a.test"], true);
    check(&["c.b.a.test"], &["*.a.test"], false);
    check(&[], &["a.test"], false);
}

#[test]
fn names_do_not_replace_the_chain() {
    let (root, other) = (authority("root", None), authority("other", None));
    let tls = settings(&root, &["a.test"], None);
    assert!(!verify(&tls, &other.server(&["a.test"]), &[]));
}

#[test]
fn the_depth_counts_certificates_between_endpoint_and_anchor() {
    let root = authority("root", None);
    let middle = authority("middle", Some(&root));
    let leaf = middle.server(&["sni.test"]);
    let check = |depth_max: Option<u8>, admits: bool| {
        let tls = settings(&root, &[], depth_max);
        assert_eq!(verify(&tls, &leaf, std::slice::from_ref(&middle.der)), admits, "{depth_max:?}");
    };
    check(None, true);
    check(Some(0), false);
    check(Some(1), true);
    assert!(verify(&settings(&root, &[], Some(0)), &root.server(&["sni.test"]), &[]));
}
