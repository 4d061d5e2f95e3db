//! Names whose values are secrets, and objects that consist of secrets.

use yumen_base::Problem;
use yumen_config::is_slip_of;
use yumen_config::masking::is_secret_member;

/// Last words of names of members with a secret, in lower case, beside those of [`is_secret_member`]: slips of them count
/// here.
const SECRET_WORDS: [&str; 7] =
    ["password", "passwd", "secret", "token", "apikey", "authorization", "passphrase"];

/// Last two words of such names.
const SECRET_PAIRS: [&str; 6] =
    ["api_key", "private_key", "client_key", "access_key", "secret_key", "auth_key"];

/// Members of secret managers, admin keys and consumers that are shown.
const SHOWN_MEMBERS: [&str; 5] = ["id", "name", "role", "username", "disable"];

/// The object of a problem.
pub(super) struct SecretArea<'p> {
    kind: &'p str,
    /// Whether the path leads into settings of authentication, where the text does not show it.
    is_auth: bool,
}

impl<'p> SecretArea<'p> {
    /// `is_cut`: whether the text around the line is unknown.
    pub(super) fn of(problem: &'p Problem, is_cut: bool) -> SecretArea<'p> {
        let kind = problem.object.split(['/', '[']).next().unwrap_or_default();
        let is_of_secrets = matches!(kind, "consumers" | "credentials" | "secrets");
        SecretArea { kind, is_auth: is_cut && (is_of_secrets || problem.path.contains("-auth")) }
    }

    /// Whether a name or a value below `names` is hidden.
    pub(super) fn hides(&self, names: &[String], text: &str, is_name: bool) -> bool {
        let names: Vec<String> = names.iter().map(|name| folded(name)).collect();
        if names.iter().skip(usize::from(is_name && names.len() == 1)).any(|name| is_secret_name(name)) {
            // The list `secrets` has objects with other members.
            let is_list = names.first().is_some_and(|name| name == "secrets");
            if !is_list || names.iter().skip(1).any(|name| is_secret_name(name)) {
                return true;
            }
        }
        let text = text.trim_matches(['"', '\'', ',']);
        !is_name && !matches!(text, "true" | "false" | "null" | "~" | "") && self.is_secret_place(&names)
    }

    fn is_secret_place(&self, names: &[String]) -> bool {
        let is_in = |kind: &str| self.kind == kind || names.first().is_some_and(|name| name == kind);
        let last = names.last().map_or("", String::as_str);
        let is_shown = SHOWN_MEMBERS.contains(&last);
        if self.is_auth || names.iter().any(|name| is_authentication(name)) {
            return last != "disable";
        }
        let is_bare = names.is_empty() || Some(last) == names.first().map(String::as_str);
        (is_in("consumers") || is_in("credentials"))
            && (is_bare || !is_shown && names.iter().any(|name| is_slip_of(name, "plugins")))
            || is_in("secrets") && !is_shown
            || is_in("ssls") && names.iter().any(|name| is_slip_of(name, "key") || is_slip_of(name, "keys"))
            || self.kind == "yumen.yaml"
                && (is_slip_of(last, "key") || (names.iter().any(|name| name == "keys") && !is_shown))
    }
}

/// Whether a plugin authenticates by settings with secrets; `forward-auth` has none.
fn is_authentication(name: &str) -> bool {
    name != "forward_auth"
        && (name.rsplit_once('_').is_some_and(|(_, end)| is_slip_of(end, "auth")) || name == "openid_connect")
}

fn is_secret_name(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let last = words.last().copied().unwrap_or_default();
    let pair = words[words.len().saturating_sub(2)..].join("_");
    // A `key` may name a counted value; `is_secret_place` finds those that are secrets.
    let is_known = is_secret_member(name) && !matches!(last, "key" | "keys");
    is_known
        || SECRET_WORDS.iter().any(|secret| last.ends_with(secret) || is_slip_of(last, secret))
        || SECRET_PAIRS.iter().any(|secret| is_slip_of(&pair, secret))
}

/// A name in lower case, with underscores.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}
