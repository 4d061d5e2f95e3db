//! Paths in a table: what routing sees, and what is refused.

use super::{encode_path, is_normal, normalize, query_argument, query_arguments};

fn check(path: &str, expected: Result<&str, &str>) {
    let mut out = b"kept".to_vec();
    let found = normalize(path.as_bytes(), &mut out);
    match expected {
        Ok(expected) => {
            assert_eq!(found, Ok(()), "{path}");
            assert_eq!(out.escape_ascii().to_string(), format!("kept{expected}"), "{path}");
            assert!(!is_normal(path.as_bytes()) || path == expected, "{path}");
        }
        Err(expected) => {
            assert_eq!(found.expect_err(path).0, expected, "{path}");
            assert!(!is_normal(path.as_bytes()), "{path}");
        }
    }
}

#[test]
fn plain_paths_stay_as_they_are() {
    for path in ["/", "/a", "/a/", "/a/b.c", "/a..b/c.", "/a.../b", "/~a;b=c/@,!$&()*+:"] {
        check(path, Ok(path));
        assert!(is_normal(path.as_bytes()), "{path}");
    }
}

#[test]
fn slashes_merge_and_dots_resolve() {
    check("//", Ok("/"));
    check("/a//b///c", Ok("/a/b/c"));
    check("/a/./b", Ok("/a/b"));
    check("/a/.", Ok("/a/"));
    check("/./", Ok("/"));
    check("/a/b/..", Ok("/a/"));
    check("/a/b/../", Ok("/a/"));
    check("/a/b/../../c", Ok("/c"));
    check("/a//../b", Ok("/b"));
    check("/.a/..b/...", Ok("/.a/..b/..."));
}

#[test]
fn escapes_are_decoded_once_and_before_dots_are_looked_for() {
    check("/%61%2Fb", Ok("/a/b"));
    check("/a/%2e%2e/b", Ok("/b"));
    check("/a/..%2fb", Ok("/b"));
    check("/a/.%2E%2Fb", Ok("/b"));
    check("/a%2f%2fb", Ok("/a/b"));
    check("/a/%2e", Ok("/a/"));
    check("/%252e%252e/a", Ok("/%2e%2e/a"));
    check("/%20%3f%23", Ok("/ ?#"));
    check("/%c3%a9", Ok("/\\xc3\\xa9"));
}

#[test]
fn paths_that_climb_out_or_hide_are_refused() {
    let climbs = Err("the path climbs above its root");
    for path in ["/..", "/../", "/../a", "/%2e%2e/", "/a/../..", "/a/../../b", "/..%2f..", "//..//", "/./.."]
    {
        check(path, climbs);
    }
    check("/%00", Err("the target has an encoded NUL"));
    check("/a%00.html", Err("the target has an encoded NUL"));
    for path in ["/%", "/%4", "/%zz", "/%+1", "/a%2", "/%%41"] {
        check(path, Err("the target has a bad percent escape"));
    }
}

#[test]
fn query_arguments_stand_as_they_were_sent() {
    let query = b"a=1&b&&=x&a=2&c=d=e&%61=3";
    let all: Vec<_> = query_arguments(query).collect();
    let expected: [(&[u8], &[u8]); 6] =
        [(b"a", b"1"), (b"b", b""), (b"", b"x"), (b"a", b"2"), (b"c", b"d=e"), (b"%61", b"3")];
    assert_eq!(all, expected);
    assert_eq!(query_argument(query, b"a"), Some(&b"1"[..]));
    assert_eq!(query_argument(query, b"A"), None);
    assert_eq!(query_arguments(b"").count(), 0);
}

#[test]
fn an_encoded_path_decodes_to_what_it_was() {
    let check = |path: &[u8], expected: &str| {
        let mut encoded = Vec::new();
        encode_path(path, &mut encoded);
        assert_eq!(encoded.escape_ascii().to_string(), expected);
        let mut decoded = Vec::new();
        assert_eq!(normalize(&encoded, &mut decoded), Ok(()));
        assert_eq!(decoded, path);
    };
    check(b"/a-b.c~d/;e=f,@!$&()*+:", "/a-b.c~d/;e=f,@!$&()*+:");
    check(b"/100%/a?b#c d", "/100%25/a%3Fb%23c%20d");
    check(b"/\"<>\\^`{|}[]'", "/%22%3C%3E%5C%5E%60%7B%7C%7D[]\\'");
    check(b"/\x01\r\n\x7f\xc3\xa9", "/%01%0D%0A%7F%C3%A9");
}
