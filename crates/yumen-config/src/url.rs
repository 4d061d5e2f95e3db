//! Parts of URLs and addresses in settings: ports, and secrets to hide.

/// Parses a port other than 0 without a sign or leading zeros, so that a port has one spelling.
pub fn port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_plain)
}

/// Replacement for a secret.
pub const HIDDEN: &str = "******";

/// Hides the password of each `scheme://user:password@host`, and the user if there is no password, since it
/// may be a token.
pub fn hide_userinfo(text: &mut String) {
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        from += at + 3;
        let ends = |c: char| matches!(c, '/' | '?' | '#' | ',' | '"') || c.is_whitespace();
        let end = text[from..].find(ends).map_or(text.len(), |length| from + length);
        // A password may contain `@`, so the last one ends the user information.
        let Some(length) = text[from..end].rfind('@') else { continue };
        let start = text[from..from + length].find(':').map_or(from, |colon| from + colon + 1);
        text.replace_range(start..from + length, HIDDEN);
    }
}

#[cfg(test)]
mod tests {
    use super::{hide_userinfo, port};

    #[test]
    fn a_port_is_written_in_one_way() {
        for (digits, expected) in [("1", Some(1)), ("80", Some(80)), ("65535", Some(65535))] {
            assert_eq!(port(digits), expected);
        }
        for digits in ["", "0", "01", "+1", "-1", " 1", "1 ", "65536", "1a", "\u{0661}"] {
            assert_eq!(port(digits), None, "{digits:?}");
        }
    }

    #[test]
    fn user_information_of_a_url_is_hidden() {
        for (text, expected) in [
            ("http://a.test/x@y", "http://a.test/x@y"),
            ("http://token@a.test", "http://******@a.test"),
            ("see http://u:p@a.test/x, https://u:p:q@b", "see http://u:******@a.test/x, https://u:******@b"),
        ] {
            let mut text = text.to_owned();
            hide_userinfo(&mut text);
            assert_eq!(text, expected);
        }
    }
}
