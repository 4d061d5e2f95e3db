use yumen_plugin::{ClientPair, SinkTls};

use super::{KNOWN_MAX, TlsClients};

#[test]
fn trust_anchors_and_client_certificates_are_read_or_named_as_the_fault() {
    let pair = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let (cert, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let client =
        |chain: &str, key: &str| Some(ClientPair { chain_pem: chain.to_owned(), key_pem: key.to_owned() });
    let settings = |ca: Option<&str>, client| SinkTls {
        verify: true,
        server_name: None,
        ca_pem: ca.map(str::to_owned),
        client,
    };
    for (settings, expected) in [
        (settings(Some(&cert), None), None),
        (settings(Some(&cert), client(&cert, &key)), None),
        (SinkTls { verify: false, ..settings(None, client(&cert, &key)) }, None),
        (settings(Some("k"), None), Some("trust anchor: no line `-----BEGIN ...-----`")),
        (
            settings(Some(&key), None),
            Some("trust anchor: the content is not base64, or not of the expected type"),
        ),
        (settings(Some(&cert), client("s3cr3t", &key)), Some("client certificate: ")),
        (settings(Some(&cert), client(&cert, "s3cr3t")), Some("key of the client certificate: no line")),
    ] {
        let found = TlsClients::default().get(&settings).err();
        let is_expected = match (&found, expected) {
            (Some(found), Some(expected)) => found.starts_with(expected) && !found.contains("s3cr3t"),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{found:?}, expected {expected:?}");
    }
}

#[test]
fn configurations_are_shared_and_their_number_is_bounded() {
    let clients = TlsClients::default();
    let named = |number: usize| SinkTls { server_name: Some(format!("{number}.test")), ..SinkTls::default() };
    let first = clients.get(&named(0)).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &clients.get(&named(0)).unwrap()));
    for number in 1..=KNOWN_MAX {
        clients.get(&named(number)).unwrap();
    }
    assert_eq!(clients.known.lock().unwrap().len(), 1);
}
