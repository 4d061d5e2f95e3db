//! Settings of authentication: messages must not repeat a secret at the wrong place.

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;

use super::names::ObjectName;

/// Longest name that a misspelt member may have.
const NAME_CHARS_MAX: usize = 24;

/// The problem without the refused value, if the value may be a secret.
pub(super) fn hide(problem: Problem) -> Problem {
    let is_secret =
        ["consumers/", "credentials/", "secrets/"].iter().any(|kind| problem.object.starts_with(kind))
            && problem.path != "username";
    match problem.message.find("failed to match pattern").filter(|_| is_secret || is_auth(&problem.path)) {
        None => problem,
        Some(start) => {
            let value = problem.message[start..]
                .find("\" with \"")
                .map_or(problem.message.len(), |at| start + at + 1);
            Problem { message: problem.message[..value].to_owned(), ..problem }
        }
    }
}

/// Whether the name of an unknown member may be a secret that lacks its own member, as in `key-auth: { s3cr3t }`.
pub(super) fn may_be_secret(name: &ObjectName, under: &str, path: &str, value: &Value) -> bool {
    let is_of_secrets =
        matches!(name.kind, Kind::Consumers | Kind::Credentials) && under.starts_with("plugins.");
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
    let looks_like_value = path.len() > NAME_CHARS_MAX || !path.chars().all(is_word);
    (is_of_secrets || is_auth(under)) && (looks_like_value || value.get(path).is_some_and(Value::is_null))
}

fn is_auth(path: &str) -> bool {
    let plugin = path.strip_prefix("plugins.").and_then(|rest| rest.split('.').next());
    plugin.is_some_and(|plugin| plugin.ends_with("-auth") && plugin != "forward-auth")
}

#[cfg(test)]
mod tests;
