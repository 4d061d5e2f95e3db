use super::trusted::TrustedKind;
use super::*;

fn seen(ends: &[(i64, &str)], life_days: i64) -> ExpiryState {
    let end = |(at_unix_s, id): &(i64, &str)| CertificateExpiry {
        at_unix_s: *at_unix_s,
        life_s: life_days * DAY_S,
        id: (*id).to_owned(),
        name: format!("{id}.test"),
    };
    ExpiryState { certificates: ends.len(), first: ends.iter().map(end).collect(), trusted: Vec::new() }
}

#[test]
fn expiring_certificate_is_a_warning_and_expired_one_an_error() {
    let now = 1_000 * DAY_S;
    let ends = [(now - 3 * DAY_S, "gone"), (now + 2 * DAY_S + 60, "soon"), (now + 20 * DAY_S, "later")];
    let found: Vec<String> = problems(&seen(&ends, 365), 14, now).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "error: ssls/gone at cert: the certificate for gone.test expired 3 days ago: clients refuse it\n  hint: renew it",
            "warning: ssls/soon at cert: the certificate for soon.test expires in 2 days\n  hint: renew it: clients refuse it afterwards",
        ]
    );
    assert_eq!(problems(&seen(&ends, 365), 0, now).len(), 1);
    assert_eq!(problems(&seen(&ends, 365), 30, now).len(), 3);
    // With a lifetime of six days, the warning time is 36 hours.
    assert_eq!(problems(&seen(&ends, 6), 14, now).len(), 1);
}

#[test]
fn trust_anchors_and_crls_are_reported_before_and_after_their_end() {
    let now = 1_000 * DAY_S;
    let term = |name: &str, left_days: i64| yumen_proxy::tls::ValidityTerm {
        name: format!("CN={name}"),
        from_unix_s: now - 365 * DAY_S,
        until_unix_s: now + left_days * DAY_S + 60,
    };
    let check = |trusted: TrustedMaterial, expected: &[&str]| {
        let found: Vec<String> = trusted.problems(14, now).map(|problem| problem.to_string()).collect();
        let short: Vec<&str> = found.iter().filter_map(|problem| problem.lines().next()).collect();
        assert_eq!(short, expected);
    };
    let clients =
        |terms: &[_]| TrustedMaterial::new("ssls/1", "client.ca", TrustedKind::Authorities("clients"), terms);
    check(
        clients(&[term("old", -3), term("soon", 3), term("new", 300)]),
        &[
            "warning: ssls/1 at client.ca: the authority CN=old expired 2 days ago: the clients it vouches for are refused",
            "warning: ssls/1 at client.ca: the authority CN=soon expires in 3 days",
        ],
    );
    check(
        clients(&[term("old", -3)]),
        &[
            "error: ssls/1 at client.ca: the authority CN=old expired 2 days ago: the clients it vouches for are refused",
        ],
    );
    check(
        TrustedMaterial::new(
            "ssls/1",
            "client.crl",
            TrustedKind::Revoked,
            &[term("stale", -3), term("soon", 3), term("new", 300)],
        ),
        &[
            "error: ssls/1 at client.crl: the CRL of CN=stale expired 2 days ago: its clients are refused",
            "warning: ssls/1 at client.crl: the CRL of CN=soon expires in 3 days",
        ],
    );
}

#[test]
fn the_problem_of_an_upstream_names_its_object_and_field() {
    let check = |origin: &str, object: &str, path: &str| {
        assert_eq!(trusted::object_and_path(origin), (object.to_owned(), path.to_owned()), "{origin}");
    };
    check("upstreams/1", "upstreams/1", "tls.ca");
    check("routes/1", "routes/1", "upstream.tls.ca");
    check("stream_routes/1", "stream_routes/1", "upstream.tls.ca");
    check("routes/1/plugins.traffic-split.a.b", "routes/1", "plugins.traffic-split.a.b.tls.ca");
}
