//! The reason why a text is not PEM, without a byte of the text.
//!
//! The text may contain a private key, and libraries quote the line at which they stopped. Every message here
//! is a constant.

/// The most likely reason why a PEM reader found nothing in `text`. Always a constant.
pub fn flaw(text: &[u8]) -> &'static str {
    const DASHES: &str = "-----";
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    if text.is_empty() {
        return "it is empty";
    }
    let Some((_, rest)) = text.split_once("-----BEGIN ") else {
        return "no line `-----BEGIN ...-----`";
    };
    let Some((label, rest)) = rest.split_once(DASHES).filter(|(label, _)| !label.contains('\n')) else {
        return "the line `-----BEGIN ...-----` is incomplete";
    };
    if rest.starts_with("\\n") || rest.starts_with("\\r") {
        return "it has `\\n` in letters where lines should end";
    }
    if !rest.starts_with(['\n', '\r']) && !rest.trim_start_matches([' ', '\t']).starts_with(['\n', '\r']) {
        return "all text is on one line: newlines are missing (in YAML, write a block after `|`)";
    }
    if label.starts_with("ENCRYPTED") || rest.trim_start().starts_with("Proc-Type:") {
        return "it is encrypted with a passphrase: decrypt it first, such as with `openssl pkey`";
    }
    let Some((_, rest)) = rest.split_once("-----END ") else {
        return "it has no line `-----END ...-----`";
    };
    match rest.split_once(DASHES).is_some_and(|(end, _)| end == label) {
        true => "the content is not base64, or not of the expected type",
        false => "the line `-----END ...-----` is incomplete or does not match the first line",
    }
}

#[cfg(test)]
mod tests {
    use super::flaw;

    #[test]
    fn error_names_the_most_likely_cause() {
        let check = |text: &str, expected: &str| {
            let found = flaw(text.as_bytes());
            assert!(found.contains(expected), "{text:?}: {found}");
        };
        let key = "-----BEGIN PRIVATE KEY-----\nMIGH\nAgEA\n-----END PRIVATE KEY-----\n";
        check(" \n", "is empty");
        check("secret", "no line `-----BEGIN");
        check(&key.replace("KEY-----\nM", "KEY---\nM"), "`-----BEGIN ...-----` is incomplete");
        check(&key.replace('\n', ""), "newlines are missing");
        check(&key.replace('\n', " "), "newlines are missing");
        check(key.trim().replace('\n', "\\n").as_str(), "in letters");
        check(&key.replace("PRIVATE", "ENCRYPTED PRIVATE"), "passphrase");
        check(&key.replace("MIGH", "Proc-Type: 4,ENCRYPTED"), "passphrase");
        check(&key.replace("-----END PRIVATE KEY-----", ""), "no line `-----END");
        check(key.trim_end().trim_end_matches('-'), "is incomplete");
        check(&key.replace("END PRIVATE", "END PUBLIC"), "does not match");
        check(&key.replace("AgEA", "Ag*A"), "not base64");
    }
}
