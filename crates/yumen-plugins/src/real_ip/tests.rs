use serde_json::{Value, json};

use crate::testing::PluginBench;

/// Checks the status behind an `ip-restriction` that only admits 1.2.3.4; the peer is 127.0.0.1.
#[track_caller]
fn check(settings: Value, fields: &str, expected: u16) {
    let bench = PluginBench::new();
    let plugins = [
        bench.plugin("real-ip", settings.clone()),
        bench.plugin("ip-restriction", json!({"whitelist": ["1.2.3.4"]})),
    ];
    let reply = bench.run_all(&plugins, &format!("GET /?realip=1.2.3.4 HTTP/1.1\n{fields}"));
    assert_eq!(reply.status, expected, "{settings} {fields}");
}

#[test]
fn rules_see_the_derived_client_address() {
    check(json!({"source": "arg_realip"}), "", 200);
    check(json!({"source": "http_x_real_ip"}), "X-Real-IP: 1.2.3.4", 200);
    check(json!({"source": "http_x_real_ip"}), "X-Real-IP: 1.2.3.5", 403);
    check(json!({"source": "cookie_realip"}), "Cookie: realip=1.2.3.4:99", 200);
    check(json!({"source": "http_forwarded"}), "Forwarded: for=1.2.3.4", 200);
    let of = |addresses: &[&str], recursive| json!({"source": "http_x_forwarded_for", "trusted_addresses": addresses, "recursive": recursive});
    check(of(&["127.0.0.0/24"], false), "X-Forwarded-For: 9.9.9.9, 1.2.3.4", 200);
    check(of(&["127.0.0.0/24", "9.9.9.9"], true), "X-Forwarded-For: 1.2.3.4, 9.9.9.9", 200);
    check(of(&["127.0.0.0/24", "9.9.9.9"], false), "X-Forwarded-For: 1.2.3.4, 9.9.9.9", 403);
    check(of(&["10.0.0.0/8"], false), "X-Forwarded-For: 1.2.3.4", 403);
}

#[test]
fn broken_settings_are_refused() {
    let bench = PluginBench::new();
    for (settings, part) in [
        (json!({}), "source"),
        (json!({"source": ""}), "source"),
        (json!({"source": "arg_ip", "trusted_addresses": []}), "trusted_addresses"),
        (
            json!({"source": "arg_ip", "trusted_addresses": ["2001:db8::/129"]}),
            "invalid ip address: 2001:db8::/129",
        ),
    ] {
        let error = bench.build("real-ip", settings).err().expect(part);
        assert!(error.message.contains(part), "{}", error.message);
    }
}
