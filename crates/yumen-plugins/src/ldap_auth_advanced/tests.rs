use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use yumen_plugin::{
    DirectoryFault, DirectoryLogin, DirectoryQuery, DirectoryReply, DirectoryResult, DirectorySecurity,
};

use crate::testing::{PluginBench, TestReply};

const DN: &str = "cn=alice,ou=users,dc=test";

fn bench(answer: DirectoryResult) -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice-consumer");
    bench.add_key(&alice, "ldap-auth-advanced", json!({"user_dn": DN}), Some("c1"));
    bench.host.directory = Some(answer);
    bench
}

fn settings(more: Value) -> Value {
    let mut settings = json!({"base_dn": "dc=test", "ldap_uri": "ldap.test:1389"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn run(bench: &PluginBench, more: Value, fields: &str) -> TestReply {
    let plugin = bench.plugin("ldap-auth-advanced", settings(more));
    bench.run(&plugin, &format!("GET / HTTP/1.1\n{fields}"))
}

fn ldap(credentials: &str) -> String {
    format!("Authorization: ldap {}", STANDARD.encode(credentials))
}

fn accepted() -> DirectoryResult {
    Ok(DirectoryReply::Accepted { dn: DN.to_owned() })
}

#[track_caller]
fn check_refused(reply: &TestReply, challenge: &str) {
    assert_eq!((reply.status, reply.body.as_str()), (401, "{\"message\":\"Authorization required\"}\n"));
    assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some(challenge));
}

#[test]
fn a_search_and_a_bind_lead_to_the_consumer() {
    let bench = bench(accepted());
    let more = json!({"bind_dn": "cn=reader,dc=test", "ldap_password": "pw", "use_starttls": true, "attribute": "uid"});
    let reply = run(&bench, more, &ldap("alice:se:cret"));
    assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice-consumer"));
    assert_eq!(reply.upstream_field("X-Credential-Identifier").as_deref(), Some("c1"));
    let (target, query) = bench.host.queries.take().remove(0);
    assert_eq!((target.port, target.security, target.verify), (1389, DirectorySecurity::StartTls, true));
    let DirectoryQuery::Search(search) = query else { panic!("{query:?}") };
    let reader = DirectoryLogin { dn: "cn=reader,dc=test".to_owned(), password: "pw".to_owned() };
    assert_eq!(search.searcher, Some(reader));
    assert_eq!((search.attribute.as_str(), search.name.as_str()), ("uid", "alice"));
    assert_eq!((search.password.as_str(), search.size_limit, search.time_limit_s), ("se:cret", 2, 5));
}

#[test]
fn the_proxy_field_goes_first_if_it_can_be_read() {
    let bench = bench(accepted());
    let proxy = |value: &str| format!("Proxy-Authorization: {value}\n{}", ldap("other:secret"));
    let good = proxy(&format!("LDAP {}", STANDARD.encode("alice:secret")));
    for (fields, name) in [(good, "alice"), (proxy("Basic eDp5"), "other")] {
        let reply = run(&bench, json!({}), &fields);
        assert!(reply.upstream_field("Authorization").is_some());
        let is_removed = reply.upstream_field("Proxy-Authorization").is_none();
        assert_eq!(is_removed, name == "alice");
        let (_, query) = bench.host.queries.take().remove(0);
        let DirectoryQuery::Search(search) = query else { panic!("{query:?}") };
        assert_eq!(search.name, name);
    }
}

#[test]
fn identities_of_the_client_are_removed_in_any_case() {
    let forged = "X-Consumer-Username: admin\nX_Consumer_Username: admin\nX-Authenticated-Groups: root\n\
                  X-Consumer-Custom-ID: 1\nX-Credential-Identifier: admin\n";
    let bench = bench(Ok(DirectoryReply::Accepted { dn: "cn=guest,dc=test".to_owned() }));
    let reply = run(&bench, json!({"consumer_required": false}), &format!("{forged}{}", ldap("guest:pw")));
    for name in
        ["X-Consumer-Username", "X_Consumer_Username", "X-Authenticated-Groups", "X-Consumer-Custom-ID"]
    {
        assert_eq!(reply.upstream_field(name), None, "{name}");
    }
    assert_eq!(reply.upstream_field("X-Credential-Identifier").as_deref(), Some("guest"));
    check_refused(&run(&bench, json!({}), &ldap("guest:pw")), "ldap realm=\"ldap\"");
}

#[test]
fn users_without_a_unique_entry_or_the_right_password_are_refused() {
    for answer in [DirectoryReply::Refused, DirectoryReply::NotUnique] {
        let more = json!({"header_type": "basic", "realm": "r", "consumer_required": false});
        let fields = format!("Authorization: Basic {}", STANDARD.encode("alice:pw"));
        check_refused(&run(&bench(Ok(answer)), more, &fields), "Basic realm=\"r\"");
    }
}

#[test]
fn requests_without_usable_credentials_never_reach_the_directory() {
    let bench = bench(accepted());
    for fields in
        [String::new(), ldap("alice:"), ldap("alice"), ldap(":pw"), "Authorization: Basic YTpi".to_owned()]
    {
        check_refused(&run(&bench, json!({}), &fields), "ldap realm=\"ldap\"");
    }
    assert!(bench.host.queries.borrow().is_empty());
}

#[test]
fn trouble_of_the_directory_is_no_refusal() {
    for fault in [DirectoryFault::Busy, DirectoryFault::Timeout, DirectoryFault::Failed("busy".to_owned())] {
        let reply = run(&bench(Err(fault)), json!({}), &ldap("alice:secret"));
        assert_eq!((reply.status, reply.upstream), (500, None));
    }
}

#[test]
fn contradictory_settings_are_refused() {
    for (more, path) in [
        (json!({"use_ldaps": true, "use_starttls": true}), "use_starttls"),
        (json!({"bind_dn": "cn=a"}), "ldap_password"),
        (json!({"ldap_password": "a"}), "bind_dn"),
        (json!({"ldap_uri": "a:b"}), "ldap_uri"),
        (json!({"attribute": "cn)(uid=*"}), "attribute"),
        (json!({"size_limit": 1}), "size_limit"),
    ] {
        let refused = PluginBench::new().build("ldap-auth-advanced", settings(more.clone()));
        assert_eq!(refused.err().expect("refused").path, path, "{more}");
    }
}
