use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, ServerConnection, SignatureScheme};
use serde_json::json;
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::compile::{Compiler, CompilerEnv, ConfigChange, TlsLoader, UpstreamDefaults};

use super::*;

/// A self-signed certificate and its key, PEM.
fn pair(name: &str, key: &KeyPair) -> (String, String) {
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.self_signed(key).unwrap().pem(), key.serialize_pem())
}

fn ecdsa() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

/// Settings with a certificate for each of these names.
fn acceptor_for(names: &[&str]) -> DownstreamTlsAcceptor {
    let env = CompilerEnv {
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 1,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(CertificateLoader::default()),
        sinks: None,
    };
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let mut compiler = Compiler::new(registry, Arc::new(Carry::default()), env);
    let put = |name: &&str| {
        let (cert, key) = pair(name, &ecdsa());
        let value = json!({ "cert": cert, "key": key, "snis": [name] });
        ConfigChange::Put(Resource::new(Kind::Ssls, name, &value))
    };
    let compiled = compiler.apply(names.iter().map(put).collect(), 1);
    assert_eq!(compiled.problems, []);
    let publisher = Arc::new(Publisher::default());
    publisher.publish(compiled.snapshot);
    acceptor(DownstreamTlsSettings {
        publisher,
        default: None,
        versions: TlsVersions { tls12: true, tls13: true },
        ciphers: Vec::new(),
        http2: false,
        tickets: None,
        sessions_max: 0,
        challenges: Arc::default(),
    })
    .unwrap()
}

/// The bytes on the wire, and the negotiated group.
#[derive(Debug)]
struct Flights {
    client_hello_bytes: usize,
    server_hello_bytes: usize,
    group: String,
}

fn shake_hands(
    acceptor: &DownstreamTlsAcceptor,
    name: &str,
    groups: &[&'static dyn SupportedKxGroup],
) -> Flights {
    shake_hands_with(acceptor, name, groups, upstream::unverified())
}

fn shake_hands_with(
    acceptor: &DownstreamTlsAcceptor,
    name: &str,
    groups: &[&'static dyn SupportedKxGroup],
    verifier: Arc<dyn ServerCertVerifier>,
) -> Flights {
    let offered = CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() };
    let config = ClientConfig::builder_with_provider(Arc::new(offered))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
    let variant = TlsVariant { streams: false, clients_order: false };
    let config = acceptor.shared.config(variant, None).unwrap();
    let mut server = ServerConnection::new(config).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    server.read_tls(&mut &hello[..]).unwrap();
    server.process_new_packets().unwrap();
    let mut answer = Vec::new();
    server.write_tls(&mut answer).unwrap();
    let server_hello_bytes = usize::from(u16::from_be_bytes([answer[3], answer[4]]));
    client.read_tls(&mut &answer[..]).unwrap();
    client.process_new_packets().unwrap();
    let group = client.negotiated_key_exchange_group().unwrap().name();
    Flights { client_hello_bytes: hello.len(), server_hello_bytes, group: group.as_str().unwrap().to_owned() }
}

#[test]
fn keys_are_exchanged_so_that_a_quantum_computer_does_not_undo_it() {
    use aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};
    let acceptor = acceptor_for(&["a.test"]);
    let classic = shake_hands(&acceptor, "a.test", &[X25519]);
    let hybrid = shake_hands(&acceptor, "a.test", &[X25519MLKEM768]);
    assert_eq!((classic.group.as_str(), hybrid.group.as_str()), ("X25519", "X25519MLKEM768"));
    // An ML-KEM-768 key has 1184 bytes, its ciphertext 1088 (FIPS 203 §8).
    assert_eq!(hybrid.client_hello_bytes - classic.client_hello_bytes, 1184);
    assert_eq!(hybrid.server_hello_bytes - classic.server_hello_bytes, 1088);
    // The server prefers this group over the client's order, if the client has sent a key share of it.
    let both = shake_hands(&acceptor, "a.test", &[X25519MLKEM768, SECP256R1]);
    assert_eq!(both.group, "X25519MLKEM768");
    assert_eq!(provider::provider().kx_groups[0].name().as_str(), Some("X25519MLKEM768"));
}

#[test]
fn a_certificate_is_made_ready_by_its_first_handshake_and_no_other() {
    let acceptor = acceptor_for(&["a.test", "b.test", "c.test"]);
    let ready = || {
        let snapshot = acceptor.shared.settings.publisher.load();
        ["a.test", "b.test", "c.test"].map(|name| {
            let certificate = snapshot.certificate(name).unwrap();
            certificate.keys[0].downcast_ref::<CertificateKeyPair>().unwrap().is_ready()
        })
    };
    assert_eq!(ready(), [false; 3]);
    shake_hands(&acceptor, "b.test", &[aws_lc_rs::kx_group::X25519]);
    assert_eq!(ready(), [false, true, false]);
}

/// Accepts any certificate, and records its staple.
#[derive(Debug)]
struct Reader {
    any: Arc<dyn ServerCertVerifier>,
    staple: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Reader {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.staple.lock().unwrap() = ocsp_response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.any.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.any.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.any.supported_verify_schemes()
    }
}

#[test]
fn a_staple_is_shown_until_it_ends_and_not_longer() {
    let acceptor = acceptor_for(&["a.test"]);
    let snapshot = acceptor.shared.settings.publisher.load();
    let pair = snapshot.certificate("a.test").unwrap().keys[0].downcast_ref::<CertificateKeyPair>().unwrap();
    let shown_after = |seconds: u64| {
        crate::runtime::clock::simulate(seconds * 1_000_000);
        let reader = Arc::new(Reader { any: upstream::unverified(), staple: Mutex::default() });
        shake_hands_with(&acceptor, "a.test", &[aws_lc_rs::kx_group::X25519], reader.clone());
        let shown = reader.staple.lock().unwrap().clone();
        String::from_utf8(shown).unwrap()
    };
    assert_eq!(shown_after(0), "");
    let began_unix_s = (crate::runtime::clock::now().unix_ms / 1000) as i64;
    pair.staple(b"first".to_vec(), began_unix_s + 60);
    assert_eq!((shown_after(0), shown_after(59)), ("first".to_owned(), "first".to_owned()));
    // No new staple is fetched, as during a long outage of the responder.
    assert_eq!((shown_after(60), shown_after(61)), (String::new(), String::new()));
    pair.staple(b"second".to_vec(), began_unix_s + 120);
    assert_eq!((shown_after(119), shown_after(3600)), ("second".to_owned(), String::new()));
}

#[test]
fn certificates_are_read_whatever_the_kind_of_their_key() {
    let loader = CertificateLoader::default();
    let keys = [&PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256];
    for kind in keys {
        let (cert, key) = pair("a.test", &KeyPair::generate_for(kind).unwrap());
        let read = loader.pair(&cert, &key).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let read = read.downcast::<CertificateKeyPair>().unwrap();
        assert!(!read.is_ready());
        read.ready(0).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[test]
fn unusable_certificates_are_refused_at_load() {
    let (cert, key) = pair("a.test", &ecdsa());
    let (rsa, rsa_key) = pair("a.test", &KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap());
    let (_, other) = pair("a.test", &ecdsa());
    let (_, other_rsa) = pair("a.test", &KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap());
    let (_, edwards) = pair("a.test", &KeyPair::generate_for(&PKCS_ED25519).unwrap());
    let garbage = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    let check = |cert: &str, key: &str, expected: &str| {
        let error = CertificateLoader::default().pair(cert, key).err().map(|flaw| flaw.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with(expected), "{error:?} instead of {expected:?}");
    };
    let of_another = "the private key is not that of the certificate";
    check("", &key, "no certificate");
    check("nothing", &key, "no certificate");
    check(&cert, "nothing", "the private key is not PEM");
    check(&garbage("CERTIFICATE"), &key, "the certificate is not X.509");
    check(&format!("{cert}{}", garbage("CERTIFICATE")), &key, "the chain is not X.509");
    check(&cert, &garbage("PRIVATE KEY"), "the private key cannot be used");
    check(&cert, &other, of_another);
    check(&cert, &rsa_key, of_another);
    check(&rsa, &key, of_another);
    check(&rsa, &other_rsa, of_another);
    check(&cert, &edwards, of_another);
}

#[test]
fn an_error_carries_nothing_of_a_key() {
    let (cert, key) = pair("a.test", &ecdsa());
    let armor = |text: &str| text.starts_with("-----");
    let secrets: Vec<&str> = key.lines().filter(|line| !armor(line)).collect();
    let check = |cert: &str, broken: &str| {
        let message = CertificateLoader::default().pair(cert, broken).expect_err("it is broken").to_string();
        let numbers = |text: &str| text.bytes().take(8).map(|byte| byte.to_string()).collect::<Vec<_>>();
        for secret in &secrets {
            assert!(!message.contains(&secret[..8]), "{message}");
            assert!(!message.contains(&numbers(secret).join(", ")), "{message}");
        }
    };
    let variants = [
        key.replace('\n', ""),
        key.replace('\n', " "),
        key.trim().replace('\n', "\\n"),
        key.replace("-----END PRIVATE KEY-----", ""),
        key.replace("-----END PRIVATE KEY-----", "-----END PRIVATE KEY"),
        key.replace("KEY-----\n", "KEY---\n"),
        key.replace("-----\n", "-----"),
        key.replacen(secrets[0], &format!("{}*", secrets[0]), 1),
        key.replace("PRIVATE KEY", "CERTIFICATE"),
        secrets.concat(),
    ];
    for variant in &variants {
        check(&cert, variant);
        // Certificate and key swapped, or both in one file.
        check(variant, &key);
        check(&format!("{}{variant}", cert.replace('\n', "")), variant);
        for read in [
            super::authorities::TrustedAuthorities::read(variant).err(),
            super::certificate_key_pair::load(&cert, variant).err().map(|flaw| flaw.to_string()),
        ] {
            let message = read.unwrap_or_default();
            assert!(
                secrets.iter().all(|secret| !message.contains(&secret[..8])) && !message.contains('['),
                "{message}"
            );
        }
    }
}

#[test]
fn alike_rules_are_one_and_what_stands_in_many_chains_is_kept_once() {
    let loader = CertificateLoader::default();
    let (above, _) = pair("issuer", &ecdsa());
    let read = |name: &str| {
        let (cert, key) = pair(name, &ecdsa());
        loader.pair(&(cert + &above), &key).unwrap().downcast::<CertificateKeyPair>().unwrap()
    };
    let (one, other) = (read("a.test"), read("b.test"));
    assert!(std::ptr::eq(one.issuer().unwrap(), other.issuer().unwrap()));
    let rules = |tls12| {
        let written = yumen_snapshot::compile::HandshakeRules {
            versions: Some((tls12, true)),
            ciphers: None,
            client: None,
        };
        loader.rules(&written).unwrap()
    };
    let first = rules(false);
    assert!(Arc::ptr_eq(&first, &rules(false)));
    assert!(!Arc::ptr_eq(&first, &rules(true)));
}

#[test]
fn suites_are_named_as_openssl_or_iana_name_them() {
    let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let found = provider::suites(&names(&["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384"])).unwrap();
    let ids: Vec<u16> = found.iter().map(|suite| suite.suite().into()).collect();
    assert_eq!(ids, [0xc02f, 0x1302]);
    let iana = provider::suites(&names(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])).unwrap();
    assert_eq!(u16::from(iana[0].suite()), 0xc02f);
    let error = provider::suites(&names(&["DES-CBC3-SHA"])).unwrap_err();
    assert!(
        error.starts_with("`DES-CBC3-SHA` is not supported; supported: TLS_AES_256_GCM_SHA384, "),
        "{error}"
    );
    // A list of suites for one version leaves the other version unchanged.
    let all = provider::with_suites(&iana).cipher_suites.clone();
    assert_eq!(all.iter().filter(|suite| suite.tls13().is_some()).count(), 3);
    assert_eq!(all.iter().filter(|suite| suite.tls13().is_none()).count(), 1);
}
