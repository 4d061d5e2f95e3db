use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CrlIssuingDistributionPoint, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};
use yumen_snapshot::UpstreamTls;
use yumen_snapshot::compile::ClientCertRules;

use super::super::clients::ClientCertChecker;
use super::super::sessions::UpstreamTlsClient;
use super::super::upstream::shared_client;
use super::*;

/// The first second of a year, in seconds since the Unix epoch.
fn year(year: i32) -> i64 {
    date_time_ymd(year, 1, 1).unix_timestamp()
}

fn at(of_year: i32) -> UnixTime {
    unix_time(year(of_year))
}

/// The serial number of the end entity's certificate.
const PERSON: u8 = 77;

/// An authority valid from one year to another; all have the same name.
struct Made {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(key: &KeyPair, (from, until): (i32, i32)) -> Made {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "people");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.serial_number = Some(SerialNumber::from(vec![9]));
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let made = params.self_signed(key).unwrap();
    let key = KeyPair::from_pem(&key.serialize_pem()).unwrap();
    Made { pem: made.pem(), der: made.der().clone(), issuer: Issuer::new(params, key) }
}

impl Made {
    fn issue_client(&self) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["ada".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(vec![PERSON]));
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
    }

    fn server(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (cert, key.serialize_der().try_into().unwrap())
    }

    fn list(&self, revoked: &[u8], term: (i32, i32)) -> String {
        self.numbered_list(1, revoked, term, None)
    }

    /// A list, for one distribution point if given.
    fn numbered_list(
        &self,
        number: u64,
        revoked: &[u8],
        (from, until): (i32, i32),
        point: Option<&str>,
    ) -> String {
        let point = point.map(|uri| CrlIssuingDistributionPoint {
            distribution_point: CrlDistributionPoint { uris: vec![uri.to_owned()] },
            scope: None,
        });
        let one = |serial: &u8| RevokedCertParams {
            serial_number: SerialNumber::from(vec![*serial]),
            revocation_time: date_time_ymd(from, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: point,
            revoked_certs: revoked.iter().map(one).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// The error that rejects a certificate, in the words of the library.
fn refused(given: &str, leaf: &CertificateDer<'_>, revoked: &str, now: UnixTime) -> String {
    let revoked =
        if revoked.is_empty() { RevocationLists::default() } else { RevocationLists::read(revoked).unwrap() };
    let authorities = TrustedAuthorities::read(given).unwrap();
    let error = authorities.verify(leaf, &[], now, KeyUsage::client_auth(), &revoked);
    let error = error.err().map(|error| format!("{error:?}")).unwrap_or_default();
    error.split([' ', '(']).next().unwrap_or_default().to_owned()
}

#[test]
fn an_authority_vouches_for_others_in_its_time() {
    let key = KeyPair::generate().unwrap();
    let (old, new) = (authority(&key, (2010, 2020)), authority(&key, (2018, 2030)));
    let other = authority(&KeyPair::generate().unwrap(), (2000, 2090));
    let ada = old.issue_client();
    let check = |given: &[&Made], now: i32, expected: &str| {
        let pem: String = given.iter().map(|one| &*one.pem).collect();
        assert_eq!(refused(&pem, &ada, "", at(now)), expected, "{now}");
    };
    check(&[&old], 2009, "CertNotValidYet");
    check(&[&old], 2010, "");
    check(&[&old], 2020, "");
    check(&[&old], 2021, "CertExpired");
    // The same authority with another validity period, in either order.
    for both in [[&old, &new], [&new, &old]] {
        check(&both, 2015, "");
        check(&both, 2025, "");
        check(&both, 2031, "CertExpired");
    }
    // An authority of the same name with another key.
    check(&[&other], 2025, "InvalidSignatureForPublicKey");
    check(&[&other, &old], 2025, "CertExpired");
    check(&[&other, &new], 2025, "");
}

#[test]
fn a_certificate_that_was_itself_given_holds_in_its_time_and_until_it_is_revoked() {
    let own = authority(&KeyPair::generate().unwrap(), (2010, 2020));
    let other = authority(&KeyPair::generate().unwrap(), (2010, 2020));
    let check = |given: &str, revoked: &str, now: i32, expected: &str| {
        assert_eq!(refused(given, &own.der, revoked, at(now)), expected, "{now}");
    };
    check(&own.pem, "", 2015, "");
    check(&(other.pem.clone() + &own.pem), "", 2015, "");
    check(&other.pem, "", 2015, "CaUsedAsEndEntity");
    check(&own.pem, "", 2009, "CertNotValidYet");
    check(&own.pem, "", 2021, "CertExpired");
    check(&own.pem, &own.list(&[8], (2014, 2016)), 2015, "");
    check(&own.pem, &own.list(&[8, 9], (2014, 2016)), 2015, "CertRevoked");
    check(&own.pem, &own.list(&[8], (2013, 2014)), 2015, "CrlExpired");
    check(&own.pem, &(own.list(&[8], (2013, 2014)) + &own.list(&[8], (2014, 2016))), 2015, "");
}

#[test]
fn a_list_refuses_all_it_speaks_of_once_its_next_is_due() {
    let authority = authority(&KeyPair::generate().unwrap(), (2010, 2090));
    let ada = authority.issue_client();
    let check = |lists: &[String], now: i32, expected: &str| {
        assert_eq!(refused(&authority.pem, &ada, &lists.concat(), at(now)), expected, "{now}");
    };
    let (old, new) = (authority.list(&[1], (2014, 2016)), authority.list(&[1], (2015, 2020)));
    check(std::slice::from_ref(&old), 2015, "");
    check(std::slice::from_ref(&old), 2016, "CrlExpired");
    check(&[old.clone(), new.clone()], 2016, "");
    check(&[new.clone(), old.clone()], 2016, "");
    check(&[new.clone(), old.clone()], 2020, "CrlExpired");
    let lists = RevocationLists::read(&(old + &new)).unwrap();
    let ends: Vec<i64> = lists.terms().map(|term| term.until_unix_s).collect();
    assert_eq!(ends, [year(2020)], "the older one is in force no more");
}

#[test]
fn of_lists_of_one_authority_the_newest_counts() {
    let authority = authority(&KeyPair::generate().unwrap(), (2010, 2090));
    let ada = authority.issue_client();
    // In either order.
    let check = |one: &str, other: &str, now: i32, expected: &str, end: i32| {
        for lists in [format!("{one}{other}"), format!("{other}{one}")] {
            assert_eq!(refused(&authority.pem, &ada, &lists, at(now)), expected, "{now}");
            let lists = RevocationLists::read(&lists).unwrap();
            let ends: Vec<i64> = lists.terms().map(|term| term.until_unix_s).collect();
            assert_eq!(ends, [year(end)]);
        }
    };
    let numbered = |number, revoked: &[u8], term| authority.numbered_list(number, revoked, term, None);
    let for_long = numbered(1, &[], (2014, 2030));
    check(&for_long, &numbered(2, &[PERSON], (2015, 2017)), 2016, "CertRevoked", 2017);
    check(&for_long, &numbered(2, &[], (2015, 2017)), 2016, "", 2017);
    // After `nextUpdate` the status is unknown, and the older list is no better.
    check(&for_long, &numbered(2, &[], (2015, 2017)), 2017, "CrlExpired", 2017);
    // A certificate on hold is accepted again.
    check(&numbered(1, &[PERSON], (2014, 2030)), &numbered(2, &[], (2015, 2017)), 2016, "", 2017);
    // Of two lists of one moment, the one with the higher number counts, compared as a number; then the one
    // valid longer.
    check(
        &numbered(255, &[], (2015, 2030)),
        &numbered(256, &[PERSON], (2015, 2017)),
        2016,
        "CertRevoked",
        2017,
    );
    check(&numbered(2, &[], (2015, 2017)), &numbered(2, &[PERSON], (2015, 2018)), 2016, "CertRevoked", 2018);
}

#[test]
fn a_list_for_some_certificates_of_an_authority_replaces_none_for_others() {
    let authority = authority(&KeyPair::generate().unwrap(), (2010, 2090));
    let ada = authority.issue_client();
    let list = |revoked: &[u8], from: i32, point| authority.numbered_list(1, revoked, (from, 2030), point);
    let (one, other) = (Some("http://a.test/1.crl"), Some("http://a.test/2.crl"));
    let check = |lists: &[String], expected: &str| {
        assert_eq!(refused(&authority.pem, &ada, &lists.concat(), at(2016)), expected);
    };
    let points = [None, one, other];
    for (point, newer) in points.iter().flat_map(|point| points.map(|newer| (*point, newer))) {
        let is_replaced = point == newer;
        let (old, new) = (list(&[PERSON], 2014, point), list(&[], 2015, newer));
        let expected = if is_replaced { "" } else { "CertRevoked" };
        check(&[old.clone(), new.clone()], expected);
        check(&[new, old], expected);
    }
}

/// Settings of an upstream that verifies against these authorities.
fn client(authorities: &str) -> Arc<UpstreamTlsClient> {
    let tls = UpstreamTls { verify: true, ca_pem: Some(authorities.into()), ..UpstreamTls::default() };
    shared_client(&tls, false).unwrap()
}

#[test]
fn sessions_are_forgotten_when_an_authority_begins_or_ends() {
    let key = KeyPair::generate().unwrap();
    let client = client(&[(2035, 2050), (2045, 2060)].map(|term| authority(&key, term).pem).concat());
    let mut before = client.config_at(at(2040));
    for (now, is_valid) in
        [(2042, true), (2045, false), (2049, true), (2050, true), (2051, false), (2059, true)]
    {
        let after = client.config_at(at(now));
        assert_eq!(Arc::ptr_eq(&before, &after), is_valid, "{now}");
        before = after;
    }
}

/// Performs a handshake. The server sends its ticket after `meanwhile`.
fn shake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, meanwhile: impl FnOnce()) -> HandshakeKind {
    let mut client = ClientConnection::new(client.clone(), "a.test".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    let mut flight = Vec::new();
    while client.is_handshaking() {
        client.write_tls(&mut flight).unwrap();
        server.read_tls(&mut &*std::mem::take(&mut flight)).unwrap();
        server.process_new_packets().unwrap();
        server.write_tls(&mut flight).unwrap();
        client.read_tls(&mut &*std::mem::take(&mut flight)).unwrap();
        client.process_new_packets().unwrap();
    }
    meanwhile();
    while client.wants_write() {
        client.write_tls(&mut flight).unwrap();
    }
    server.read_tls(&mut &*std::mem::take(&mut flight)).unwrap();
    server.process_new_packets().unwrap();
    while server.wants_write() {
        server.write_tls(&mut flight).unwrap();
    }
    client.read_tls(&mut &*flight).unwrap();
    client.process_new_packets().unwrap();
    client.handshake_kind().unwrap()
}

#[test]
fn a_session_that_comes_after_the_end_of_an_authority_is_not_resumed() {
    let key = KeyPair::generate().unwrap();
    // The library uses the system clock; both are valid today.
    let [old, new] = [(2010, 2090), (2010, 2095)].map(|term| authority(&key, term));
    let (cert, key) = old.server("a.test");
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    let (client, server) = (client(&(old.pem + &new.pem)), Arc::new(server));
    let shaken_at = |now: i32, meanwhile: &dyn Fn()| shake(&client.config_at(at(now)), &server, meanwhile);
    assert_eq!(shaken_at(2080, &|| {}), HandshakeKind::Full);
    assert_eq!(shaken_at(2081, &|| drop(client.config_at(at(2091)))), HandshakeKind::Resumed);
    assert_eq!(shaken_at(2092, &|| {}), HandshakeKind::Full);
    assert_eq!(shaken_at(2093, &|| {}), HandshakeKind::Resumed);
}

#[test]
fn a_key_proves_only_what_it_is_for() {
    use KeyUsagePurpose::{DigitalSignature, KeyAgreement, KeyCertSign, KeyEncipherment};
    let root = authority(&KeyPair::generate().unwrap(), (2010, 2090));
    let rules = ClientCertRules { ca: &root.pem, depth: 1, crl: None, is_optional: false };
    let clients = ClientCertChecker::new(&rules).unwrap_or_else(|(path, error)| panic!("{path}: {error}"));
    let of = |usages: &[KeyUsagePurpose], is_ca: IsCa| {
        let mut params = CertificateParams::new(vec!["ada".to_owned()]).unwrap();
        (params.key_usages, params.is_ca) = (usages.to_vec(), is_ca);
        params
    };
    let verify = |leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]| {
        let error = clients.verify(leaf, above, at(2026)).err().map(|error| format!("{error:?}"));
        error.unwrap_or_default().split([' ', '(']).next().unwrap_or_default().to_owned()
    };
    for (usages, expected) in [
        (&[][..], ""),
        (&[DigitalSignature], ""),
        (&[KeyAgreement], ""),
        (&[KeyEncipherment], "RequiredEkuNotFoundContext"),
    ] {
        let leaf = of(usages, IsCa::NoCa).signed_by(&KeyPair::generate().unwrap(), &root.issuer).unwrap();
        assert_eq!(verify(leaf.der(), &[]), expected, "{usages:?}");
    }
    for (usages, expected) in
        [(&[][..], ""), (&[KeyCertSign], ""), (&[DigitalSignature], "EndEntityUsedAsCa")]
    {
        let (params, key) =
            (of(usages, IsCa::Ca(BasicConstraints::Unconstrained)), KeyPair::generate().unwrap());
        let issuer = params.signed_by(&key, &root.issuer).unwrap().der().clone();
        let issue_client = of(&[], IsCa::NoCa);
        let leaf = issue_client.signed_by(&KeyPair::generate().unwrap(), &Issuer::new(params, key)).unwrap();
        assert_eq!(verify(leaf.der(), &[issuer]), expected, "{usages:?}");
    }
}
