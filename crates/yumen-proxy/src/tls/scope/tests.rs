use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use yumen_config::Kind;
use yumen_snapshot::compile::ConfigChange;

use super::*;
use crate::tls::scoped_tls::{
    ScopedTls, TestAuthority, certificate, client, connection, listener, run, scope as scope_with,
};
use crate::tls::{AcceptedTls, HandshakeRefusal};

/// A finished handshake.
#[derive(Debug)]
struct Shaken {
    info: TlsInfo,
    /// The DNS name in the server's certificate.
    shown: String,
}

/// Performs a handshake on a listener; the error is that of the server and of the client.
async fn shake(
    acceptor: &DownstreamTlsAcceptor,
    client: &TlsConnector,
    sni: &str,
) -> Result<Shaken, [String; 2]> {
    let (near, far, _) = connection();
    let name = sni.to_owned().try_into().unwrap();
    let (accepted, connected) = tokio::join!(acceptor.accept(far), client.connect(name, near));
    let AcceptedTls { mut stream, info, .. } = match accepted {
        Ok(accepted) => accepted,
        Err(refused) => {
            let refused = match refused {
                HandshakeRefusal::NotTls(_) => "not TLS".to_owned(),
                HandshakeRefusal::UnknownName(name) => format!("unknown name {name}"),
                HandshakeRefusal::Failed(error) => error.to_string(),
            };
            // With TLS 1.3 the client learns of the refusal after its own handshake.
            let at_client = match connected {
                Ok(mut stream) => stream.read_u8().await.err(),
                Err(error) => Some(error),
            };
            return Err([refused, at_client.map_or_else(String::new, |error| error.to_string())]);
        }
    };
    let mut connected = connected.unwrap();
    // The ticket comes with the first bytes.
    stream.write_all(b"x").await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(connected.read_u8().await.unwrap(), b'x');
    let chain = connected.get_ref().1.peer_certificates().unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    let shown = names.value.general_names[0].to_string();
    let shown = shown.trim_start_matches("DNSName(").trim_end_matches(')').to_owned();
    Ok(Shaken { info, shown })
}

fn scope(id: &str, listener: &str, host: &str) -> ConfigChange {
    scope_with(id, listener, host, json!({}))
}

/// The value of `$ssl_client_verify`, and whether plugins see the certificate.
fn client_facts_of(info: &TlsInfo) -> (String, bool) {
    let mut text = Vec::new();
    info.verdict.append(&mut text);
    (String::from_utf8(text).unwrap(), info.certificate.is_some())
}

#[test]
fn each_mode_of_client_certificates_admits_and_shows_its_own() {
    let (known, unknown) = (TestAuthority::new("known"), TestAuthority::new("unknown"));
    const FAILED: &str = "FAILED:unable to get local issuer certificate";
    let none = Some(("NONE".to_owned(), false));
    let valid = Some(("SUCCESS".to_owned(), true));
    let invalid = |is_shown| Some((FAILED.to_owned(), is_shown));
    // Without a certificate, with a valid one, with one of another authority; `None` is a failed handshake.
    let modes = [
        ("require", [None, valid.clone(), None]),
        ("allow_insecure_fallback", [none.clone(), valid.clone(), invalid(false)]),
        ("optional", [none.clone(), valid.clone(), invalid(true)]),
        ("optional_no_ca", [none, valid, invalid(true)]),
    ];
    run(async {
        for (mode, expected) in modes {
            let tls = json!({ "client": { "ca": known.pem, "mode": mode } });
            let all = vec![listener("web", "https"), scope_with("s", "web", "", tls), certificate("c", "s")];
            let acceptor = ScopedTls::new(all).acceptor_of("web");
            let clients = [None, Some(known.issue()), Some(unknown.issue())];
            for (at, identity) in clients.into_iter().enumerate() {
                let shaken = shake(&acceptor, &client(identity, None), "a.test").await;
                let found = shaken.as_ref().ok().map(|shaken| client_facts_of(&shaken.info));
                assert_eq!(found, expected[at], "{mode}, client {at}: {shaken:?}");
            }
        }
    });
}

#[test]
fn the_certificate_is_that_of_the_scope() {
    let node = || json!({ "default_certificate": true });
    let made = ScopedTls::new(vec![
        listener("one", "https"),
        listener("two", "https"),
        scope("a", "one", "x.test"),
        scope("b", "one", ""),
        scope("c", "two", "x.test"),
        scope("bare", "two", "bare.test"),
        scope_with("node", "two", "node.test", node()),
        certificate("of-a", "a"),
        certificate("of-b", "b"),
        certificate("of-c", "c"),
    ]);
    run(async {
        let check = async |listener: &str, sni: &str, expected: Option<&str>| {
            let shaken = shake(&made.acceptor_of(listener), &client(None, None), sni).await;
            assert_eq!(shaken.as_ref().ok().map(|shaken| &*shaken.shown), expected, "{listener} {sni}");
            shaken
        };
        check("one", "x.test", Some("of-a")).await.unwrap();
        check("one", "X.test", Some("of-a")).await.unwrap();
        check("one", "y.test", Some("of-b")).await.unwrap();
        check("two", "x.test", Some("of-c")).await.unwrap();
        check("two", "node.test", Some("node")).await.unwrap();
        // The scope has no certificate, and may not show that of the node.
        let refused = check("two", "bare.test", None).await.unwrap_err();
        assert!(refused[0].contains("certificate"), "{refused:?}");
        let refused = check("two", "y.test", None).await.unwrap_err();
        assert_eq!(refused[0], "unknown name y.test");
        assert!(
            refused[1].contains("UnrecognisedName") || refused[1].contains("unrecognized"),
            "{refused:?}"
        );
    });
}

#[test]
fn a_handshake_follows_the_newest_snapshot() {
    let mut made =
        ScopedTls::new(vec![listener("web", "https"), scope("a", "web", ""), certificate("first", "a")]);
    run(async {
        let acceptor = made.acceptor_of("web");
        // A new client for each handshake: a resumed session shows no certificate.
        let handshake = async || shake(&acceptor, &client(None, None), "a.test").await;
        let shown = async || handshake().await.map(|shaken| shaken.shown);
        assert_eq!(shown().await.unwrap(), "first");
        made.apply(vec![ConfigChange::Delete(Kind::Ssls, "first".into()), certificate("second", "a")]);
        assert_eq!(shown().await.unwrap(), "second");
        made.apply(vec![scope_with("a", "web", "", json!({ "mode": "passthrough" }))]);
        assert_eq!(shown().await.unwrap_err()[0], "unknown name a.test");
        made.apply(vec![scope_with("a", "web", "", json!({ "versions": ["TLSv1.2"] }))]);
        assert_eq!(handshake().await.unwrap().info.version, "TLSv1.2");
        made.apply(vec![ConfigChange::Delete(Kind::Listeners, "web".into())]);
        assert_eq!(shown().await.unwrap_err()[0], "unknown name a.test");
    });
}

#[test]
fn rules_of_a_scope_find_no_certificate_of_the_next_scope_in_its_slot() {
    let mut made =
        ScopedTls::new(vec![listener("web", "https"), scope("a", "web", ""), certificate("c", "a")]);
    let rules = made.acceptor.shared.rules_on(made.number("web"), "a.test").expect("rules");
    let resolver = made.acceptor.shared.resolver_of(Some(&rules));
    let finds = |snapshot: &yumen_snapshot::Snapshot| resolver.find(snapshot, "a.test").is_some();
    assert!(finds(&made.publisher.load()));
    let changes =
        vec![ConfigChange::Delete(Kind::Scopes, "a".into()), scope("b", "web", ""), certificate("d", "b")];
    let next = made.apply(changes);
    let slot = next.scopes().next().expect("a scope").slot;
    assert_eq!((slot, next.scopes().count()), (rules.scope.as_ref().unwrap().slot(), 1));
    assert!(!finds(&next));
}

#[test]
fn a_session_is_resumed_in_its_scope_only() {
    let (authority, version) = (TestAuthority::new("known"), ["TLSv1.2", "TLSv1.3"]);
    let identity = authority.issue();
    run(async {
        for version in version {
            let open = || json!({ "versions": [version] });
            let closed = || json!({ "versions": [version], "client": { "ca": authority.pem } });
            let mut made = ScopedTls::new(vec![
                listener("one", "https"),
                listener("two", "https"),
                scope_with("a", "one", "", open()),
                scope_with("b", "two", "", open()),
                certificate("c", "a"),
                certificate("d", "b"),
            ]);
            let identity = Some((identity.0.clone(), identity.1.clone_key()));
            let client = client(identity, None);
            let resumes = async |acceptor: DownstreamTlsAcceptor| {
                let shaken = shake(&acceptor, &client, "x.test").await.unwrap();
                (shaken.info.is_resumed, client_facts_of(&shaken.info).0)
            };
            let none = |is_resumed| (is_resumed, "NONE".to_owned());
            assert_eq!(resumes(made.acceptor_of("one")).await, none(false), "{version}");
            assert_eq!(resumes(made.acceptor_of("one")).await, none(true), "{version}");
            assert_eq!(resumes(made.acceptor_of("two")).await, none(false), "another scope, {version}");
            assert_eq!(resumes(made.acceptor_of("two")).await, none(true), "{version}");
            made.apply(vec![scope_with("b", "two", "", closed())]);
            let two = || made.acceptor_of("two");
            assert_eq!(resumes(two()).await, (false, "SUCCESS".to_owned()), "other rules, {version}");
            assert_eq!(resumes(two()).await, (true, "SUCCESS".to_owned()), "{version}");
        }
    });
}

#[test]
fn cached_sessions_of_other_rules_are_not_found() {
    let shared: Arc<dyn StoresServerSessions> = rustls::server::ServerSessionMemoryCache::new(32);
    let of = |binding| BoundSessions { sessions: shared.clone(), binding };
    assert!(of(1).put(b"id".to_vec(), b"session".to_vec()));
    assert_eq!(of(1).get(b"id"), Some(b"session".to_vec()));
    assert_eq!((of(2).get(b"id"), of(2).take(b"id"), shared.get(b"id")), (None, None, None));
    assert_eq!((of(1).take(b"id"), of(1).get(b"id")), (Some(b"session".to_vec()), None));
}

#[test]
fn unusable_rules_of_a_scope_are_named_by_their_path() {
    let check = |tls: serde_json::Value, path: &str| {
        let made = ScopedTls::new(vec![listener("web", "https"), scope_with("s", "web", "", tls)]);
        assert_eq!(made.problems(), [format!("scopes/s at {path}")]);
        let snapshot = made.publisher.load();
        assert!(snapshot.scope_of_name(made.number("web"), "a.test").is_some_and(|scope| scope.is_broken()));
        assert!(made.acceptor.shared.rules_on(made.number("web"), "a.test").is_none());
    };
    let authority = TestAuthority::new("known").pem;
    check(json!({ "client": { "ca": "no certificate" } }), "tls.client.ca");
    check(json!({ "client": { "ca": authority, "crl": "x".repeat(128) } }), "tls.client.crl");
    check(json!({ "ciphers": ["DES-CBC3-SHA"] }), "tls.ciphers");
    check(json!({ "versions": ["TLSv1.1"] }), "tls.versions");
}
