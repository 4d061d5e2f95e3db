//! Secrets in texts that others see: the names of secrets, the credentials in URLs, and the replacement for both.
//!
//! Goes by names and not by schemas: settings of plugins that this version does not know have secrets too.

use serde_json::Value;

/// Replacement for a secret.
pub const HIDDEN: &str = "******";

/// Shortest value, in bytes, that is searched for in texts. A shorter one occurs in texts by chance: its replacement
/// would make them unreadable and show where the value occurs. It is hidden by its place instead.
pub const SEARCHED_BYTES_MIN: usize = 6;

/// Names, or last words of names, of members with secrets. A name too many is better than one too few.
const SECRET_WORDS: [&str; 27] = [
    "key",
    "keys",
    "password",
    "passwd",
    "secret",
    "secrets",
    "secret_fallbacks",
    "token",
    "apikey",
    "api_key",
    "access_key",
    "access_key_id",
    "accesskey",
    "secret_key",
    "secret_id",
    "secretkey",
    "private_key",
    "client_key",
    "credential",
    "credentials",
    "authorization",
    "auth_header",
    "passphrase",
    "salt",
    "sasl_config",
    "service_account_json",
    "signature",
];

/// Words in names of header fields and arguments that grant access.
const ACCESS_WORDS: [&str; 12] = [
    "auth",
    "code",
    "credential",
    "credentials",
    "jwt",
    "key",
    "passphrase",
    "pwd",
    "session",
    "sid",
    "sig",
    "signature",
];

/// Ends of such words, which are often written without a separator: `X-AuthToken`.
const ACCESS_ENDS: [&str; 7] = ["apikey", "authorization", "cookie", "passwd", "password", "secret", "token"];

/// Whether a member of this name contains a secret, such as `redis_password`.
pub fn is_secret_member(name: &str) -> bool {
    // Fields have hyphens where settings have underscores.
    let name = name.to_ascii_lowercase().replace('-', "_");
    let ends =
        |word: &&str| name == **word || name.strip_suffix(*word).is_some_and(|start| start.ends_with('_'));
    SECRET_WORDS.iter().any(ends)
}

/// Whether a header field or an argument of this name grants access, such as `Set-Cookie` or `access_token`.
pub fn is_secret_field(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    let grants =
        |word: &str| ACCESS_WORDS.contains(&word) || ACCESS_ENDS.iter().any(|end| word.ends_with(end));
    is_secret_member(name) || words.any(grants)
}

/// Whether a list is a condition on a field, an argument or a cookie that grants access, such as
/// `["http_x_api_key", "==", "s3cr3t"]`.
pub fn compares_secret(items: &[Value]) -> bool {
    let variable = items.first().and_then(Value::as_str).filter(|_| items.len() > 2);
    let prefixes = ["http_", "arg_", "post_arg_", "cookie_"];
    variable.is_some_and(|name| {
        prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(is_secret_field)
    })
}

/// Hides the secrets in the conditions of an expression.
pub fn hide_compared(condition: &mut Value) {
    let Value::Array(items) = condition else { return };
    if compares_secret(items) {
        items.iter_mut().skip(2).for_each(|value| *value = HIDDEN.into());
    } else {
        items.iter_mut().for_each(hide_compared);
    }
}

/// Hides the credentials of all URLs in a text: user information and arguments that grant access.
pub fn hide_in_urls(text: &mut String) {
    hide_userinfo(text);
    hide_arguments(text);
}

/// Hides the password of each `scheme://user:password@host`, and the user if there is no password, since it
/// may be a token.
fn hide_userinfo(text: &mut String) {
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        from += at + 3;
        let ends = |c: char| matches!(c, '/' | '?' | '#' | ',' | '"') || c.is_whitespace();
        let end = text[from..].find(ends).map_or(text.len(), |length| from + length);
        // A password may contain `@`, so the last one ends the user information.
        let Some(length) = text[from..end].rfind('@') else { continue };
        let start = text[from..from + length].find(':').map_or(from, |colon| from + colon + 1);
        text.replace_range(start..from + length, HIDDEN);
    }
}

/// Hides the values of arguments that grant access, in URLs and in paths: `/push?token=s3cr3t`.
fn hide_arguments(text: &mut String) {
    // White space and quotation marks end a URL in a sentence.
    let ends_url = |c: char| c == '"' || c.is_whitespace();
    // A fragment has arguments too (RFC 6749 §4.2.2).
    let ends_value = |c: char| matches!(c, '?' | '&' | ';' | '#') || ends_url(c);
    let (mut from, mut is_query) = (0, false);
    while let Some((length, mark)) =
        text[from..].char_indices().find(|(_, c)| ends_value(*c) || *c == '=' && is_query)
    {
        let name = from..from + length;
        from = name.end + mark.len_utf8();
        if mark == '=' {
            let end = text[from..].find(ends_value).map_or(text.len(), |length| from + length);
            let is_hidden = end > from && is_secret_field(&text[name]);
            if is_hidden {
                text.replace_range(from..end, HIDDEN);
            }
            from = if is_hidden { from + HIDDEN.len() } else { end };
        } else if ends_url(mark) {
            is_query = false;
        } else {
            is_query |= matches!(mark, '?' | '#');
        }
    }
}

/// The text with asterisks in place of the values that have at least [`SEARCHED_BYTES_MIN`] bytes.
pub fn without_values(text: String, mut values: Vec<String>) -> String {
    values.retain(|value| value.len() >= SEARCHED_BYTES_MIN);
    // The longest first: a value may contain another one.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.iter().fold(text, |text, value| {
        // In JSON, line breaks and quotation marks are escaped.
        let quoted = serde_json::Value::from(value.as_str()).to_string();
        text.replace(value, HIDDEN).replace(quoted.trim_matches('"'), HIDDEN)
    })
}

#[cfg(test)]
mod tests;
