use super::*;

#[test]
fn a_certificate_is_renewed_a_third_of_its_life_before_its_end() {
    let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 4, 1);
    let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    // 2026-03-02, thirty days before the end.
    assert_eq!(CertificateValidity::of(&pem).unwrap().renewal(), 1_772_409_600);
}

const DAY_S: i64 = 86_400;

/// Time until the next attempt for a certificate with this lifetime, this long after its start, and whether
/// it is late.
fn left_alone_s(life_s: i64, at_s: i64) -> (i64, bool) {
    let (from_s, now) = (1_700_000_000, Instant::now());
    let due = CertificateValidity { from_s, until_s: from_s + life_s }.due(from_s + at_s, now);
    (due.left(from_s + at_s, now).as_secs() as i64, matches!(due, RenewalDue::Late { .. }))
}

#[test]
fn new_certificate_is_not_reordered_after_a_clock_change() {
    const HOUR_S: i64 = 3600;
    let check = |life_s: i64, at_s: i64, expected: (i64, bool)| {
        assert_eq!(left_alone_s(life_s, at_s), expected, "{life_s} s, fetched {at_s} s after its beginning");
    };
    check(90 * DAY_S, 0, (60 * DAY_S, false));
    check(90 * DAY_S, HOUR_S, (60 * DAY_S - HOUR_S, false));
    check(90 * DAY_S, -DAY_S, (61 * DAY_S, false));
    check(90 * DAY_S, 60 * DAY_S - 3, (10 * DAY_S + 1, false));
    check(90 * DAY_S, 60 * DAY_S, (10 * DAY_S, true));
    check(90 * DAY_S, 81 * DAY_S, (3 * DAY_S, true));
    check(90 * DAY_S, 90 * DAY_S - 30, (6 * HOUR_S, true));
    // Expired by the local clock only.
    check(90 * DAY_S, 90 * DAY_S, (30 * DAY_S, true));
    check(90 * DAY_S, 4000 * DAY_S, (30 * DAY_S, true));
    // Certificates with a lifetime of hours are retried sooner.
    check(6 * HOUR_S, 5 * HOUR_S, (2 * HOUR_S, true));
    check(24, 0, (16, false));
    check(24, 20, (60, true));
    check(0, 0, (60, true));
}

#[test]
fn a_late_renewal_is_reported_until_the_clock_is_corrected() {
    let names = vec!["a.test".to_owned()];
    let mut order = WantedCertificate::new("https://ca.test/dir", &AcmeCertificate { names });
    let now_s = now_unix_s();
    let validity = CertificateValidity { from_s: now_s - 80 * DAY_S, until_s: now_s + 10 * DAY_S };
    order.failures = 3;
    order.fetched(validity, "https://ca.test/dir");
    let problem = order.problem.clone().unwrap();
    assert!(problem.message.contains("is due for renewal already"), "{problem}");
    assert!(problem.hint.unwrap().contains("is the clock right? it is fetched again in 28"));
    assert_eq!(order.failures, 0);
    order.adjust_after_clock_change(now_s);
    assert!(order.problem.is_some() && matches!(order.due, RenewalDue::Late { .. }));
    order.adjust_after_clock_change(now_s - 80 * DAY_S);
    assert!(order.problem.is_none());
    assert_eq!(order.due.left(now_s - 80 * DAY_S, Instant::now()).as_secs() as i64, 60 * DAY_S);
    let fresh = CertificateValidity { from_s: now_s, until_s: now_s + 90 * DAY_S };
    order.fetched(fresh, "https://ca.test/dir");
    assert!(order.problem.is_none());
}

#[test]
fn an_account_is_gone_only_where_the_server_says_so() {
    let check = |kind: Option<&str>, expected: bool| {
        let problem = json!({ "type": kind, "detail": "no", "status": 400 });
        let problem: instant_acme::Problem = serde_json::from_value(problem).unwrap();
        let error = Err::<(), _>(instant_acme::Error::from(problem)).context("the order").unwrap_err();
        assert_eq!(has_no_account(&error), expected, "{kind:?}");
    };
    check(Some(NO_ACCOUNT), true);
    check(Some("urn:ietf:params:acme:error:unauthorized"), false);
    check(None, false);
    assert!(!has_no_account(&anyhow::anyhow!(NO_ACCOUNT)));
}

#[test]
fn ids_tell_directories_and_names_apart() {
    let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let one = storage::id_of("https://ca.test/dir", &names(&["a.test", "b.test"]));
    assert!(one.starts_with("acme-a.test-"), "{one}");
    assert_ne!(one, storage::id_of("https://ca.test/dir", &names(&["a.test"])));
    assert_ne!(one, storage::id_of("https://other.test/dir", &names(&["a.test", "b.test"])));
    assert_eq!(one, storage::id_of("https://ca.test/dir", &names(&["a.test", "b.test"])));
}

#[test]
fn failed_order_is_retried_after_a_clock_change() {
    let now = Instant::now();
    let minute = Duration::from_secs(60);
    let again = RenewalDue::Again(now + minute);
    for unix_s in [0, 1_700_000_000, i64::MAX] {
        assert_eq!(again.left(unix_s, now), minute);
        assert!(again.left(unix_s, now + minute).is_zero());
    }
    let renewal = RenewalDue::At(1_700_000_000);
    assert_eq!(renewal.left(1_700_000_000 - DAY_S, now).as_secs(), DAY_S as u64);
    assert!(renewal.left(1_700_000_000, now).is_zero());
    assert!(renewal.left(i64::MAX, now).is_zero());
}
