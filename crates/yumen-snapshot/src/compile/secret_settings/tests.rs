use serde_json::json;
use yumen_base::Problem;
use yumen_config::Kind;

use super::{ObjectName, hide, may_be_secret};

#[test]
fn messages_about_authentication_do_not_repeat_the_value() {
    let check = |object: &str, path: &str, expected: &str| {
        let message = "failed to match pattern \"^a$\" with \"b\" with \"c\"";
        assert_eq!(hide(Problem::error(object, path, message)).message, expected, "{object} {path}");
    };
    let hidden = "failed to match pattern \"^a$\"";
    check("consumers/ann", "plugins.key-auth.key", hidden);
    check("routes/1", "plugins.jwt-auth.key", hidden);
    check("routes/1", "plugins.proxy-rewrite.host", "failed to match pattern \"^a$\" with \"b\" with \"c\"");
}

#[test]
fn names_that_look_like_values_may_be_secrets() {
    let name = ObjectName::new(Kind::Consumers, "ann");
    let check = |under: &str, member: &str, value: serde_json::Value, expected: bool| {
        let found = may_be_secret(&name, under, member, &json!({ member: value }));
        assert_eq!(found, expected, "{under} {member}");
    };
    check("plugins.key-auth", "s3cr3t", json!(null), true);
    check("plugins.key-auth", "s3cr3t", json!("x"), true);
    check("plugins.key-auth", "hunter", json!(null), true);
    check("plugins.key-auth", "algo", json!("x"), false);
    check("", "s3cr3t", json!(null), false);
}
