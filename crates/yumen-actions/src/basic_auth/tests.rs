//! Credentials of requests against the entries of a file.

use serde_json::{Value, json};

use crate::testing::guard::{CannedAnswer, judged};
use crate::testing::{NotedWarnings, spec};

/// Checks whether a request with these credentials is admitted.
fn check(file: Value, credentials: Option<&str>, expected: bool) {
    use base64::Engine;
    let token = credentials.map(|pair| base64::prelude::BASE64_STANDARD.encode(pair));
    let field = token.map_or(String::new(), |token| format!("\nAuthorization: basic  {token}"));
    let actions = json!({ "access": { "basic_auth_file": file } });
    let judged = judged(actions, &format!("GET /\nHost: a{field}"), CannedAnswer::Fault);
    match judged.refused {
        None => assert!(expected, "{file} {credentials:?}"),
        Some((status, fields)) => {
            assert!(!expected, "{file} {credentials:?}");
            let challenge = "WWW-Authenticate: Basic realm=\"Authentication Required\"".to_owned();
            assert_eq!((status, fields.contains(&challenge)), (401, true), "{fields:?}");
        }
    }
}

#[test]
fn entries_of_a_file_and_of_a_map_admit_their_users() {
    let file = json!({ "file": "# comment\n\nada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=:Ada\r\nada:abJnggxhB/yWI\nbob:abJnggxhB/yWI\n" });
    for (pair, expected) in [
        (Some("ada:secret"), true),
        (Some("ada:password"), false),
        (Some("bob:password"), true),
        (Some("bob:secret"), false),
        (Some("eve:secret"), false),
        (Some("ada"), false),
        (Some(""), false),
        (None, false),
    ] {
        check(file.clone(), pair, expected);
    }
    let map = json!({ "users": { "a:b": "abJnggxhB/yWI", "ada": "$apr1$abcdefgh$FBwExRW4dCc8aL.OvjpIE1" } });
    check(map.clone(), Some("ada:password"), true);
    // The second time, the pair is remembered.
    check(map.clone(), Some("ada:password"), true);
    check(map, Some("ada:passwore"), false);
}

#[test]
fn a_broken_entry_is_reported_and_others_hold() {
    let build = |file: &str| {
        let noted = NotedWarnings::default();
        let spec = spec(json!({ "access": { "basic_auth_file": { "file": file } } }));
        let built = crate::build(&spec, &"routes/1".into(), &noted).map(drop);
        (built, noted.0.into_inner())
    };
    let (built, warnings) = build("ada:abJnggxhB/yWI\nbob:plain\neve");
    assert!(built.is_ok());
    let expected =
        "users who cannot log in: line 2: the password is not hashed; line 3: the password is not hashed";
    assert_eq!(warnings, [format!("actions.access.basic_auth_file: {expected}")]);
    let error = build("bob:plain").0.unwrap_err();
    assert_eq!(error.path, "access.basic_auth_file");
}
