use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{UserPassword, canonical_dn, escape_dn_value, parse_address};

#[test]
fn an_address_is_a_host_and_perhaps_a_port() {
    for (written, expected) in [
        ("ldap.test", ("ldap.test", 389)),
        ("ldap.test:1389", ("ldap.test", 1389)),
        ("127.0.0.1:1389", ("127.0.0.1", 1389)),
        ("[::1]", ("::1", 389)),
        ("[::1]:1389", ("::1", 1389)),
    ] {
        let (host, port) = parse_address("ldap_uri", written, 389).expect(written);
        assert_eq!((host.as_str(), port), expected, "{written}");
    }
    for written in [
        "", ":389", "a:", "a:x", "a:70000", "::1", "[::1", "ldap://a", "a/b", "user@a", "a b", "a,b",
        "[]:389",
    ] {
        let refused = parse_address("ldap_uri", written, 389).expect_err(written);
        assert_eq!(refused.path, "ldap_uri");
        assert!(refused.message.contains("such as ldap.test:389"), "{written}: {}", refused.message);
    }
}

#[test]
fn no_character_of_a_name_is_syntax_of_a_distinguished_name() {
    for (value, expected) in [
        ("alice", "alice"),
        ("a,ou=admins", "a\\,ou\\=admins"),
        ("a+uid=b", "a\\+uid\\=b"),
        ("\\", "\\\\"),
        ("#a#", "\\#a#"),
        (" a b ", "\\ a b\\ "),
        (" ", "\\ "),
        ("a;b<c>\"d\"", "a\\;b\\<c\\>\\\"d\\\""),
        ("a\0b\n", "a\\00b\\0a"),
        ("müller", "müller"),
    ] {
        assert_eq!(escape_dn_value(value), expected, "{value:?}");
    }
}

#[test]
fn credentials_have_a_name_and_a_password() {
    let read = |text: &[u8]| {
        let field = format!("Basic {}", STANDARD.encode(text));
        UserPassword::read(field.as_bytes(), "basic").map(|user| (user.username, user.password))
    };
    let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
    assert_eq!(read(b"alice:secret"), user("alice", "secret"));
    assert_eq!(read(b"alice:se:cr:et"), user("alice", "se:cr:et"));
    assert_eq!(read(b"alice: two words "), user("alice", " two words "));
    assert_eq!(read(b" alice :secret\r\n"), user("alice", "secret"));
    assert_eq!(read(b"alice\n:secret"), user("alice", "secret"));
    for text in
        [&b"alice"[..], b"alice:", b":secret", b":", b"alice:\n", b"al\0ice:secret", b"alice:se\0", b"\xff:x"]
    {
        assert_eq!(read(text), None, "{text:?}");
    }
}

#[test]
fn the_scheme_is_case_insensitive_and_ends_with_a_space() {
    for field in ["Basic YTpi", "BASIC YTpi", "basic  YTpi", "basic\tYTpi", "Basic YTpi "] {
        assert!(UserPassword::read(field.as_bytes(), "basic").is_some(), "{field}");
    }
    for field in ["", "Basic", "Basic ", "BasicYTpi", "ldap YTpi", "Basic !", "Bearer YTpi"] {
        assert!(UserPassword::read(field.as_bytes(), "basic").is_none(), "{field}");
    }
    assert!(UserPassword::read(b"LDAP YTpi", "ldap").is_some());
}

#[test]
fn names_are_compared_in_one_form() {
    for (written, expected) in [
        ("cn=alice,dc=test", "cn=alice,dc=test"),
        ("CN = alice , DC= test", "cn=alice,dc=test"),
        ("cn=Comma\\2C Inc,dc=test", "cn=Comma\\, Inc,dc=test"),
        ("cn=Comma\\, Inc,dc=test", "cn=Comma\\, Inc,dc=test"),
        ("cn=a+uid=b,dc=test", "cn=a+uid=b,dc=test"),
        ("cn=m\\c3\\bcller", "cn=müller"),
        ("cn=a\\20", "cn=a\\ "),
        ("cn=Alice", "cn=Alice"),
        ("", ""),
        ("alice", "alice"),
        ("cn=a,b", "cn=a,b"),
        ("cn=a\\", "cn=a\\"),
        ("cn=\\ff", "cn=\\ff"),
    ] {
        assert_eq!(canonical_dn(written), expected, "{written}");
    }
    // An escaped separator is no separator.
    assert_ne!(canonical_dn("cn=a\\,ou=b"), canonical_dn("cn=a,ou=b"));
}
