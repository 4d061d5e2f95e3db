use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SigningKey,
};
use rustls::pki_types::CertificateDer;

use super::*;

/// An authority, a certificate of it, and the OCSP request for that.
struct World {
    issuer_key: KeyPair,
    issuer: CertificateDer<'static>,
    params: CertificateParams,
    request: OcspRequest,
}

/// 2026-01-01, in seconds since the Unix epoch.
const NOW: i64 = 1_767_225_600;

fn world() -> World {
    let issuer_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = params.self_signed(&issuer_key).unwrap().der().clone();
    let mut leaf = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    let address = value(0x86, b"http://ocsp.test/status");
    let access = [value(tag::OID, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]), address].concat();
    let access = value(tag::SEQUENCE, &value(tag::SEQUENCE, &access));
    leaf.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access)];
    let signed = leaf.signed_by(&KeyPair::generate().unwrap(), &Issuer::from_params(&params, &issuer_key));
    let request = OcspRequest::about(signed.unwrap().der(), &issuer).unwrap();
    World { issuer_key, issuer, params, request }
}

/// A response: `status` is a tag, times are `YYYYMMDD`; signed by `key`, with a certificate beside it.
fn answer(id: &[u8], status: u8, from: &str, until: &str, key: &KeyPair, extensions: &[u8]) -> Vec<u8> {
    let time = |day: &str| value(tag::GENERALIZED_TIME, format!("{day}000000Z").as_bytes());
    let single = [id.to_vec(), vec![status, 0], time(from), value(tag::context(0), &time(until))].concat();
    let all = value(tag::SEQUENCE, &value(tag::SEQUENCE, &single));
    let responder = value(tag::context(2), &value(tag::OCTET_STRING, &[7; 20]));
    let signed = value(tag::SEQUENCE, &[responder, time(from), all].concat());
    let ecdsa_sha256 = value(tag::OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
    let bits = [vec![0], key.sign(&signed).unwrap()].concat();
    let mut basic = [signed, value(tag::SEQUENCE, &ecdsa_sha256), value(tag::BIT_STRING, &bits)].concat();
    if !extensions.is_empty() {
        basic.extend(value(tag::context(0), &value(tag::SEQUENCE, extensions)));
    }
    let kind = value(tag::OID, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]);
    let bytes = [kind, value(tag::OCTET_STRING, &value(tag::SEQUENCE, &basic))].concat();
    let bytes = value(tag::context(0), &value(tag::SEQUENCE, &bytes));
    value(tag::SEQUENCE, &[value(tag::ENUMERATED, &[0]), bytes].concat())
}

#[test]
fn only_current_ocsp_responses_of_the_issuer_are_stapled() {
    let World { issuer_key, issuer, request, .. } = world();
    assert_eq!(request.url, "http://ocsp.test/status");
    let check = |answer: &[u8]| request.check(answer, &issuer, NOW);
    let refused = |answer: Vec<u8>, why: &str| assert_eq!(check(&answer), Err(why.to_owned()));
    let response = |status, from, until| answer(&request.id, status, from, until, &issuer_key, &[]);
    let good = response(0x80, "20251231", "20260107");
    let until = NOW + 6 * 86_400;
    let expected = OcspGoodResponse { this_update_unix_s: NOW - 86_400, next_update_unix_s: Some(until) };
    assert_eq!(check(&good), Ok(expected));
    refused(response(0xa1, "20251231", "20260107"), "the certificate is revoked");
    refused(response(0x82, "20251231", "20260107"), "the responder does not know the certificate");
    refused(response(0x80, "20251201", "20251207"), "it is out of date");
    refused(response(0x80, "20260102", "20260107"), "it is from the future");
    let mut other = request.id.clone();
    *other.last_mut().unwrap() ^= 1;
    let other = answer(&other, 0x80, "20251231", "20260107", &issuer_key, &[]);
    refused(other, "it is about another certificate");
    let stranger = KeyPair::generate().unwrap();
    let forged = answer(&request.id, 0x80, "20251231", "20260107", &stranger, &[]);
    refused(forged, "it is not signed by the certificate's issuer");
}

#[test]
fn an_answer_that_was_cut_or_altered_anywhere_is_not_shown() {
    let World { issuer_key, issuer, request, .. } = world();
    let whole = answer(&request.id, 0x80, "20251231", "20260107", &issuer_key, &[]);
    let good = request.check(&whole, &issuer, NOW).unwrap();
    for at in 0..whole.len() {
        assert!(request.check(&whole[..at], &issuer, NOW).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut altered = whole.clone();
            altered[at] ^= 1 << bit;
            // Unsigned bytes, such as the response type, affect nothing.
            let read = request.check(&altered, &issuer, NOW);
            assert!(read.as_ref().is_err() || read == Ok(good), "bit {bit} of byte {at}: {read:?}");
        }
    }
}

#[test]
fn the_issuer_may_let_another_key_answer() {
    let World { issuer_key, issuer, params, request } = world();
    let delegate_key = KeyPair::generate().unwrap();
    let delegate = |may_sign: bool, by: &KeyPair| {
        let mut one = CertificateParams::new(Vec::new()).unwrap();
        if may_sign {
            one.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        }
        one.signed_by(&delegate_key, &Issuer::from_params(&params, by)).unwrap().der().to_vec()
    };
    let check = |extensions: &[u8]| {
        let response = answer(&request.id, 0x80, "20251231", "20260107", &delegate_key, extensions);
        request.check(&response, &issuer, NOW).is_ok()
    };
    assert!(check(&delegate(true, &issuer_key)));
    assert!(!check(&delegate(false, &issuer_key)));
    assert!(!check(&delegate(true, &KeyPair::generate().unwrap())));
    assert!(!check(&[]));
}

#[test]
fn times_are_read() {
    let check = |text: &str, expected: Option<i64>| assert_eq!(time(text.as_bytes()), expected, "{text}");
    check("19700101000000Z", Some(0));
    check("20000229120000Z", Some(951_825_600));
    check("20261121151055Z", Some(1_795_273_855));
    check("20261321151055Z", None);
    check("2026112115105Z", None);
    check("202611211510555", None);
    check("20261121151055+0100", None);
}

#[test]
fn invalid_ocsp_responses_are_errors() {
    let request = OcspRequest { url: String::new(), body: Vec::new(), id: vec![0x30, 0] };
    let check = |answer: &[u8], expected: &str| {
        assert_eq!(request.check(answer, &[], 0), Err(expected.to_owned()), "{answer:02x?}");
    };
    check(b"", "not an OCSP response");
    check(b"<html>", "not an OCSP response");
    check(&[0x30, 3, 0x0a, 1, 3], "the OCSP responder is busy (tryLater)");
    check(&[0x30, 3, 0x0a, 1, 6], "the responder failed with status [6]");
    check(&[0x30, 3, 0x0a, 1, 0], "not an OCSP response");
    check(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x0a], "not an OCSP response");
}
