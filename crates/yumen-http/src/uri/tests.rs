//! Paths in a table: the forms for routing, and refusals.

use super::{
    DotSegmentPolicy, EncodedSlashPolicy, PathForms, PathPolicy, encode_path, encode_query_value,
    has_dot_segment, is_normal, normalize, query_argument, query_arguments, raw_part, raw_routed_part,
};

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
    check("/a//../b", Ok("/a/b"));
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
    for path in ["/..", "/../", "/../a", "/%2e%2e/", "/a/../..", "/a/../../b", "/..%2f..", "/./.."] {
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

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn forms(path: &str, policy: PathPolicy) -> Result<[String; 3], &'static str> {
    let forms = PathForms::read(path.as_bytes(), policy).map_err(|bad| bad.0)?;
    let resolved = forms.resolved.filter(|_| !forms.forwards_received);
    let forwarded = resolved.map_or(text(path.as_bytes()), |path| text(&path));
    let routed = forms.routed.as_deref().map_or(text(&forms.decoded), text);
    Ok([forwarded, routed, text(&forms.decoded)])
}

/// Forwarded, matched by the router, and decoded.
fn check_forms(path: &str, expected: [&str; 3]) {
    let found = forms(path, PathPolicy::default()).expect(path);
    assert_eq!(found, expected, "{path}");
    assert!(!has_dot_segment(found[0].as_bytes()), "{path}");
}

#[test]
fn dot_segments_of_every_spelling_are_resolved_before_forwarding() {
    for path in [
        "/admin/../pub/y",
        "/admin/%2e%2e/pub/y",
        "/admin/.%2E/pub/y",
        "/admin/x%2F..%2F..%2Fpub/y",
        "/admin/x/..%2f../pub/y",
        "/admin/..;/pub/y",
        "/admin/..;a=b/pub/y",
        "/admin/%2e.%3bx/pub/y",
        "/admin/..%5cpub/y",
        "/admin/..\\pub/y",
        "/admin/x\\..\\..\\pub/y",
        "/./admin/../.;/pub/./y",
        "/admin/x%5C..%2F../pub/y",
    ] {
        check_forms(path, ["/pub/y"; 3]);
    }
    check_forms("/pub/..;/admin/x", ["/admin/x"; 3]);
    check_forms("/pub/..%5cadmin/x", ["/admin/x"; 3]);
}

#[test]
fn other_octets_of_a_resolved_path_stay_as_received() {
    check_forms("/a/../%62%20c//d%2fe;f=%3b", ["/%62%20c//d%2fe;f=%3b", "/b c/d%2Fe;f=;", "/b c/d/e;f=;"]);
    check_forms("/a//../b", ["/a/b", "/a/b", "/a/b"]);
    check_forms("/a%2Fb/../c", ["/c", "/c", "/c"]);
    check_forms("/a%2Fb%2F..%2Fc", ["/a%2Fc", "/a%2Fc", "/a/c"]);
    check_forms("/admin/x%2F..%2Fpub", ["/admin/pub", "/admin/pub", "/admin/pub"]);
    check_forms("/a/b/..", ["/a/", "/a/", "/a/"]);
    check_forms("/a/.;x", ["/a/", "/a/", "/a/"]);
    check_forms("/.", ["/", "/", "/"]);
}

#[test]
fn paths_without_dot_segments_are_forwarded_as_received() {
    check_forms("/%252e%252e/a", ["/%252e%252e/a", "/%2e%2e/a", "/%2e%2e/a"]);
    check_forms("//a///b/", ["//a///b/", "/a/b/", "/a/b/"]);
    check_forms(
        "/...;/a..b/..c;/%2e%2ed",
        ["/...;/a..b/..c;/%2e%2ed", "/...;/a..b/..c;/..d", "/...;/a..b/..c;/..d"],
    );
    check_forms("/a;..", ["/a;..", "/a;..", "/a;.."]);
    check_forms("/a%5Cb\\\\c", ["/a%5Cb\\\\\\\\c", "/a\\\\b\\\\\\\\c", "/a\\\\b\\\\\\\\c"]);
}

#[test]
fn an_encoded_slash_is_part_of_its_segment_for_the_router() {
    check_forms("/c/a%2Fb/x", ["/c/a%2Fb/x", "/c/a%2Fb/x", "/c/a/b/x"]);
    check_forms("/c/a%252F%2fb%41/x", ["/c/a%252F%2fb%41/x", "/c/a%252F%2FbA/x", "/c/a%2F/bA/x"]);
    let policy = PathPolicy { encoded_slashes: EncodedSlashPolicy::Separate, ..PathPolicy::default() };
    let expected = ["/c/a%2Fb/x", "/c/a/b/x", "/c/a/b/x"].map(str::to_owned);
    assert_eq!(forms("/c/a%2Fb/x", policy), Ok(expected));
    let policy = PathPolicy { encoded_slashes: EncodedSlashPolicy::Refuse, ..PathPolicy::default() };
    for path in ["/c/a%2Fb", "/c/a%5cb"] {
        assert_eq!(forms(path, policy), Err("the path has an encoded slash"), "{path}");
    }
    assert!(forms("/c/a%252Fb", policy).is_ok());
}

#[test]
fn dot_segments_are_refused_or_forwarded_where_the_policy_says_so() {
    let policy = |dot_segments| PathPolicy { dot_segments, ..PathPolicy::default() };
    let refuse = policy(DotSegmentPolicy::Refuse);
    for path in ["/a/../b", "/a/%2e", "/..;/b", "/a%2F..%2Fb", "/a/..%5cb"] {
        assert_eq!(forms(path, refuse), Err("the path has a dot segment"), "{path}");
    }
    assert!(forms("/a/...;/%252e", refuse).is_ok());
    let as_received = policy(DotSegmentPolicy::AsReceived);
    let expected = ["/a/%2e%2e/b", "/b", "/b"].map(str::to_owned);
    assert_eq!(forms("/a/%2e%2e/b", as_received), Ok(expected));
}

#[test]
fn a_decoded_part_leads_back_to_the_received_octets() {
    let check = |raw: &str, part: &str, expected: &str| {
        let mut decoded = Vec::new();
        normalize(raw.as_bytes(), &mut decoded).unwrap();
        let at = text(&decoded).find(part).expect(part);
        let range = at..at + part.len();
        assert_eq!(text(raw_part(raw.as_bytes(), range)), expected, "{part} of {raw}");
    };
    check("/arg/bob%26role=admin", "bob&role=admin", "bob%26role=admin");
    check("//a///b%2fc/d", "a/b/c", "a///b%2fc");
    check("//a///b%2fc/d", "b/c/d", "b%2fc/d");
    check("/a%2f/b", "a/b", "a%2f/b");
    check("/100%25", "100%", "100%25");
    check("/a", "", "");
    let routed = b"/c/a%2Fb%25/x";
    assert_eq!(text(raw_routed_part(b"/c/%61%2fb%25/x", 3..11)), "%61%2fb%25", "{}", text(routed));
}

#[test]
fn a_query_value_separates_no_arguments() {
    let mut out = Vec::new();
    encode_query_value("a b&c=d+e%f/g?h#i;j\u{d14c}~".as_bytes(), &mut out);
    assert_eq!(text(&out), "a%20b%26c%3Dd%2Be%25f/g%3Fh%23i%3Bj%ED%85%8C~");
}
