//! `ldap-auth` and `ldap-auth-advanced` against OpenLDAP: binds, searches, TLS, outages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::harness::certs::{Authority, Pair, ecdsa};
use crate::harness::gateway::YUMEN;
use crate::harness::slapd::Slapd;
use crate::harness::{Gateway, Options, Scratch, Upstream, eventually, run};

const USERS: &str = "ou=users,dc=shop,dc=test";

/// A directory, and the authority that signed its certificate for `localhost`.
fn directory() -> (Slapd, Authority) {
    let authority = Authority::new("directory authority");
    let pair: Pair = authority.sign("localhost", &["localhost"], ecdsa());
    (Slapd::start(&pair), authority)
}

fn consumer(name: &str, dn: &str) -> Value {
    json!({ "username": name, "plugins": {
        "ldap-auth": { "user_dn": dn }, "ldap-auth-advanced": { "user_dn": dn },
    }})
}

fn resources(plugins: &Value, to: &Upstream) -> Value {
    json!({
        "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": to.alone() }],
        "consumers": [
            consumer("alice", &format!("cn=alice,{USERS}")),
            consumer("comma", &format!("cn=Comma\\, Inc,{USERS}")),
        ],
    })
}

/// A gateway that trusts the authority.
fn gateway(plugins: &Value, to: &Upstream, trusted: &Authority) -> Gateway {
    let scratch = Scratch::new();
    let trust = scratch.write("trust.pem", &trusted.cert);
    let routes = scratch.write("routes.yaml", resources(plugins, to).to_string());
    let options = Options { env: &[("SSL_CERT_FILE", &trust)], ..Options::default() };
    Gateway::launch(scratch, &options, &["--file", &routes])
}

/// The status and, behind an admitted request, the consumer that the upstream sees.
fn log_in(gateway: &Gateway, scheme: &str, credentials: &str) -> (u16, Option<String>) {
    let field = format!("Authorization: {scheme} {}\r\n", BASE64.encode(credentials));
    let reply = gateway.get_with("/", &field);
    let consumer = match reply.status {
        200 => reply.json()["fields"]["x-consumer-username"].as_str().map(str::to_owned),
        _ => None,
    };
    (reply.status, consumer)
}

fn admitted(consumer: &str) -> (u16, Option<String>) {
    (200, Some(consumer.to_owned()))
}

#[test]
fn a_bind_with_the_name_and_password_of_the_client_decides() {
    let ((slapd, authority), upstream) = (directory(), Upstream::echo("a"));
    for settings in [
        json!({ "ldap_uri": slapd.plain.to_string() }),
        json!({ "ldap_uri": slapd.secure.to_string(), "use_tls": true }),
        json!({ "ldap_uri": format!("localhost:{}", slapd.secure.port()), "use_tls": true, "tls_verify": true }),
    ] {
        let mut plugin = json!({ "base_dn": USERS });
        plugin.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let gateway = gateway(&json!({ "ldap-auth": plugin }), &upstream, &authority);
        let log_in = |credentials: &str| log_in(&gateway, "Basic", credentials);
        // Twice, as the second bind is on a connection that was bound before.
        for _ in 0..2 {
            assert_eq!(log_in("alice:wonder:land"), admitted("alice"), "{settings}");
            assert_eq!(log_in("Comma, Inc:comma"), admitted("comma"));
            // An anonymous bind would succeed.
            for refused in
                ["alice:", "alice:wonder", "zoe:wonder:land", "*:wonder:land", "alice:wonder:land "]
            {
                assert_eq!(log_in(refused), (401, None), "{refused}");
            }
        }
        // A user of the directory without a consumer.
        assert_eq!(log_in("bob:builder"), (401, None));
    }
}

#[test]
fn a_search_finds_the_only_entry_with_the_name() {
    let ((slapd, authority), upstream) = (directory(), Upstream::echo("a"));
    let secure = format!("localhost:{}", slapd.secure.port());
    let plain = format!("localhost:{}", slapd.plain.port());
    for settings in [
        json!({ "ldap_uri": plain, "use_starttls": true }),
        json!({ "ldap_uri": secure, "use_ldaps": true, "bind_dn": "cn=reader,dc=shop,dc=test", "ldap_password": "reads" }),
        json!({ "ldap_uri": plain, "keepalive": false }),
    ] {
        let mut plugin = json!({ "base_dn": "dc=shop,dc=test", "attribute": "uid" });
        plugin.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let gateway = gateway(&json!({ "ldap-auth-advanced": plugin }), &upstream, &authority);
        let log_in = |credentials: &str| log_in(&gateway, "ldap", credentials);
        for _ in 0..2 {
            assert_eq!(log_in("a1:wonder:land"), admitted("alice"), "{settings}");
            // The name has characters of filters.
            assert_eq!(log_in("c*(a):comma"), admitted("comma"));
            for refused in [
                "a1:",
                "a1:wrong",
                "twin:builder",
                "*:wonder:land",
                "a*:wonder:land",
                "x)(uid=a1:wonder:land",
            ] {
                assert_eq!(log_in(refused), (401, None), "{refused}");
            }
        }
    }
}

#[test]
fn users_without_a_consumer_pass_where_none_is_required() {
    let ((slapd, authority), upstream) = (directory(), Upstream::echo("a"));
    let plugin = json!({
        "ldap_uri": slapd.plain.to_string(), "base_dn": USERS, "header_type": "basic", "consumer_required": false,
    });
    let gateway = gateway(&json!({ "ldap-auth-advanced": plugin }), &upstream, &authority);
    assert_eq!(log_in(&gateway, "Basic", "bob:builder"), (200, None));
    assert_eq!(log_in(&gateway, "Basic", "bob:wrong"), (401, None));
}

#[test]
fn a_directory_that_cannot_be_trusted_or_reached_admits_nobody() {
    let ((mut slapd, authority), upstream) = (directory(), Upstream::echo("a"));
    let settings = |more: Value| {
        let mut plugin = json!({ "base_dn": USERS, "timeout": 2000, "header_type": "basic" });
        plugin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "ldap-auth-advanced": plugin })
    };
    let plain = format!("localhost:{}", slapd.plain.port());
    let stranger = Authority::new("stranger");
    for more in [
        // The certificate is for another name.
        json!({ "ldap_uri": slapd.secure.to_string(), "use_ldaps": true }),
        // TLS on a port without it.
        json!({ "ldap_uri": plain, "use_ldaps": true }),
        json!({ "ldap_uri": plain, "bind_dn": "cn=reader,dc=shop,dc=test", "ldap_password": "wrong" }),
        json!({ "ldap_uri": plain, "base_dn": "ou=gone,dc=shop,dc=test" }),
    ] {
        let gateway = gateway(&settings(more.clone()), &upstream, &authority);
        assert_eq!(log_in(&gateway, "Basic", "alice:wonder:land"), (500, None), "{more}");
    }
    for more in [
        json!({ "ldap_uri": format!("localhost:{}", slapd.secure.port()), "use_ldaps": true }),
        json!({ "ldap_uri": plain, "use_starttls": true }),
    ] {
        let gateway = gateway(&settings(more.clone()), &upstream, &stranger);
        assert_eq!(log_in(&gateway, "Basic", "alice:wonder:land"), (500, None), "{more}");
    }
    let gateway = gateway(&settings(json!({ "ldap_uri": plain })), &upstream, &authority);
    assert_eq!(log_in(&gateway, "Basic", "alice:wonder:land"), admitted("alice"));
    slapd.kill();
    assert_eq!(log_in(&gateway, "Basic", "alice:wonder:land"), (500, None));
    eventually("the operator has the reason", 5, || gateway.log().contains("the directory is out of reach"));
    slapd.restart();
    // The kept connection ended with the server.
    assert_eq!(log_in(&gateway, "Basic", "alice:wonder:land"), admitted("alice"));
    assert!(!gateway.log().contains("wonder"), "no password is logged");
}

#[test]
fn explain_names_the_question_to_the_directory() {
    let scratch = Scratch::new();
    let upstream = Upstream::text("ok");
    let plugins = json!({ "ldap-auth": { "ldap_uri": "ldap.test", "base_dn": USERS } });
    let file = scratch.write("routes.yaml", resources(&plugins, &upstream).to_string());
    let field = format!("Authorization: Basic {}", BASE64.encode("alice:secret"));
    let (code, out, err) = run(YUMEN, &["explain", "/a", "--file", &file, "--header", &field]);
    assert!(
        out.contains(&format!("binds as cn=alice,{USERS} to ldap://ldap.test:389")),
        "{code}\n{out}\n{err}"
    );
    assert!(!out.contains("secret"), "{out}");
}
