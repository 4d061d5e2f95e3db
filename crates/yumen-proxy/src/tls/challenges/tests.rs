use super::*;

#[test]
fn a_challenge_that_is_over_takes_no_other_of_its_name_away() {
    let shown = TlsAlpnChallenges::default();
    let put = || {
        let made = rcgen::generate_simple_self_signed(["shop.test".to_owned()]).unwrap();
        shown.put("Shop.test", &made.cert.pem(), &made.signing_key.serialize_pem()).unwrap()
    };
    let (first, second) = (put(), put());
    shown.remove(&first);
    assert!(shown.lock().contains_key("shop.test"));
    shown.remove(&second);
    assert!(shown.lock().is_empty());
}
