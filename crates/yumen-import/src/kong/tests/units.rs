//! Paths, path mappings, ids, references, expressions.

use serde_json::{Value, json};

use super::super::deck::{DeckPiece, DeckTemplates};
use super::super::entity::KongEntity;
use super::super::environment::KongEnvironment;
use super::super::expression;
use super::super::ids::IdAllocator;
use super::super::paths::{KongPath, PathHandling, PathMapping};
use crate::report::ImportReport;

/// Rewrites a path by the first matching pattern, as `proxy-rewrite` does.
fn rewritten(rewrites: &[String], path: &str) -> String {
    let (pairs, rest) = rewrites.as_chunks::<2>();
    assert!(rest.is_empty());
    for [pattern, by] in pairs {
        let regex = regex::Regex::new(pattern).unwrap();
        if regex.is_match(path) {
            return regex.replace(path, by.as_str()).into_owned();
        }
    }
    path.to_owned()
}

#[test]
fn encoded_paths_match_decoded_requests() {
    // path, format 3.0, prefix in the router, condition
    let table = [
        ("/a%20b", false, "/a b", "^/a b"),
        ("/caf%C3%A9", false, "/caf\u{e9}", "^/caf\u{e9}"),
        ("/%7Ejoe", false, "/~joe", "^/~joe"),
        ("/a%2fb", false, "/a%2Fb", "^/a/b"),
        ("/a%2fb", true, "/a%2Fb", "^/a/b"),
        ("/x//y/../z/", false, "/x/z/", "^/x/z/"),
        ("/100%", false, "/100%", "^/100%"),
        ("/%+1", true, "/%+1", "^/%\\+1"),
        ("/f%ff", false, "/f%ff", "^/f%ff"),
        ("/a%20b/\\d+%2Ejson", false, "/a b/", "^/a b/\\d+\\.json"),
        ("~/p%2B/\\d+", true, "/p+/", "^/p\\+/\\d+"),
        ("~/v1/users|/v1/admin", true, "/", "^/v1/users|/v1/admin"),
        ("~/(?:a|b)", true, "/", "^(?:/(?:a|b))"),
    ];
    for (path, marks_patterns, prefix, condition) in table {
        let parsed = KongPath::parse(path, marks_patterns);
        assert_eq!((parsed.literal().as_str(), parsed.condition().as_str()), (prefix, condition), "{path}");
    }
}

#[test]
fn paths_are_joined_as_kong_joins_them() {
    // service path, route path, strips, request, upstream
    let table = [
        ("/", "/", true, "/a/b", "/a/b"),
        ("/", "/foo", true, "/foo", "/"),
        ("/", "/foo", true, "/foo/", "/"),
        ("/", "/foo", true, "/foo/bar", "/bar"),
        ("/", "/foo", true, "/foobar", "/bar"),
        ("/", "/foo/", true, "/foo/bar", "/bar"),
        ("/", "/foo", false, "/foo/bar", "/foo/bar"),
        ("/s", "/foo", true, "/foo", "/s"),
        ("/s", "/foo", true, "/foo/", "/s/"),
        ("/s", "/foo", true, "/foo/bar", "/s/bar"),
        ("/s", "/foo", true, "/foobar", "/s/bar"),
        ("/s", "/foo/", true, "/foo/", "/s/"),
        ("/s", "/foo/", true, "/foo/bar", "/s/bar"),
        ("/s", "/", true, "/", "/s"),
        ("/s", "/", true, "/bar", "/s/bar"),
        ("/s/", "/", true, "/", "/s/"),
        ("/s/", "/", true, "/bar", "/s/bar"),
        ("/s", "/foo", false, "/foo/bar", "/s/foo/bar"),
        ("/s", "/", false, "/", "/s"),
        ("/s/", "/foo", true, "/foo", "/s"),
        ("/s/", "/foo/", true, "/foo/", "/s/"),
        ("/s/", "/foo", true, "/foo/bar", "/s/bar"),
        ("/s/", "/foo", false, "/foo/bar", "/s/foo/bar"),
        ("/$1", "/foo", true, "/foo/bar", "/$1/bar"),
        ("/", "~/v\\d+/x", true, "/v12/x/y", "/y"),
        ("/s", "~/v\\d+", true, "/v12", "/s"),
        ("/s", "~/a|/b", true, "/b/c", "/s/c"),
    ];
    for (base, route, strips, request, expected) in table {
        let path = KongPath::parse(route, true);
        let rewrites = PathMapping { base, strips, handling: PathHandling::V0 }.rewrites(&path);
        assert_eq!(rewritten(&rewrites, request), expected, "{base} {route} {strips} {request}");
    }
    let plain = |base| {
        PathMapping { base, strips: true, handling: PathHandling::V1 }
            .rewrites(&KongPath::parse("/foo", true))
    };
    assert_eq!(rewritten(&plain("/s"), "/foobar"), "/sbar");
    assert_eq!(rewritten(&plain("/s/"), "/foo/bar"), "/s/bar");
}

#[test]
fn literal_prefix_of_a_pattern_is_never_too_long() {
    for (path, literal) in [
        ("~/a/b/(c|d)", "/a/b/"),
        ("~/a/b|/c", "/"),
        ("~/a/[|]b", "/a/"),
        ("~/a/\\|b", "/a/|b"),
        ("~/a/([)|]|b)|/c", "/"),
        ("~/a/b/\\d+", "/a/b/"),
        ("~^/a\\.b/.*", "/a.b/"),
        ("~/ab?c", "/a"),
        ("~/ab*", "/a"),
        ("~/a{2}", "/"),
        ("~(?i)/a", "/"),
        ("~/a/:id/[0-9]+", "/a/"),
        ("/a/:id", "/a/"),
        ("/a*b", "/a"),
    ] {
        assert_eq!(KongPath::parse(path, true).literal(), literal, "{path}");
    }
}

#[test]
fn special_characters_mark_patterns_before_format_3() {
    assert_eq!(KongPath::parse("/a-b_c.d~e/%20", false), KongPath::Prefix("/a-b_c.d~e/ ".into()));
    assert_eq!(KongPath::parse("/a/(b|c)$", false), KongPath::Pattern("/a/(b|c)$".into()));
    assert_eq!(KongPath::parse("/a/(b|c)$", true), KongPath::Prefix("/a/(b|c)$".into()));
}

#[test]
fn ids_are_readable_valid_and_unique() {
    let mut ids = IdAllocator::of([]);
    let given = ["orders", "orders", "a b/c", "", "-é-"].map(|name| ids.allocate(name));
    assert_eq!(given, ["orders", "orders-2", "a-b-c", "unnamed", "unnamed-2"]);
    let long = ["x".repeat(100), "x".repeat(100)].map(|name| ids.allocate(&name));
    assert_eq!(long.map(|id| (id.len(), id.ends_with("-2"))), [(64, false), (64, true)]);
}

#[test]
fn valid_names_are_reserved_for_their_objects() {
    let mut ids = IdAllocator::of_consumers(["a b", "a-b", "a.b", "a-b"]);
    let given = ["a b", "a-b", "a.b", "a-b"].map(|name| ids.allocate(name));
    assert_eq!(given, ["a-b-2", "a-b", "a-b-3", "a-b-4"]);
}

#[test]
fn unresolved_references_become_null_and_are_reported() {
    let document =
        json!({ "vaults": [{ "name": "env", "prefix": "shop", "config": { "prefix": "SHOP_" } }] });
    let environment = KongEnvironment::new(&super::environment, &document, DeckTemplates::default());
    for (text, expected, why) in [
        ("plain", json!("plain"), ""),
        ("${{ env \"DECK_KEY\" }}", json!("key-from-deck"), ""),
        ("a-${{env \"DECK_KEY\"}}-b", json!("a-key-from-deck-b"), ""),
        ("${{ env \"DECK_PORT\" | toInt }}", json!(9001), ""),
        ("${{- env `DECK_KEY` | indent 8 -}}", json!("key-from-deck"), ""),
        ("${{ env \\\"DECK_KEY\\\" }}", json!("key-from-deck"), ""),
        ("costs $5 and {a}", json!("costs $5 and {a}"), ""),
        ("{vault://env/other-key}", json!("key-from-the-vault"), ""),
        ("{vault://shop/password/bob}", json!("secret of bob"), ""),
        ("${{ env \"DECK_NO\" }}", Value::Null, "the environment variable DECK_NO is not set"),
        ("{vault://env/no}", Value::Null, "the environment variable NO is not set"),
        ("{vault://hcv/a/b}", Value::Null, "the vault hcv is not the environment"),
        ("${{ env \"DECK_KEY\" | toInt }}", Value::Null, "DECK_KEY is not an integer"),
    ] {
        let mut value = json!({ "at": text });
        let mut report = ImportReport::default();
        environment.resolve(&mut value, &mut report);
        assert_eq!(value["at"], expected, "{text}");
        assert_eq!(report.lines().len(), usize::from(!why.is_empty()), "{text}");
        assert!(report.text().contains(why), "{text}: {}", report.text());
    }
}

#[test]
fn unsupported_expressions_are_rejected_with_a_reason() {
    for (text, expected) in [
        ("", "a field is missing before \"\""),
        ("http.path", "an operator is missing before \"\""),
        ("http.path == ", "\"\" is neither text nor number nor address"),
        ("http.path == \"/a", "a text has no end"),
        ("(http.path == \"/a\"", ") is missing before \"\""),
        ("http.path == \"/a\" or http.path == \"/b\"", "\"or http.path == \"/b\"\" is not understood"),
        ("http.path.segments.len == 3", "there is nothing like http.path.segments.len here"),
        ("http.path ~ \"a(b\"", "the pattern a(b cannot be used"),
        ("net.src.ip > 10.0.0.1", "net.src.ip > means nothing here"),
    ] {
        assert_eq!(expression::translate(text), Err(expected.to_owned()), "{text}");
    }
    let deep = format!("{}http.path == \"/\"{}", "(".repeat(100), ")".repeat(100));
    assert_eq!(expression::translate(&deep), Err("parentheses are deeper than 64".to_owned()));
}

#[test]
fn templates_are_markers_of_their_width_while_yaml_is_parsed() {
    let text = r#"a: "${{ env "X" }}-${{ env "Y" }}", b: ${{ env `Z` }}"#;
    let (marked, templates) = DeckTemplates::mark(text);
    assert_eq!(marked.chars().count(), text.chars().count());
    assert!(!marked.contains("env"), "{marked}");
    let inside = &marked[marked.find('"').unwrap() + 1..marked.rfind('"').unwrap()];
    let template = |inside, is_quoted| DeckPiece::Template { inside, is_quoted };
    let expected = [template(" env \"X\" ", true), DeckPiece::Text("-"), template(" env \"Y\" ", false)];
    assert_eq!(templates.pieces(inside).unwrap(), expected);
    assert!(DeckTemplates::default().pieces("${{ env").is_err());
    assert_eq!(DeckTemplates::default().pieces("\u{E000}7\u{E001}").unwrap().len(), 2);
}

#[test]
fn booleans_of_yaml_1_1_are_read() {
    for (value, expected) in [
        (json!(true), Some(true)),
        (json!("yes"), Some(true)),
        (json!("On"), Some(true)),
        (json!("no"), Some(false)),
        (json!("OFF"), Some(false)),
        (json!("never"), None),
        (json!(1), None),
    ] {
        let fields = [("f".to_owned(), value.clone())].into_iter().collect();
        let mut entity = KongEntity::new("entity".into(), String::new(), String::new(), fields);
        let mut report = ImportReport::default();
        assert_eq!(entity.flag("f", &mut report), expected, "{value}");
        assert_eq!(report.lines().is_empty(), expected.is_some(), "{value}");
    }
}
