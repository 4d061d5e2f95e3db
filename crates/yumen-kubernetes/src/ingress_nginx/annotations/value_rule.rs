//! Rules for the values of annotations, as ingress-nginx 1.13 and later validate them.

use yumen_base::ipset::IpSet;

/// Characters of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CharacterSet {
    /// Letters, digits and `-._~/:`.
    Basic,
    /// Basic and space.
    BasicSpaced,
    /// Basic, comma and space.
    Extended,
    /// Basic and the characters of regular expressions.
    Pattern,
    /// Basic and `,?&=`.
    Url,
    /// Extended, `?&=` and `$`.
    UrlWithVariables,
    /// Basic and `$`.
    PathWithGroups,
    /// Letters, digits and `-_${}`.
    Variables,
    /// Letters, digits and `-_`, comma and space.
    FieldNames,
    /// Letters, digits and `_-`.
    Word,
}

impl CharacterSet {
    /// Whether the set has the character.
    pub(crate) fn has(self, character: char) -> bool {
        let basic = |extra: &str| {
            character.is_ascii_alphanumeric() || "-._~/:".contains(character) || extra.contains(character)
        };
        let word = |extra: &str| {
            character.is_ascii_alphanumeric() || "-_".contains(character) || extra.contains(character)
        };
        match self {
            CharacterSet::Basic => basic(""),
            CharacterSet::BasicSpaced => basic(" "),
            CharacterSet::Extended => basic(", "),
            CharacterSet::Pattern => basic(r"^$[](){}*+?|&=\"),
            CharacterSet::Url => basic(",?&="),
            CharacterSet::UrlWithVariables => basic(", ?&=$"),
            CharacterSet::PathWithGroups => basic("$"),
            CharacterSet::Variables => word("${}"),
            CharacterSet::FieldNames => word(", "),
            CharacterSet::Word => word(""),
        }
    }

    /// The set in words, for messages and documents.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            CharacterSet::Basic => "letters, digits and `-._~/:`",
            CharacterSet::BasicSpaced => "letters, digits, spaces and `-._~/:`",
            CharacterSet::Extended => "letters, digits, spaces and `-._~/:,`",
            CharacterSet::Pattern => r"letters, digits, `-._~/:` and `^$[](){}*+?|&=\`",
            CharacterSet::Url => "letters, digits and `-._~/:,?&=`",
            CharacterSet::UrlWithVariables => "letters, digits, spaces and `-._~/:,?&=$`",
            CharacterSet::PathWithGroups => "letters, digits and `-._~/:$`",
            CharacterSet::Variables => "letters, digits and `-_${}`",
            CharacterSet::FieldNames => "names of fields, separated by commas",
            CharacterSet::Word => "letters, digits and `-_`",
        }
    }
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueRule {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Number,
    /// One of these words. Upper and lower case are equal if `any_case` is set.
    Choice { words: &'static [&'static str], any_case: bool },
    /// Text of these characters; spaces are passed over.
    Text(CharacterSet),
    /// Text of these characters and no others.
    Unspaced(CharacterSet),
    /// Host names or patterns of them, separated by commas.
    ServerNames,
    /// A number of bytes with an optional unit `k`, `m` or `g`.
    Size,
    /// Addresses and networks, separated by commas.
    Networks,
    /// Statuses from 400 to 599, separated by commas.
    ErrorStatuses,
    /// Words of `proxy-next-upstream`.
    NextUpstream,
    /// `off`, or two texts.
    CookieDomain,
    /// The name of a Service.
    ServiceName,
    /// `CN=` and a regular expression.
    CommonName,
    /// A URL or path without arguments.
    ErrorPage,
    /// Names of methods, separated by commas.
    Methods,
    /// Origins, separated by commas, or `*`.
    Origins,
    /// Names of fields or `*`, separated by commas.
    ExposedFields,
    /// Cipher suites, separated by colons.
    Ciphers,
    /// A number of seconds.
    Seconds,
    /// Directives of NGINX.
    Snippet,
}

/// Bytes of a compiled pattern, each of which costs memory at every review.
const PATTERN_SIZE_MAX: usize = 1 << 20;

fn is_small_pattern(pattern: &str) -> bool {
    regex::RegexBuilder::new(pattern).size_limit(PATTERN_SIZE_MAX).build().is_ok()
}

impl ValueRule {
    /// Checks a value that is not empty.
    pub(crate) fn check(self, value: &str) -> Result<(), String> {
        // A line break ended a directive in the configuration of NGINX (CVE-2021-25742 and its successors).
        if self != ValueRule::Snippet && value.trim_end().chars().any(char::is_control) {
            return Err("the value has control characters".to_owned());
        }
        match self.holds(value) {
            true => Ok(()),
            false => Err(format!("the value must be {}", self.description())),
        }
    }

    fn holds(self, value: &str) -> bool {
        let compact: String = value.chars().filter(|character| *character != ' ').collect();
        match self {
            ValueRule::Switch => parse_switch(value).is_some(),
            ValueRule::Number => value.parse::<i64>().is_ok(),
            ValueRule::Choice { words, any_case } => {
                let value = value.trim();
                words.iter().any(|word| *word == value || any_case && word.eq_ignore_ascii_case(value))
            }
            ValueRule::Text(set) => {
                value.trim_end().chars().all(|character| character == ' ' || set.has(character))
            }
            ValueRule::Unspaced(set) => value.trim_end().chars().all(|character| set.has(character)),
            ValueRule::ServerNames => value
                .split(',')
                .all(|name| name.trim().chars().all(|character| CharacterSet::Pattern.has(character))),
            ValueRule::Size => parse_size(&compact).is_some(),
            ValueRule::Networks => parse_networks(value).is_ok(),
            ValueRule::ErrorStatuses => parse_statuses(&compact).is_some(),
            ValueRule::NextUpstream => {
                value.split_whitespace().all(|word| NEXT_UPSTREAM_WORDS.contains(&word))
            }
            ValueRule::CookieDomain => value == "off" || is_basic_pair(value),
            ValueRule::ServiceName => is_service_name(value),
            ValueRule::CommonName => value.strip_prefix("CN=").is_some_and(is_small_pattern),
            ValueRule::ErrorPage => is_error_page(&compact),
            ValueRule::Methods => {
                !compact.is_empty() && compact.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b',')
            }
            ValueRule::Origins => compact == "*" || compact.split(',').all(is_origin_form),
            ValueRule::ExposedFields => {
                compact.chars().all(|character| "*,".contains(character) || CharacterSet::Word.has(character))
            }
            ValueRule::Ciphers => compact
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || "!:+-_@=".contains(character)),
            ValueRule::Seconds => compact.parse::<i64>().is_ok(),
            ValueRule::Snippet => true,
        }
    }

    /// The form in words, for messages and documents.
    pub(crate) fn description(self) -> String {
        match self {
            ValueRule::Switch => "`true` or `false`".to_owned(),
            ValueRule::Number => "a whole number".to_owned(),
            ValueRule::Choice { words, .. } => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            ValueRule::Text(set) | ValueRule::Unspaced(set) => set.description().to_owned(),
            ValueRule::ServerNames => "host names, separated by commas".to_owned(),
            ValueRule::Size => "a size, such as `8m`".to_owned(),
            ValueRule::Networks => "addresses and networks, separated by commas".to_owned(),
            ValueRule::ErrorStatuses => "statuses from 400 to 599, separated by commas".to_owned(),
            ValueRule::NextUpstream => {
                NEXT_UPSTREAM_WORDS.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ")
            }
            ValueRule::CookieDomain => "`off`, or two names".to_owned(),
            ValueRule::ServiceName => "the name of a Service".to_owned(),
            ValueRule::CommonName => "`CN=` and a regular expression".to_owned(),
            ValueRule::ErrorPage => "a URL or path without arguments".to_owned(),
            ValueRule::Methods => "methods, separated by commas".to_owned(),
            ValueRule::Origins => {
                "origins such as `https://*.example.com`, separated by commas, or `*`".to_owned()
            }
            ValueRule::ExposedFields => "names of fields or `*`, separated by commas".to_owned(),
            ValueRule::Ciphers => "cipher suites, separated by colons".to_owned(),
            ValueRule::Seconds => "a number of seconds".to_owned(),
            ValueRule::Snippet => "directives of NGINX".to_owned(),
        }
    }
}

const NEXT_UPSTREAM_WORDS: [&str; 12] = [
    "error",
    "timeout",
    "invalid_header",
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_403",
    "http_404",
    "http_429",
    "non_idempotent",
    "off",
];

/// Reads the words that Go's `strconv.ParseBool` reads.
pub(crate) fn parse_switch(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Reads `100`, `8k`, `8m` or `1g`, the sizes of NGINX; `b` has no effect.
pub(crate) fn parse_size(value: &str) -> Option<u64> {
    let digits = value.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match value[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(factor)).flatten()
}

/// Reads addresses and networks, separated by commas.
pub(crate) fn parse_networks(value: &str) -> Result<Vec<&str>, String> {
    let networks: Vec<&str> = value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    IpSet::parse(networks.iter().copied())?;
    Ok(networks)
}

/// Reads statuses of errors, separated by commas.
pub(crate) fn parse_statuses(value: &str) -> Option<Vec<u16>> {
    let entries = value.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let status = |entry: &str| entry.parse::<u16>().ok().filter(|status| (400..600).contains(status));
    entries.map(status).collect()
}

fn is_basic_pair(value: &str) -> bool {
    let is_basic = |word: &str| word.chars().all(|character| CharacterSet::Basic.has(character));
    matches!(value.split_whitespace().collect::<Vec<_>>()[..], [from, to] if is_basic(from) && is_basic(to))
}

/// Whether a text is a label by RFC 1035.
fn is_service_name(value: &str) -> bool {
    let bytes = value.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && !value.ends_with('-')
}

fn is_error_page(value: &str) -> bool {
    if let Some(name) = value.strip_prefix('@') {
        return !name.is_empty() && name.chars().all(|character| CharacterSet::Word.has(character));
    }
    let rest = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://")).unwrap_or(value);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    is_authority(authority)
        && path
            .chars()
            .all(|character| character == '.' || character == '/' || CharacterSet::Word.has(character))
        && !path.contains("//")
}

/// Whether a text is a name or address with an optional port, or empty.
fn is_authority(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, ""));
    host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_origin_form(origin: &str) -> bool {
    let rest = match origin.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) => rest,
        Some(_) => return false,
        None => origin,
    };
    let host = rest.strip_prefix("*.").unwrap_or(rest);
    origin == "null" || is_authority(host)
}

#[cfg(test)]
mod tests;
