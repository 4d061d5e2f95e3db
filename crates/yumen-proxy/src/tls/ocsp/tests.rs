use super::*;

#[test]
fn times_are_read() {
    let check = |text: &str, expected: Option<i64>| assert_eq!(time(text.as_bytes()), expected, "{text}");
    check("19700101000000Z", Some(0));
    check("20000229120000Z", Some(951_825_600));
    check("20261121151055Z", Some(1_795_273_855));
    check("20261321151055Z", None);
    check("2026112115105Z", None);
    check("202611211510555", None);
    check("20261121151055+0100", None);
}

#[test]
fn what_is_no_answer_is_told_and_never_panics() {
    let question = Question { url: String::new(), body: Vec::new(), id: vec![0x30, 0] };
    let check = |answer: &[u8], expected: &str| {
        assert_eq!(question.check(answer, &[], 0), Err(expected.to_owned()), "{answer:02x?}");
    };
    check(b"", "it is no OCSP answer");
    check(b"<html>", "it is no OCSP answer");
    check(&[0x30, 3, 0x0a, 1, 3], "the responder asks to try later");
    check(&[0x30, 3, 0x0a, 1, 6], "the responder failed with status [6]");
    check(&[0x30, 3, 0x0a, 1, 0], "it is no OCSP answer");
    check(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x0a], "it is no OCSP answer");
}
