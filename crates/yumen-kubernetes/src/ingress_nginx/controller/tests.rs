use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::keys::{KEY_GROUPS, KeyEffect};
use super::*;
use crate::ingress_nginx::annotations::AnnotationRisk;
use crate::model::{ClusterKind, ObjectKey};

fn read(data: &[(&str, &str)]) -> (ControllerSettings, Vec<ControllerProblem>) {
    let data: BTreeMap<Arc<str>, Arc<str>> =
        data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    read_config_map(&data, ControllerSettings::default())
}

fn node_value(settings: &ControllerSettings, path: &str) -> Option<Value> {
    settings.node.iter().find(|setting| setting.path == path).map(|setting| setting.value.clone())
}

#[test]
fn the_tables_have_all_names_once() {
    let keys: Vec<_> = KEY_GROUPS.iter().flat_map(|group| group.rows).map(|row| row.key).collect();
    // 192 documented ones, and those that only the code of ingress-nginx has.
    assert_eq!(keys.len(), 208);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 208);
    let flags: BTreeSet<_> = FLAG_ROWS.iter().map(|(flag, _)| *flag).collect();
    assert_eq!(flags.len(), 72);
}

/// A key that the table calls used or a setting of the node is read: another value than the default changes something.
#[test]
fn every_key_that_the_table_calls_used_has_an_effect() {
    let samples =
        ["false", "true", "7", "301", "404", "10.0.0.0/8", "a/b", "x", "/x", "/x /y", "http://a/b", "on"];
    let more = [
        "ewma",
        "error http_502",
        "deny all;",
        "Critical",
        "TLSv1.3",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "4 8k",
        "30s",
    ];
    let last = ["debug", "auto", "$a", "200 5m", "proxy_set_header A b;"];
    let rows = KEY_GROUPS.iter().flat_map(|group| group.rows);
    let (base, _) = read(&[]);
    for row in rows.filter(|row| matches!(row.effect, KeyEffect::Used(_) | KeyEffect::Node(_))) {
        // Keys that refine another one have no effect without it.
        let beside: &[(&str, &str)] = &[
            ("use-gzip", "true"),
            ("enable-brotli", "true"),
            ("use-forwarded-headers", "true"),
            ("global-auth-url", "http://auth/"),
            ("global-auth-signin", "http://auth/in"),
            ("global-auth-cache-key", "$remote_addr"),
            ("proxy-redirect-from", "/a"),
            ("proxy-redirect-to", "/b"),
            ("custom-http-errors", "500"),
            ("limit-rate", "3"),
        ];
        let beside: Vec<_> = beside.iter().copied().filter(|(key, _)| *key != row.key).collect();
        let alone = |value: &str| read(&[(row.key, value)]).0 != base;
        let with_others = |value: &str| {
            let mut data = beside.clone();
            let (before, _) = read(&data);
            data.push((row.key, value));
            read(&data).0 != before
        };
        let has_effect =
            samples.iter().chain(&more).chain(&last).any(|value| alone(value) || with_others(value));
        assert!(has_effect, "{} is in the table, but nothing reads it", row.key);
    }
}

#[test]
fn keys_become_settings() {
    let (settings, problems) = read(&[
        ("hsts-max-age", "60"),
        ("hsts-include-subdomains", "false"),
        ("http-redirect-code", "301"),
        ("use-gzip", "true"),
        ("gzip-types", "text/css text/html"),
        ("hide-headers", "X-A, X-B"),
        ("block-user-agents", "~*curl,bad"),
        ("add-headers", "ingress/extra"),
        ("annotations-risk-level", "Critical"),
        ("limit-req-status-code", "429"),
        ("strict-validate-path-type", "false"),
    ]);
    assert_eq!(problems, []);
    let hsts = HstsSettings { max_age_s: 60, include_subdomains: false, preload: false };
    assert_eq!(settings.tls.hsts, Some(hsts));
    assert_eq!(settings.redirects.status, 301);
    let gzip = settings.gzip.expect("gzip");
    assert_eq!((gzip.level, gzip.types.len(), gzip.bytes_min), (1, 2, 256));
    assert_eq!(settings.headers.hidden, ["X-A".into(), "X-B".into()]);
    assert_eq!(settings.blocked.user_agents, ["~*curl".into(), "bad".into()]);
    assert_eq!(settings.headers.add, Some(ObjectKey::new(ClusterKind::ConfigMap, "ingress", "extra")));
    assert_eq!(settings.policy.risk_max, AnnotationRisk::Critical);
    assert_eq!(settings.limit_statuses, Some((429, 503)));
    assert_eq!(settings.policy.path_types, PathTypeRule::Lenient);
}

#[test]
fn keys_of_the_node_become_paths_of_its_file() {
    let (settings, problems) = read(&[
        ("keep-alive", "30"),
        ("worker-processes", "auto"),
        ("worker-shutdown-timeout", "240s"),
        ("large-client-header-buffers", "4 16k"),
        ("use-http2", "false"),
        ("log-format-upstream", "$remote_addr $status"),
        ("log-format-escape-json", "true"),
        ("proxy-real-ip-cidr", "10.0.0.0/8"),
        ("use-forwarded-headers", "true"),
    ]);
    assert_eq!(problems, []);
    for (path, value) in [
        ("timeouts.idle_ms", json!(30_000)),
        ("workers.count", json!(0)),
        ("timeouts.drain_ms", json!(240_000)),
        ("limits.head_bytes", json!(65_536)),
        ("http2.enabled", json!(false)),
        ("logs.access.line", json!("${remote_addr} ${status}")),
        ("logs.access.escape", json!("json")),
        ("logs.access.enabled", json!(true)),
        ("trusted_addresses", json!(["10.0.0.0/8"])),
        ("server_header", json!("")),
    ] {
        assert_eq!(node_value(&settings, path), Some(value), "{path}");
    }
}

#[test]
fn invalid_and_unknown_keys_are_reported() {
    #[track_caller]
    fn check(key: &str, value: &str, is_error: bool, part: &str) {
        let (_, problems) = read(&[(key, value)]);
        let found = problems.iter().any(|problem| {
            &*problem.key == key && problem.is_error == is_error && problem.message.contains(part)
        });
        assert!(found, "{key}: {problems:?}");
    }
    check("use-gzip", "yes", true, "neither true nor false");
    check("proxy-body-size", "big", true, "no size");
    check("http-redirect-code", "303", true, "301, 302, 307 or 308");
    check("whitelist-source-range", "all", true, "");
    check("annotations-risk-level", "high", true, "Low, Medium, High, Critical");
    check("ssl-protocols", "TLSv1 TLSv1.2", false, "RFC 8996");
    check("enable-modsecurity", "true", true, "firewall");
    check("http-snippet", "lua_x y;", false, "no translation");
    check("log-format-upstream", "$status $namespace", false, "$namespace");
    check("proxy-buffer-size", "8k", false, "no effect");
    check("proxy-body-sise", "8m", false, "no key of this name");
    check("server-snippet", "location /x { proxy_pass http://a; }", false, "line 1: proxy_pass");
    check("location-snippet", "deny all; sub_filter a b;", true, "every host answers 403");
    check("global-auth-url", "auth/", true, "every host answers 403");
    let (_, problems) = read(&[("proxy-body-sise", "8m")]);
    assert_eq!(problems[0].way_over.as_deref(), Some("did you mean \"proxy-body-size\"?"));
    assert_eq!(read(&[("enable-modsecurity", "false"), ("http-snippet", "")]).1, []);
}

#[test]
fn keys_that_protect_and_cannot_be_followed_refuse_every_client() {
    #[track_caller]
    fn check(data: &[(&str, &str)], expected: Option<&str>) {
        let (settings, problems) = read(data);
        assert_eq!(settings.blocked.all.as_deref(), expected, "{data:?}: {problems:?}");
    }
    for (key, value) in [
        ("server-snippet", "deny 192.0.2.1; sub_filter a b;"),
        ("location-snippet", "if ($http_x) { return 403; } sub_filter a b;"),
        ("http-snippet", "deny 192.0.2.1;"),
        ("http-snippet", "include /etc/nginx/blocked.conf;"),
        ("http-snippet", "deny 192.0.2.1"),
        ("block-cidrs", "192.0.2.0/33"),
        ("whitelist-source-range", "all"),
        ("denylist-source-range", "all"),
        ("global-auth-url", "auth/"),
    ] {
        check(&[(key, value)], Some(key));
    }
    check(
        &[("global-auth-url", "http://auth/"), ("global-auth-snippet", "sub_filter a b;")],
        Some("global-auth-snippet"),
    );
    check(&[("http-snippet", "map $a $b { deny 1; }\nserver { listen 81; return 403; }")], None);
    check(&[("server-snippet", "sub_filter a b;"), ("location-snippet", "deny 192.0.2.1;")], None);
    check(&[("enable-modsecurity", "true")], None);
}

#[test]
fn an_invalid_list_of_proxies_lets_no_client_choose_its_address() {
    let data = [("use-forwarded-headers", "true"), ("proxy-real-ip-cidr", "10.0.0.0/40")];
    let (settings, problems) = read(&data);
    assert_eq!((settings.client.trust, &settings.client.trusted[..]), (ForwardedTrust::None, &[][..]));
    assert!(problems[0].is_error, "{problems:?}");
    assert_eq!(settings.blocked.all, None);
}

#[test]
fn flags_become_settings() {
    let arguments = [
        "/nginx-ingress-controller",
        "--ingress-class=public",
        "--controller-class",
        "k8s.io/ingress-public",
        "--watch-ingress-without-class",
        "--update-status=false",
        "--configmap=ingress/settings",
        "--default-ssl-certificate=ingress/tls",
        "--annotations-prefix=example.com",
        "--v=2",
        "--maxmind-license-key=x",
        "--enabel-metrics",
    ];
    let (settings, problems) = read_flags(&arguments.map(str::to_owned));
    let flags = &settings.flags;
    assert_eq!(flags.ingress_class.as_deref(), Some("public"));
    assert_eq!(flags.controller_class.as_deref(), Some("k8s.io/ingress-public"));
    assert!(flags.is_set("watch-ingress-without-class") && !flags.is_set("update-status"));
    assert!(flags.is_set("update-status-on-shutdown"));
    assert_eq!(flags.config_map, Some(ObjectKey::new(ClusterKind::ConfigMap, "ingress", "settings")));
    let secret = ObjectKey::new(ClusterKind::Secret, "ingress", "tls");
    assert_eq!(settings.tls.default_certificate, Some(secret));
    assert_eq!(&*settings.policy.prefix, "example.com");
    let keys: Vec<&str> = problems.iter().map(|problem| &*problem.key).collect();
    assert_eq!(keys, ["--enabel-metrics", "--maxmind-license-key", "--v"]);
}
