use serde_json::json;

use super::*;

#[test]
fn members_with_secrets_are_known_by_the_end_of_their_names() {
    for (name, expected) in [
        ("redis_password", true),
        ("Client-Secret", true),
        ("secret_fallbacks", true),
        ("key", true),
        ("monkey", false),
        ("key_id", false),
        ("cookie", false),
        ("auth_plugins", false),
    ] {
        assert_eq!(is_secret_member(name), expected, "{name}");
    }
}

#[test]
fn fields_that_grant_access_are_known_by_their_words() {
    for (name, expected) in [
        ("Authorization", true),
        ("proxy-authorization", true),
        ("Cookie", true),
        ("Set-Cookie", true),
        ("X-AuthToken", true),
        ("X-Auth-User", true),
        ("X-Session-Id", true),
        ("access_token", true),
        ("sig", true),
        ("WWW-Authenticate", false),
        ("X-Env", false),
        ("Content-Encoding", false),
        ("design", false),
    ] {
        assert_eq!(is_secret_field(name), expected, "{name}");
    }
}

#[test]
fn credentials_in_urls_are_hidden() {
    for (text, expected) in [
        ("http://a.test/x@y", "http://a.test/x@y"),
        ("http://token@a.test", "http://******@a.test"),
        ("see http://u:p@a.test/x, https://u:p:q@b", "see http://u:******@a.test/x, https://u:******@b"),
        ("https://a.test/?token=s3cr3t", "https://a.test/?token=******"),
        ("/push?a=1&api_key=s3cr3t&b=2#x", "/push?a=1&api_key=******&b=2#x"),
        ("/f?code=s3,cr3t;key=s3cr3t", "/f?code=******;key=******"),
        ("/f?a&b=&token=&sig=s", "/f?a&b=&token=&sig=******"),
        ("/f#access_token=s3cr3t", "/f#access_token=******"),
        ("/f?x=1#access_token=s3cr3t", "/f?x=1#access_token=******"),
        ("is /a?key=s3cr3t right? token = none", "is /a?key=****** right? token = none"),
        ("\"/a?b=c\" and \"/d?token=s3cr3t\"", "\"/a?b=c\" and \"/d?token=******\""),
        ("/a?b=c?token=s3cr3t", "/a?b=c?token=******"),
        ("^/(?:a|b)?key$", "^/(?:a|b)?key$"),
        ("/ä?tökén=ü&token=ü ü", "/ä?tökén=ü&token=****** ü"),
        ("?", "?"),
        ("??=&", "??=&"),
    ] {
        let mut shown = text.to_owned();
        hide_in_urls(&mut shown);
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn only_values_of_six_bytes_are_searched_for() {
    for (values, expected) in [
        (&["s3cr3t"][..], "a ******, ******-2 b"),
        (&["s3cr3t", "s3cr3t-2"], "a ******, ****** b"),
        (&["a", ""], "a s3cr3t, s3cr3t-2 b"),
    ] {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(without_values("a s3cr3t, s3cr3t-2 b".to_owned(), values), expected);
    }
    let quoted = without_values(r#"{"a":"x\"yz12"}"#.to_owned(), vec!["x\"yz12".to_owned()]);
    assert_eq!(quoted, r#"{"a":"******"}"#);
}

#[test]
fn compared_secrets_of_conditions_are_hidden() {
    for (condition, expected) in [
        (json!(["http_authorization", "==", "a"]), json!(["http_authorization", "==", "******"])),
        (json!(["arg_v", "==", "a"]), json!(["arg_v", "==", "a"])),
        (
            json!(["OR", ["cookie_session_token", "in", ["a", "b"]], ["arg_v", "~~", "c"]]),
            json!(["OR", ["cookie_session_token", "in", "******"], ["arg_v", "~~", "c"]]),
        ),
    ] {
        let mut shown = condition;
        hide_compared(&mut shown);
        assert_eq!(shown, expected);
    }
}
