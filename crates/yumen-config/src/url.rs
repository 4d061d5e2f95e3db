//! Parts of URLs and addresses in settings.

/// Parses a port other than 0 without a sign or leading zeros, so that a port has one spelling.
pub fn port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::port;

    #[test]
    fn a_port_is_written_in_one_way() {
        for (digits, expected) in [("1", Some(1)), ("80", Some(80)), ("65535", Some(65535))] {
            assert_eq!(port(digits), expected);
        }
        for digits in ["", "0", "01", "+1", "-1", " 1", "1 ", "65536", "1a", "\u{0661}"] {
            assert_eq!(port(digits), None, "{digits:?}");
        }
    }
}
