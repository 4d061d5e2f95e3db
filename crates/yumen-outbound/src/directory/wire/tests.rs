use proptest::prelude::*;

use super::{
    LdapMessage, LdapOperation, LdapOutcome, MESSAGE_BYTES_MAX, SearchRequest, bind, message_length,
    read_message, search, start_tls,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn requests_have_the_bytes_of_the_standard() {
    assert_eq!(bind(1, "cn=a", "b"), hex("30 11 020101 60 0c 020103 0404 636e3d61 8001 62"));
    let request =
        SearchRequest { base: "dc=a", attribute: "cn", value: "*)(", size_limit: 200, time_limit_s: 0 };
    let body =
        "0404 64633d61 0a0102 0a0100 020200c8 020100 0101ff a309 0402 636e 0403 2a2928 3005 0403 312e31";
    let expected = format!("30 2d 020105 63 28 {body}");
    assert_eq!(search(5, &request), hex(&expected));
    assert_eq!(
        start_tls(0x80),
        hex("30 1e 02020080 77 18 8016 312e332e362e312e342e312e313436362e3230303337")
    );
}

#[test]
fn long_elements_have_long_lengths() {
    let message = bind(1, &"a".repeat(300), "b");
    assert_eq!(message[..4], hex("3082 013d"));
    assert_eq!(message_length(&message), Ok(Some(message.len())));
}

fn done(code: u32, text: &str) -> LdapOutcome {
    LdapOutcome { code, text: text.to_owned() }
}

#[test]
fn responses_are_read() {
    for (bytes, id, operation) in [
        ("300c 020101 6107 0a0100 0400 0400", 1, LdapOperation::Bind(done(0, ""))),
        ("300e 020102 6109 0a0131 0400 0402 6e6f", 2, LdapOperation::Bind(done(49, "no"))),
        ("300f 02020100 6509 0a0104 0400 0402 6e6f", 256, LdapOperation::SearchDone(done(4, "no"))),
        ("300d 020103 6408 0404 636e3d61 3000", 3, LdapOperation::Entry { dn: "cn=a".to_owned() }),
        ("3007 020103 7302 0400", 3, LdapOperation::Reference),
        ("300c 020101 7807 0a0100 0400 0400", 1, LdapOperation::Extended(done(0, ""))),
        // With controls behind the operation.
        ("300e 020101 6107 0a0100 0400 0400 a000", 1, LdapOperation::Bind(done(0, ""))),
        ("3005 020101 7900", 1, LdapOperation::Other),
    ] {
        let bytes = hex(bytes);
        assert_eq!(message_length(&bytes), Ok(Some(bytes.len())), "{bytes:?}");
        assert_eq!(read_message(&bytes), Some(LdapMessage { id, operation }), "{bytes:?}");
        for end in 0..bytes.len() {
            assert_eq!(message_length(&bytes[..end]), Ok(None), "{bytes:?} up to {end}");
            assert_eq!(read_message(&bytes[..end]), None, "{bytes:?} up to {end}");
        }
    }
}

#[test]
fn malformed_messages_are_refused() {
    for bytes in ["00", "3080", "3085 0000000001", "30ff", "1603010000"] {
        assert!(message_length(&hex(bytes)).is_err(), "{bytes}");
    }
    for bytes in [
        "3000",
        "3003 020101",
        "3005 0201ff 6100",
        "3005 020101 6100",
        "300c 020101 6107 0a0180 0400 0400",
        "300d 020103 6408 0404 ffffffff 3000",
        "3005 020101 7f00",
        "3007 020101 6102 0a84",
    ] {
        assert_eq!(read_message(&hex(bytes)), None, "{bytes}");
    }
    let long = [&hex("3083")[..], &(MESSAGE_BYTES_MAX as u32).to_be_bytes()[1..]].concat();
    assert!(message_length(&long).unwrap_err().contains("64 KiB"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Some(length)) = message_length(&bytes) {
            prop_assert!(length <= bytes.len());
        }
        read_message(&bytes);
    }

    #[test]
    fn a_changed_byte_is_read_without_panic(at in 0_usize..17, value in any::<u8>()) {
        let mut bytes = hex("300f 02020100 6509 0a0104 0400 0402 6e6f");
        bytes[at] = value;
        let _ = message_length(&bytes);
        read_message(&bytes);
    }
}
