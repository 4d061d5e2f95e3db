//! Secrets in shown source lines: output of commands ends up in logs of build systems.
//!
//! Values are masked by the name of their member. A masked line keeps its columns.

use std::ops::Range;

use yumen_base::Problem;

/// Ends of names of members with a secret, in lower case with underscores.
const SECRET_NAMES: [&str; 10] = [
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "private_key",
    "client_key",
    "access_key",
    "authorization",
];

/// Lines of a private key in PEM at most; an RSA key of 16384 bits has 200.
const KEY_LINES_MAX: usize = 250;

/// Longest name that is compared.
const NAME_CHARS_MAX: usize = 64;

/// Characters before a shown part that are searched for the name of its first value.
const CONTEXT_CHARS: usize = 200;

/// The characters of a line, with secrets masked in the shown part. `None` for a line of a private key, and behind the
/// end of the text.
pub(super) fn visible(
    lines: &[&str],
    number: u32,
    problem: &Problem,
    shown: impl FnOnce(usize) -> Range<usize>,
) -> Option<Vec<char>> {
    let index = (number as usize).checked_sub(1)?;
    let line = lines.get(index)?;
    if is_private_key(&lines[..=index]) {
        return None;
    }
    let mut characters: Vec<char> = line.chars().collect();
    let Range { start, end } = shown(characters.len());
    // A whole document may be one line, so only the shown part is searched.
    let part = &mut characters[start.saturating_sub(CONTEXT_CHARS)..end];
    let has_keys = has_keys(&part.iter().collect::<String>(), problem);
    mask(part, has_keys);
    Some(characters)
}

/// Whether the last line is part of a private key in PEM.
fn is_private_key(lines: &[&str]) -> bool {
    let Some((last, before)) = lines.split_last() else { return false };
    let near = before.iter().rev().take(KEY_LINES_MAX);
    let mut marks = near.filter(|line| line.contains("-----BEGIN ") || line.contains("-----END "));
    let begin = marks.next();
    last.contains("PRIVATE KEY")
        || begin.is_some_and(|line| line.contains("PRIVATE KEY") && !line.contains("-----END "))
}

/// Whether a member `key` is a credential, and not the name of a variable as in limits.
fn has_keys(line: &str, problem: &Problem) -> bool {
    let owners = ["consumers/", "credentials/", "ssls/", "secrets/", "yumen.yaml"];
    owners.iter().any(|owner| problem.object.starts_with(owner))
        || [line, problem.path.as_str()].iter().any(|text| text.contains("-auth"))
}

/// Replaces each character of a secret by `*`.
fn mask(characters: &mut [char], has_keys: bool) {
    for colon in 0..characters.len() {
        if characters[colon] == ':' && is_secret(&name_before(&characters[..colon]), has_keys) {
            let (from, to) = value_after(characters, colon + 1);
            characters[from..to].fill('*');
        }
    }
}

/// The member name that ends before a colon.
fn name_before(before: &[char]) -> String {
    let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let last = before.iter().rposition(is_name).map_or(0, |at| at + 1);
    // Between name and colon there is white space or a quote; a long text is no name.
    let start = before[..last].iter().rposition(|c| !is_name(c)).map_or(0, |at| at + 1);
    let start = start.max(last.saturating_sub(NAME_CHARS_MAX));
    let name: String = before[start..last].iter().collect();
    name.to_ascii_lowercase().replace('-', "_")
}

fn is_secret(name: &str, has_keys: bool) -> bool {
    (has_keys && name == "key") || SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

/// Start and end of the value behind a colon; empty for an object or a list.
fn value_after(characters: &[char], colon: usize) -> (usize, usize) {
    let is_blank = |c: &char| c.is_whitespace();
    let from = colon + characters[colon..].iter().take_while(|c| is_blank(c)).count();
    let rest = &characters[from..];
    let length = match rest.first() {
        None | Some('{' | '[') => 0,
        Some(quote @ ('"' | '\'')) => {
            rest.iter().skip(1).position(|c| c == quote).map_or(rest.len(), |length| length + 2)
        }
        // In a flow collection a comma or a bracket ends a plain value (YAML 1.2.2 §7.3.3).
        Some(_) if characters[..from].iter().rev().any(|c| matches!(c, '{' | '[')) => {
            rest.iter().position(|c| matches!(c, ',' | '}' | ']')).unwrap_or(rest.len())
        }
        Some(_) => rest.len(),
    };
    (from, from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, number: u32, object: &str, expected: Option<&str>) {
        let lines: Vec<&str> = text.lines().collect();
        let problem = Problem::error(object, "", "");
        let found = visible(&lines, number, &problem, |length| 0..length);
        let found: Option<String> = found.map(|characters| characters.into_iter().collect());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn secrets_are_masked_by_their_names() {
        check("  redis_password: open, sesame", 1, "routes/1", Some("  redis_password: ************"));
        check(
            "{\"client_secret\": \"a:b\", \"n\": 1}",
            1,
            "routes/1",
            Some("{\"client_secret\": *****, \"n\": 1}"),
        );
        check("{ token: abc, count: 2 }", 1, "routes/1", Some("{ token: ***, count: 2 }"));
        check(
            "plugins: { key-auth: { key: x } }",
            1,
            "consumers/a",
            Some("plugins: { key-auth: { key: **} }"),
        );
    }

    #[test]
    fn the_key_of_a_limit_is_shown() {
        check("limit-count: { key: remote_addr }", 1, "routes/1", Some("limit-count: { key: remote_addr }"));
    }

    #[test]
    fn lines_of_private_keys_are_hidden() {
        let text = "key: |\n  -----BEGIN PRIVATE KEY-----\n  MIIE\n  -----END PRIVATE KEY-----\nsni: a.test";
        check(text, 2, "ssls/1", None);
        check(text, 3, "ssls/1", None);
        check(text, 5, "ssls/1", Some("sni: a.test"));
        check("-----BEGIN CERTIFICATE-----\nMIIC", 2, "ssls/1", Some("MIIC"));
    }
}
