//! The literal begin of patterns.

use super::literal_begin;

#[test]
fn the_begin_of_a_pattern_ends_before_its_first_operator() {
    for (pattern, begin) in [
        ("/api/v1", "/api/v1"),
        ("/api/v[0-9]", "/api/v"),
        ("/ab?c", "/a"),
        ("/ab*", "/a"),
        ("/ab{0,2}", "/a"),
        ("/ab+", "/ab"),
        ("/a.b", "/a"),
        ("/a|/b", ""),
        ("(?i)/a", ""),
        (r"/a\.b", "/a"),
        ("/a$", "/a"),
    ] {
        assert_eq!(&*literal_begin(pattern), begin.as_bytes(), "{pattern}");
    }
}
