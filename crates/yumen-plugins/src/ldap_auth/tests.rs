use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use yumen_plugin::{
    DirectoryFault, DirectoryLogin, DirectoryQuery, DirectoryReply, DirectoryResult, DirectorySecurity,
};

use crate::testing::{PluginBench, TestReply};

/// A bench whose directory gives this answer to every query.
fn bench(answer: DirectoryResult) -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice-consumer");
    bench.add_key(&alice, "ldap-auth", json!({"user_dn": "cn=alice,ou=users,dc=test"}), None);
    bench.host.directory = Some(answer);
    bench
}

fn settings(more: Value) -> Value {
    let mut settings = json!({"base_dn": "ou=users,dc=test", "ldap_uri": "ldap.test"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn run(bench: &PluginBench, more: Value, credentials: &str) -> TestReply {
    let plugin = bench.plugin("ldap-auth", settings(more));
    let field = STANDARD.encode(credentials);
    bench.run(&plugin, &format!("GET / HTTP/1.1\nAuthorization: Basic {field}"))
}

fn accepted(dn: &str) -> DirectoryResult {
    Ok(DirectoryReply::Accepted { dn: dn.to_owned() })
}

#[track_caller]
fn check_refused(reply: &TestReply, message: &str) {
    assert_eq!((reply.status, reply.body.clone()), (401, format!("{{\"message\":\"{message}\"}}\n")));
    assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some("Basic realm=\"ldap\""));
    assert_eq!(reply.upstream, None);
}

#[test]
fn a_bind_leads_to_the_consumer_with_this_name() {
    let bench = bench(accepted("cn=alice,ou=users,dc=test"));
    let reply = run(&bench, json!({}), "alice:se:cret");
    assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice-consumer"));
    assert!(reply.upstream_field("Authorization").is_some());
    let (target, query) = bench.host.queries.take().remove(0);
    let login = DirectoryLogin { dn: "cn=alice,ou=users,dc=test".to_owned(), password: "se:cret".to_owned() };
    assert_eq!(query, DirectoryQuery::Bind(login));
    assert_eq!((target.port, target.security), (389, DirectorySecurity::Plain));
    let reply = run(&bench, json!({"hide_credentials": true, "use_tls": true}), "alice:se:cret");
    assert_eq!(reply.upstream_field("Authorization"), None);
    let target = &bench.host.queries.take()[0].0;
    assert_eq!((target.port, target.security, target.verify), (636, DirectorySecurity::Tls, false));
}

#[test]
fn requests_without_usable_credentials_never_reach_the_directory() {
    let bench = bench(accepted("cn=alice,ou=users,dc=test"));
    let plugin = bench.plugin("ldap-auth", settings(json!({})));
    check_refused(&bench.run(&plugin, "GET / HTTP/1.1"), "Missing authorization in request");
    for credentials in ["alice:", "alice", ":secret", "alice:\n"] {
        check_refused(&run(&bench, json!({}), credentials), "Invalid authorization in request");
    }
    assert!(bench.host.queries.borrow().is_empty());
}

#[test]
fn refusals_and_faults_of_the_directory_refuse_the_request() {
    let unreachable = DirectoryFault::Unreachable("refused".to_owned());
    for answer in [
        Ok(DirectoryReply::Refused),
        Err(DirectoryFault::Busy),
        Err(DirectoryFault::Timeout),
        Err(unreachable),
        // A user of the directory that is no consumer.
        accepted("cn=bob,ou=users,dc=test"),
    ] {
        check_refused(&run(&bench(answer), json!({}), "alice:secret"), "Invalid user authorization");
    }
}

#[test]
fn a_user_name_cannot_leave_its_place_in_the_distinguished_name() {
    let bench = bench(Ok(DirectoryReply::Refused));
    for (user, dn) in [
        ("alice,ou=admins", "cn=alice\\,ou\\=admins,ou=users,dc=test"),
        ("alice+uid=root", "cn=alice\\+uid\\=root,ou=users,dc=test"),
        ("*", "cn=*,ou=users,dc=test"),
    ] {
        run(&bench, json!({}), &format!("{user}:secret"));
        let (_, query) = bench.host.queries.take().remove(0);
        let DirectoryQuery::Bind(login) = query else { panic!("{query:?}") };
        assert_eq!(login.dn, dn);
    }
}

#[test]
fn an_invalid_address_is_refused() {
    let bench = PluginBench::new();
    let refused = bench.build("ldap-auth", settings(json!({"ldap_uri": "ldap://a"}))).err().expect("refused");
    assert_eq!(refused.path, "ldap_uri");
}
