//! Hashes made by htpasswd, openssl and the crypt of libc.

use super::PasswordHash;

#[test]
fn every_form_verifies_its_password_and_no_other() {
    for (text, password) in [
        ("$apr1$abcdefgh$FBwExRW4dCc8aL.OvjpIE1", "password"),
        ("$1$abcdefgh$G//4keteveJp0qb8z2DxG/", "password"),
        ("$5$saltsalt$gOjOtoMpVhru2uyjeJSEc/JaLQWOXMNmlOnj6T4AtC.", "password"),
        (
            "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/",
            "password",
        ),
        ("$5$rounds=1234$ab$zrxcvgBUISXipbHTf5ZREahqFWsmMV2Z0NOHB1We.B/", "x"),
        ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "password"),
        ("{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0", "password"),
        ("abJnggxhB/yWI", "password"),
        ("$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "myPassword"),
    ] {
        let hash = PasswordHash::parse(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
        assert!(hash.verify(password.as_bytes()), "{text}");
        for other in ["", "Password", "1password", "password\0"] {
            assert!(!hash.verify(other.as_bytes()) || other == password, "{text} {other}");
        }
    }
}

#[test]
fn plain_passwords_and_broken_hashes_are_refused() {
    let check = |text: &str, expected: &str| {
        assert_eq!(PasswordHash::parse(text).unwrap_err(), expected, "{text}");
    };
    check("password", "the password is not hashed");
    check("{PLAIN}password", "the password is not hashed");
    check("", "the password is not hashed");
    check("$argon2id$v=19$m=1", "the form of the hash is not supported");
    for text in [
        "$2y$05$short",
        "$2y$31$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC",
        "$apr1$abcdefgh",
        "$5$rounds=99999999$saltsalt$gOjOtoMpVhru2uyjeJSEc/JaLQWOXMNmlOnj6T4AtC.",
        "$6$salt",
        "{SHA}abc",
        "{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
    ] {
        check(text, "the hash is incomplete or takes too many rounds");
    }
}
