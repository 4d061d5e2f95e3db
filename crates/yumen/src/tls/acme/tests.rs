use super::*;

#[test]
fn a_certificate_is_renewed_a_third_of_its_life_before_its_end() {
    let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 4, 1);
    let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    // 2026-03-02: thirty days before
    assert_eq!(renewal(&pem).unwrap(), 1_772_409_600);
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
    let one = disk::id_of("https://ca.test/dir", &names(&["a.test", "b.test"]));
    assert!(one.starts_with("acme-a.test-"), "{one}");
    assert_ne!(one, disk::id_of("https://ca.test/dir", &names(&["a.test"])));
    assert_ne!(one, disk::id_of("https://other.test/dir", &names(&["a.test", "b.test"])));
    assert_eq!(one, disk::id_of("https://ca.test/dir", &names(&["a.test", "b.test"])));
}

#[test]
fn what_failed_is_tried_again_however_the_clock_is_set() {
    let now = Instant::now();
    let (minute, day_s) = (Duration::from_secs(60), 86_400);
    let again = Due::Again(now + minute);
    for unix_s in [0, 1_700_000_000, i64::MAX] {
        assert_eq!(again.left(unix_s, now), minute);
        assert!(again.left(unix_s, now + minute).is_zero());
    }
    let renewal = Due::At(1_700_000_000);
    assert_eq!(renewal.left(1_700_000_000 - day_s, now).as_secs(), day_s as u64);
    assert!(renewal.left(1_700_000_000, now).is_zero());
    assert!(renewal.left(i64::MAX, now).is_zero());
}
