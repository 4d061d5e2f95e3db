//! Responses with the cookie of a session.

use yumen_plugin::ResponseHead;

/// Has no shared cache keep a response: it would give the session of its cookie to others. A response that no
/// cache may store stays so.
pub(crate) fn forbid_sharing(head: &mut ResponseHead) {
    let is_safe = |value: &[u8]| {
        let value = String::from_utf8_lossy(value).to_ascii_lowercase();
        let has = |name: &str| value.split(',').any(|one| one.trim() == name);
        has("no-store") || (has("private") && !has("public"))
    };
    let all_safe = head.fields.has("Cache-Control") && head.fields.all("Cache-Control").all(is_safe);
    if !all_safe {
        head.fields.set_only("Cache-Control", b"private, no-store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_with_a_session_are_kept_by_no_shared_cache() {
        fn check(written: &[&str], expected: &str) {
            let mut head = ResponseHead::default();
            written.iter().for_each(|value| head.fields.add("Cache-Control", value.as_bytes()));
            forbid_sharing(&mut head);
            let found: Vec<_> = head.fields.all("Cache-Control").map(String::from_utf8_lossy).collect();
            assert_eq!(found.join(" | "), expected, "{written:?}");
        }
        check(&[], "private, no-store");
        check(&["public, max-age=600"], "private, no-store");
        check(&["max-age=600"], "private, no-store");
        check(&["private, public"], "private, no-store");
        check(&["private", "max-age=1"], "private, no-store");
        check(&["private, max-age=60"], "private, max-age=60");
        check(&["No-Store"], "No-Store");
    }
}
