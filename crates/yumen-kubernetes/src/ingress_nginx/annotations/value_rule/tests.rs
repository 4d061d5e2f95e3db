use super::*;

fn check(rule: ValueRule, accepted: &[&str], refused: &[&str]) {
    for value in accepted {
        assert_eq!(rule.check(value), Ok(()), "{rule:?} {value:?}");
    }
    for value in refused {
        assert!(rule.check(value).is_err(), "{rule:?} {value:?} was accepted");
    }
}

#[test]
fn values_are_of_the_form_that_the_annotation_asks_for() {
    check(ValueRule::Switch, &["true", "False", "1", "t"], &["yes", "on", "tRUE", "2"]);
    check(ValueRule::Number, &["0", "-5", "60"], &["5s", "1.5", "1e3", ""]);
    check(ValueRule::Size, &["0", "8m", "1G", "100", "16 k", "4b"], &["8mb", "m", "-1m", "1.5m"]);
    let methods = ValueRule::Choice { words: &["GET", "POST"], any_case: false };
    check(methods, &["GET", " POST "], &["get", "PURGE"]);
    let protocols = ValueRule::Choice { words: &["http", "grpcs"], any_case: true };
    check(protocols, &["HTTP", "Grpcs"], &["h2c"]);
    check(ValueRule::Networks, &["10.0.0.0/8, 192.168.1.1", "::1", "2001:db8::/32"], &["10.0.0.0/33", "all"]);
    check(ValueRule::ErrorStatuses, &["404,503", "404, 500,", "599"], &["200", "600", "4xx"]);
    check(ValueRule::NextUpstream, &["error timeout http_502", "off"], &["http_501", "error;"]);
    check(ValueRule::CookieDomain, &["off", "a.com  b.com"], &["a.com", "a b c", "a$ b"]);
    check(ValueRule::ServiceName, &["errors", "a-1"], &["1a", "a.b", "A", "-", ""]);
    check(ValueRule::CommonName, &["CN=.*", "CN=(a|b)"], &["a", "CN=(", "CN=(a{500}){200}"]);
    check(
        ValueRule::ErrorPage,
        &["https://e.com/a.html", "/err", "@named", "e.com:80/x/"],
        &["https://e.com/?a=b", "/a//b", "javascript:x"],
    );
    check(ValueRule::Methods, &["GET, PUT", "get"], &["GET;", "*"]);
    check(
        ValueRule::Origins,
        &["*", "https://a.com, http://*.b.com:8080", "null", "myapp://a"],
        &["https://a.com/x", "https://a.*.com", "HTTPS://a.com", "https://a.com:x"],
    );
    check(ValueRule::ExposedFields, &["*", "X-A, X_B"], &["X A;"]);
    check(ValueRule::Seconds, &["0", "-1", "3600"], &["1h"]);
    check(ValueRule::ServerNames, &["a.com, *.b.com", r"~^www\d+\.e\.com$"], &["a com", "a;b"]);
}

/// Values by which configuration of NGINX was injected.
#[test]
fn injected_directives_are_refused() {
    let attacks = [
        "/a;\n}\nlocation /x {",
        "http://e.com/#;}\n",
        "https://e.com;\n\tproxy_pass http://10.0.0.1",
        "a\"; load_module x",
        "/x' ;",
        "/a\r\nSet-Cookie: x",
        "x\u{0}y",
        "{}\n",
    ];
    for attack in attacks {
        for set in [
            CharacterSet::Basic,
            CharacterSet::BasicSpaced,
            CharacterSet::Extended,
            CharacterSet::Pattern,
            CharacterSet::Url,
            CharacterSet::UrlWithVariables,
            CharacterSet::PathWithGroups,
            CharacterSet::FieldNames,
            CharacterSet::Word,
        ] {
            // `{}` are characters of patterns; the line break at the end is cut.
            let is_pattern = attack == "{}\n" && set == CharacterSet::Pattern;
            assert!(is_pattern || ValueRule::Text(set).check(attack).is_err(), "{set:?} {attack:?}");
        }
        // Any pattern on one line is a pattern: it is never part of a configuration.
        let has_lines = attack.chars().any(char::is_control);
        assert_eq!(ValueRule::CommonName.check(&format!("CN={attack}x")).is_err(), has_lines, "{attack:?}");
    }
}
