use std::collections::{BTreeMap, BTreeSet};

use super::table::{AnnotationVerdict, GROUPS, IGNORED_EVERYWHERE};
use super::*;
use crate::ingress_nginx::controller::read_config_map;
use crate::ingress_nginx::settings::*;
use crate::ingress_nginx::{NginxText, RequestFieldValue};
use crate::model::{ClusterKind, ObjectKey};

const PREFIX: &str = "nginx.ingress.kubernetes.io";

fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
    let annotations =
        annotations.iter().map(|(name, value)| (format!("{PREFIX}/{name}").into(), (*value).into()));
    ObjectMeta { namespace: "shop".into(), annotations: annotations.collect(), ..ObjectMeta::default() }
}

fn controller(data: &[(&str, &str)]) -> ControllerSettings {
    let data: BTreeMap<Arc<str>, Arc<str>> =
        data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let (settings, problems) = read_config_map(&data, ControllerSettings::default());
    assert_eq!(problems, []);
    settings
}

fn read(annotations: &[(&str, &str)]) -> (IngressSettings, Vec<AnnotationProblem>) {
    read_annotations(&meta(annotations), &ControllerSettings::default())
}

/// Checks that annotations without a problem have an effect on the settings.
#[track_caller]
fn check(annotations: &[(&str, &str)], expected: impl FnOnce(&mut IngressSettings)) {
    let (settings, problems) = read(annotations);
    let problems: Vec<_> =
        problems.iter().filter(|one| one.consequence > AnnotationConsequence::NoEffect).collect();
    assert!(problems.is_empty(), "{problems:?}");
    let mut wanted = IngressSettings::default();
    expected(&mut wanted);
    assert_eq!(settings, wanted, "{annotations:?}");
}

/// Checks the worst consequence of annotations, and a part of its reason.
#[track_caller]
fn check_problem(annotations: &[(&str, &str)], consequence: AnnotationConsequence, part: &str) {
    let (settings, problems) = read(annotations);
    let worst = problems.iter().max_by_key(|problem| problem.consequence);
    let found = worst.map(|problem| (problem.consequence, problem.reason.contains(part)));
    assert_eq!(found, Some((consequence, true)), "{problems:?}");
    assert_eq!(settings.auth.denial.is_some(), consequence == AnnotationConsequence::IngressDenied);
    assert_eq!(settings.server.is_denied, consequence == AnnotationConsequence::HostDenied);
}

#[test]
fn the_table_has_all_names_once() {
    let rows: Vec<_> = GROUPS.iter().flat_map(|group| group.rows).collect();
    assert_eq!(rows.len(), 136);
    assert_eq!(rows.iter().filter(|row| row.alias.is_some()).count(), 2);
    let names: BTreeSet<_> = rows.iter().flat_map(|row| std::iter::once(row.name).chain(row.alias)).collect();
    assert_eq!(names.len(), 138);
    assert!(IGNORED_EVERYWHERE.iter().all(|name| !names.contains(name)));
    // A reason is read after a colon, and a way over after a semicolon.
    for row in rows {
        let texts: &[&str] = match &row.verdict {
            AnnotationVerdict::Works => &[],
            AnnotationVerdict::Differs(reason) | AnnotationVerdict::NoEffect(reason) => &[reason],
            AnnotationVerdict::Refused { reason, way_over, .. } => &[reason, way_over],
        };
        assert!(texts.iter().all(|text| !text.is_empty() && !text.ends_with('.')), "{}", row.name);
        assert!(row.harmless.is_empty() || row.rule.check(row.harmless).is_ok(), "{}", row.name);
    }
}

#[test]
fn annotations_of_paths_and_redirects_become_settings() {
    check(&[], |_| {});
    check(&[("rewrite-target", "/$2"), ("use-regex", "true"), ("x-forwarded-prefix", "/app")], |settings| {
        settings.rewrite = IngressRewrite {
            use_regex: true,
            target: Some(IngressRewriteTarget::Path("/$2".into())),
            forwarded_prefix: Some("/app".into()),
        };
    });
    check(&[("rewrite-target", "https://e.com/$1")], |settings| {
        settings.rewrite.target = Some(IngressRewriteTarget::Redirect("https://e.com/$1".into()));
    });
    check(&[("ssl-redirect", "false")], |settings| settings.redirects.ssl = SslRedirectRule::Off);
    check(&[("force-ssl-redirect", "true"), ("ssl-redirect", "false")], |settings| {
        settings.redirects.ssl = SslRedirectRule::Always;
    });
    let both = [
        ("permanent-redirect", "https://a.com"),
        ("temporal-redirect", "https://b.com"),
        ("app-root", "/start"),
    ];
    check(&both, |settings| {
        settings.redirects.fixed = Some(FixedRedirect { location: "https://b.com".into(), status: 302 });
        settings.redirects.app_root = Some("/start".into());
    });
    check(&[("permanent-redirect", "https://a.com"), ("permanent-redirect-code", "308")], |settings| {
        settings.redirects.fixed = Some(FixedRedirect { location: "https://a.com".into(), status: 308 });
    });
    check(&[("temporal-redirect", "https://a.com"), ("temporal-redirect-code", "308")], |settings| {
        settings.redirects.fixed = Some(FixedRedirect { location: "https://a.com".into(), status: 302 });
    });
    check(&[("relative-redirects", "true"), ("use-port-in-redirects", "true")], |settings| {
        settings.redirects.form = LocationForm::Relative;
    });
}

#[test]
fn annotations_of_access_become_settings() {
    check(&[("auth-type", "basic"), ("auth-secret", "users"), ("auth-realm", "The shop")], |settings| {
        settings.auth.basic = Some(IngressBasicAuth {
            secret: ObjectKey::new(ClusterKind::Secret, "shop", "users"),
            form: HtpasswdForm::File,
            realm: "The shop".into(),
        });
    });
    check(
        &[("whitelist-source-range", "10.0.0.0/8, ::1"), ("denylist-source-range", "10.1.0.0/16")],
        |settings| {
            settings.access.allow = vec!["10.0.0.0/8".into(), "::1".into()];
            settings.access.deny = vec!["10.1.0.0/16".into()];
        },
    );
    // The name counts before its alias.
    check(&[("whitelist-source-range", "::1"), ("allowlist-source-range", "::2")], |settings| {
        settings.access.allow = vec!["::2".into()];
    });
    check(&[("limit-rps", "5"), ("limit-connections", "0"), ("limit-whitelist", "10.0.0.1")], |settings| {
        settings.limits.per_second = Some(5);
        settings.limits.exempt = vec!["10.0.0.1".into()];
    });
    check(&[("limit-rate", "100"), ("limit-rate-after", "10")], |settings| {
        let rate = ResponseRateSettings { bytes_per_second: 102_400, after_bytes: 10_240 };
        settings.limits.response_rate = Some(rate);
    });
    check(
        &[("enable-cors", "true"), ("cors-allow-origin", "https://*.a.com, http://b.com:8080")],
        |settings| {
            settings.cors = Some(IngressCors {
            origins: vec!["https://*.a.com".into(), "http://b.com:8080".into()],
            methods: "GET, PUT, POST, DELETE, PATCH, OPTIONS".into(),
            headers: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,\
                      Authorization"
                .into(),
            expose_headers: "".into(),
            credentials: true,
            max_age_s: 1_728_000,
        });
        },
    );
    check(
        &[("auth-tls-secret", "ca"), ("auth-tls-verify-client", "optional"), ("auth-tls-match-cn", "CN=a")],
        |settings| {
            let mut client = IngressClientTls::new(ObjectKey::new(ClusterKind::Secret, "shop", "ca"));
            client.mode = Some(yumen_config::resource::ClientCertMode::Optional);
            client.match_cn = Some("CN=a".into());
            settings.server.client = Some(client);
        },
    );
}

#[test]
fn annotations_of_an_auth_service_become_settings() {
    let annotations = [
        ("auth-url", "http://oauth2.auth.svc.cluster.local/oauth2/auth"),
        ("auth-signin", "https://$host/oauth2/start?rd=$escaped_request_uri"),
        ("auth-response-headers", "X-User, X-Email"),
        ("auth-cache-key", "$cookie_session"),
        ("auth-cache-duration", "200 202 10m, 401 500ms"),
    ];
    check(&annotations, |settings| {
        settings.auth.service = Some(AuthServiceSettings {
            url: NginxText::literal("http://oauth2.auth.svc.cluster.local/oauth2/auth"),
            method: None,
            signin: Some(AuthSigninSettings {
                url: NginxText::parse("https://$host/oauth2/start?rd=$escaped_request_uri").unwrap(),
                redirect_param: "rd".into(),
            }),
            response_headers: vec!["X-User".into(), "X-Email".into()],
            request_redirect: None,
            set_headers: None,
            always_sets_cookie: false,
            cache: Some(AuthAnswerCache {
                key: NginxText::parse("$cookie_session").unwrap(),
                rules: vec![
                    AuthCacheRule { statuses: vec![200, 202], seconds: 600 },
                    AuthCacheRule { statuses: vec![401], seconds: 1 },
                ],
            }),
            keepalive: None,
        });
    });
}

#[test]
fn a_service_of_the_controller_holds_unless_the_ingress_opts_out() {
    let controller = controller(&[("global-auth-url", "http://auth.svc/check")]);
    let (settings, _) = read_annotations(&meta(&[]), &controller);
    assert_eq!(settings.auth.service, controller.auth.as_ref().map(|(service, _)| service.clone()));
    let (settings, _) = read_annotations(&meta(&[("enable-global-auth", "false")]), &controller);
    assert_eq!(settings.auth.service, None);
}

#[test]
fn annotations_of_services_become_settings() {
    check(&[("canary", "true"), ("canary-weight", "30"), ("canary-by-header", "X-C")], |settings| {
        settings.canary = Some(IngressCanary {
            header: Some(("X-C".into(), CanaryHeaderRule::Words)),
            cookie: None,
            weight: 30,
            weight_total: 100,
        });
    });
    check(
        &[
            ("canary", "true"),
            ("canary-by-header", "X"),
            ("canary-by-header-pattern", "^a.*"),
            ("canary-weight", "700"),
            ("canary-weight-total", "500"),
        ],
        |settings| {
            settings.canary = Some(IngressCanary {
                header: Some(("X".into(), CanaryHeaderRule::Pattern("^a.*".into()))),
                cookie: None,
                weight: 500,
                weight_total: 500,
            });
        },
    );
    check(
        &[("backend-protocol", "GRPCS"), ("upstream-vhost", "a.svc"), ("load-balance", "ewma")],
        |settings| {
            settings.upstream.protocol = IngressUpstreamProtocol::Grpcs;
            settings.upstream.host = Some(NginxText::literal("a.svc"));
            settings.upstream.balance = UpstreamBalance::Ewma;
        },
    );
    check(
        &[("proxy-read-timeout", "3600"), ("proxy-body-size", "8m"), ("proxy-connect-timeout", "0")],
        |settings| {
            settings.proxy.read_timeout_s = 3600;
            settings.proxy.body_bytes_max = 8 << 20;
        },
    );
}

#[test]
fn sessions_and_responses_become_settings() {
    let annotations = [
        ("affinity", "cookie"),
        ("affinity-mode", "persistent"),
        ("session-cookie-name", "route"),
        ("session-cookie-max-age", "172800"),
        ("session-cookie-samesite", "None"),
        ("session-cookie-conditional-samesite-none", "true"),
    ];
    check(&annotations, |settings| {
        settings.upstream.session = Some(IngressSession {
            name: "route".into(),
            path: None,
            domain: None,
            max_age_s: Some(172_800),
            expires_s: None,
            same_site: Some(SameSiteRule::ConditionalNone),
            secure: None,
            changes_on_failure: false,
            spread: SessionSpread::Persistent,
            canary: CanaryStickiness::Sticky,
        });
    });
    let annotations = [
        ("proxy-cookie-path", "/one /two"),
        ("proxy-redirect-from", "http://a:8080/"),
        ("proxy-redirect-to", "/b/"),
        ("proxy-next-upstream", "error http_502 non_idempotent"),
        ("custom-http-errors", "404,503"),
        ("default-backend", "errors"),
    ];
    check(&annotations, |settings| {
        let replacement =
            |from: &str, to: &str| FieldReplacement { from: from.into(), to: NginxText::literal(to) };
        settings.proxy.cookie_paths = vec![replacement("/one", "/two")];
        settings.proxy.location = Some(replacement("http://a:8080/", "/b/"));
        settings.proxy.next_upstream.conditions = vec![
            NextUpstreamCondition::Error,
            NextUpstreamCondition::Status(502),
            NextUpstreamCondition::NonIdempotent,
        ];
        settings.errors = IngressErrors { statuses: vec![404, 503], backend: Some("errors".into()) };
    });
}

#[test]
fn defaults_of_the_config_map_hold_without_an_annotation() {
    let controller =
        controller(&[("proxy-body-size", "16m"), ("force-ssl-redirect", "true"), ("limit-rate", "5")]);
    let (settings, _) = read_annotations(&meta(&[]), &controller);
    assert_eq!(settings.proxy.body_bytes_max, 16 << 20);
    assert_eq!(settings.redirects.ssl, SslRedirectRule::Always);
    let changed = [("proxy-body-size", "0"), ("force-ssl-redirect", "false"), ("limit-rate", "0")];
    let (settings, _) = read_annotations(&meta(&changed), &controller);
    assert_eq!(settings.proxy.body_bytes_max, 0);
    assert_eq!(settings.redirects.ssl, SslRedirectRule::WithTls);
    assert_eq!(settings.limits.response_rate, None);
}

#[test]
fn invalid_values_have_the_consequence_that_they_have_in_ingress_nginx() {
    use AnnotationConsequence::{HostDenied, IngressDenied, IngressRefused, LeftOut, NoEffect};
    check_problem(&[("permanent-redirect", "https://a.com/;x")], IngressRefused, "letters, digits");
    check_problem(&[("limit-rps", "many")], IngressRefused, "a whole number");
    check_problem(&[("proxy-read-timeout", "1h")], LeftOut, "a whole number");
    check_problem(&[("permanent-redirect", "ftp:a")], LeftOut, "URL of http");
    check_problem(&[("allowlist-source-range", "10.0.0.0/99")], IngressDenied, "networks");
    check_problem(&[("auth-type", "basic")], IngressDenied, "auth-secret");
    check_problem(&[("auth-type", "digest"), ("auth-secret", "a")], IngressDenied, "digest");
    check_problem(
        &[("auth-type", "basic"), ("auth-secret", "other/users")],
        IngressDenied,
        "another namespace",
    );
    check_problem(&[("auth-tls-secret", "other/ca")], HostDenied, "another namespace");
    check_problem(&[("auth-tls-secret", "ca"), ("auth-tls-match-cn", "CN=(")], IngressRefused, "CN=");
    check_problem(&[("auth-url", "auth.svc/check")], IngressDenied, "scheme and host");
    check_problem(&[("auth-url", "http://a;b/")], IngressRefused, "letters, digits");
    check_problem(&[("custom-headers", "other/headers")], IngressDenied, "another namespace");
    check_problem(&[("proxy-ssl-secret", "other/tls")], IngressDenied, "another namespace");
    check_problem(&[("enable-modsecurity", "true")], IngressDenied, "firewall");
    check_problem(&[("backend-protocol", "FCGI")], IngressDenied, "FastCGI");
    check_problem(&[("stream-snippet", "server {}")], LeftOut, "not allowed");
    check_problem(&[("server-alias", "a.com, ~^b\\d$")], LeftOut, "pattern");
    check_problem(&[("canary-weight", "5")], LeftOut, "no canary");
    check_problem(&[("proxy-buffering", "on")], NoEffect, "streamed");
    check_problem(&[("hsts", "true")], NoEffect, "ignores the annotation too");
    check_problem(&[("rewrite-taget", "/")], NoEffect, "no annotation");
    check_problem(&[("auth-secret", "users")], NoEffect, "no effect without auth-type");
    check_problem(&[("auth-signin", "https://a/")], NoEffect, "no effect without auth-url");
    check_problem(&[("auth-tls-verify-client", "on")], NoEffect, "no effect without auth-tls-secret");
    check_problem(&[("proxy-ssl-ciphers", "HIGH")], NoEffect, "no effect without proxy-ssl-secret");
    check_problem(&[("session-cookie-name", "a")], NoEffect, "no effect without affinity");
    check_problem(&[("limit-whitelist", "10.0.0.0/8")], NoEffect, "without limit-rps or limit-rpm");
    check_problem(
        &[("cors-max-age", "5"), ("enable-cors", "false")],
        NoEffect,
        "no effect without enable-cors",
    );
    check_problem(&[("mirror-host", "a.com")], NoEffect, "no effect without mirror-target");
    // The needed one is written and has a finding of its own.
    check_problem(&[("auth-signin", "https://a/"), ("auth-url", "a")], IngressDenied, "scheme and host");
    assert_eq!(read(&[("enable-modsecurity", "false"), ("proxy-ssl-server-name", "on")]).1, []);
}

#[test]
fn risks_and_words_are_refused_as_the_config_map_asks() {
    let strict = controller(&[
        ("annotations-risk-level", "Medium"),
        ("annotation-value-word-blocklist", "load_module,root"),
    ]);
    let refused = |annotations: &[(&str, &str)]| {
        let (_, problems) = read_annotations(&meta(annotations), &strict);
        problems.iter().any(|problem| problem.consequence == AnnotationConsequence::IngressRefused)
    };
    assert!(refused(&[("auth-url", "http://a/")]));
    assert!(refused(&[("app-root", "/root")]));
    assert!(!refused(&[("app-root", "/start")]));
}

#[test]
fn snippets_need_both_switches() {
    let snippet = [("configuration-snippet", "more_set_headers \"X-A: b\";")];
    let open = controller(&[("allow-snippet-annotations", "true"), ("annotations-risk-level", "Critical")]);
    let (settings, problems) = read_annotations(&meta(&snippet), &open);
    assert!(settings.snippets.location.is_some(), "{problems:?}");
    let risky = controller(&[("allow-snippet-annotations", "true")]);
    let (_, problems) = read_annotations(&meta(&snippet), &risky);
    assert_eq!(problems[0].consequence, AnnotationConsequence::IngressRefused);
    let (settings, problems) = read(&snippet);
    assert_eq!(problems[0].consequence, AnnotationConsequence::LeftOut);
    assert_eq!(settings.snippets, IngressSnippets::default());
}

#[test]
fn a_refused_snippet_denies_only_if_it_protects() {
    let open = controller(&[("allow-snippet-annotations", "true"), ("annotations-risk-level", "Critical")]);
    let consequence = |name: &str, snippet: &str| {
        let (_, problems) = read_annotations(&meta(&[(name, snippet), ("auth-url", "http://a/")]), &open);
        problems.iter().map(|problem| problem.consequence).max()
    };
    let left_out = Some(AnnotationConsequence::LeftOut);
    let denied = Some(AnnotationConsequence::IngressDenied);
    assert_eq!(consequence("configuration-snippet", "sub_filter a b;"), left_out);
    assert_eq!(consequence("configuration-snippet", "deny 10.0.0.1; sub_filter a b;"), denied);
    let host_denied = Some(AnnotationConsequence::HostDenied);
    assert_eq!(consequence("server-snippet", "sub_filter a b;"), left_out);
    assert_eq!(consequence("server-snippet", "deny 10.0.0.1; } server {"), host_denied);
    assert_eq!(consequence("server-snippet", "deny 10.0.0.1; sub_filter a b;"), host_denied);
    assert_eq!(consequence("auth-snippet", "sub_filter a b;"), denied);
    let (settings, _) = read_annotations(
        &meta(&[
            ("auth-url", "http://a/"),
            ("auth-snippet", "proxy_set_header X-Forwarded-Host $http_host;"),
        ]),
        &open,
    );
    let plan = settings.snippets.auth.expect("a translated snippet");
    let fields = &plan.only().expect("one branch").request_fields;
    assert_eq!(&*fields[0].name, "X-Forwarded-Host");
    assert!(matches!(&fields[0].value, RequestFieldValue::Text(text) if text.to_string() == "${http_host}"));
}
