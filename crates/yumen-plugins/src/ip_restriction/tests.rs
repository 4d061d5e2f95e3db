use serde_json::{Value, json};

use crate::testing::PluginBench;

#[track_caller]
fn check(settings: Value, client: &str, expected: (u16, &str)) {
    let mut bench = PluginBench::new();
    bench.client.peer.set_ip(client.parse().expect("an address"));
    let plugin = bench.plugin("ip-restriction", settings);
    let reply = bench.run(&plugin, "GET / HTTP/1.1");
    assert_eq!((reply.status, reply.body.as_str()), expected, "{client}");
}

const REFUSED: (u16, &str) = (403, "{\"message\":\"Your IP address is not allowed\"}\n");
const ADMITTED: (u16, &str) = (200, "ok\n");

#[test]
fn only_listed_clients_are_admitted() {
    let settings = || json!({"whitelist": ["127.0.0.0/24", "113.74.26.106", "2001:db8::/32"]});
    check(settings(), "127.0.0.9", ADMITTED);
    check(settings(), "113.74.26.106", ADMITTED);
    check(settings(), "::ffff:113.74.26.106", ADMITTED);
    check(settings(), "2001:db8::5", ADMITTED);
    check(settings(), "127.0.1.0", REFUSED);
    check(settings(), "113.74.26.107", REFUSED);
    check(settings(), "2001:db9::5", REFUSED);
}

#[test]
fn listed_clients_are_refused() {
    let settings = || json!({"blacklist": ["127.0.0.0/24", "::1"]});
    check(settings(), "127.0.0.9", REFUSED);
    check(settings(), "::1", REFUSED);
    check(settings(), "127.0.1.1", ADMITTED);
    check(settings(), "::2", ADMITTED);
}

#[test]
fn status_and_message_are_settings() {
    let settings = json!({"blacklist": ["0.0.0.0/0"], "message": "Do you want to do something bad?", "response_code": 404});
    check(settings, "1.2.3.4", (404, "{\"message\":\"Do you want to do something bad?\"}\n"));
}

#[test]
fn an_entry_that_is_no_address_is_named() {
    let bench = PluginBench::new();
    let error = bench.build("ip-restriction", json!({"whitelist": ["::1", "2001:db8::/129"]})).err();
    assert_eq!(error.expect("it is refused").message, "invalid ip address: 2001:db8::/129");
}
