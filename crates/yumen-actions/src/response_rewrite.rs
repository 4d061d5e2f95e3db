//! Rewrites of response fields: domains and paths of cookies, locations, and the rule for TLS.

use yumen_config::InvalidSettings;
use yumen_config::resource::{HstsSpec, ResponseRewriteSpec, TextReplacementSpec};
use yumen_http::{Fields, ResponseHead};
use yumen_plugin::{Exchange, PatternCase, PatternOptions, RegexPattern, VarTemplate};

/// The part of a text that is compared and replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplacedPart {
    /// The whole text; a domain compares without regard to case and without its first dot.
    Domain,
    /// The beginning.
    Prefix,
}

/// A compiled replacement.
#[derive(Debug)]
struct TextReplacement {
    from: ReplacedText,
    /// The new text between the groups of the match.
    to: Box<[ReplacementPiece]>,
}

#[derive(Debug)]
enum ReplacedText {
    Plain(Box<[u8]>),
    Pattern(RegexPattern),
}

#[derive(Debug)]
enum ReplacementPiece {
    Text(VarTemplate),
    Group(usize),
}

/// Compiled rewrites.
#[derive(Debug, Default)]
pub(crate) struct ResponseFieldRewrite {
    domains: Box<[TextReplacement]>,
    paths: Box<[TextReplacement]>,
    locations: Box<[TextReplacement]>,
    hsts: Option<Box<[u8]>>,
}

impl TextReplacement {
    fn build(written: &TextReplacementSpec) -> Result<TextReplacement, InvalidSettings> {
        let from = match written.regex {
            false => ReplacedText::Plain(written.from.as_bytes().into()),
            true => {
                let case =
                    if written.ignore_case { PatternCase::Insensitive } else { PatternCase::Sensitive };
                let options = PatternOptions { case, ..PatternOptions::default() };
                let compiled = RegexPattern::new(&written.from, options);
                let refused = |reason| InvalidSettings::at("from", format!("\"{}\": {reason}", written.from));
                ReplacedText::Pattern(compiled.map_err(refused)?)
            }
        };
        Ok(TextReplacement { from, to: parts(&written.to, written.regex) })
    }

    /// The text after the replacement; `None` if it does not apply.
    fn replaced(&self, text: &[u8], part: ReplacedPart, ex: &Exchange<'_>) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(text.len() + 16);
        match &self.from {
            ReplacedText::Plain(from) => {
                let rest = match part {
                    ReplacedPart::Domain => is_same_domain(text, from).then_some(&b""[..])?,
                    ReplacedPart::Prefix => text.strip_prefix(&**from)?,
                };
                self.fill(ex, |_| &[][..], &mut out);
                out.extend_from_slice(rest);
            }
            ReplacedText::Pattern(pattern) => {
                let found = pattern.captures(text, ex.budget());
                let found = ex.decided(found)?;
                let (start, whole) = found.get(0)?;
                out.extend_from_slice(&text[..start]);
                self.fill(ex, |group| found.get(group).map_or(&[][..], |(_, text)| text), &mut out);
                out.extend_from_slice(&text[start + whole.len()..]);
            }
        }
        Some(out)
    }

    fn fill<'t>(&self, ex: &Exchange<'_>, group: impl Fn(usize) -> &'t [u8], out: &mut Vec<u8>) {
        for part in &self.to {
            match part {
                ReplacementPiece::Text(text) => drop(text.render(ex, out)),
                ReplacementPiece::Group(number) => out.extend_from_slice(group(*number)),
            }
        }
    }
}

fn is_same_domain(text: &[u8], from: &[u8]) -> bool {
    // The first dot of a domain has no meaning (RFC 6265 §5.2.3).
    let bare = |domain: &'_ [u8]| domain.strip_prefix(b".").unwrap_or(domain).to_ascii_lowercase();
    bare(text) == bare(from)
}

/// Splits a replacement at its groups, `$1` to `$9`.
fn parts(text: &str, has_groups: bool) -> Box<[ReplacementPiece]> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while has_groups && at + 1 < bytes.len() {
        if bytes[at] == b'$' && matches!(bytes[at + 1], b'1'..=b'9') {
            parts.push(ReplacementPiece::Text(VarTemplate::parse(&text[begin..at])));
            parts.push(ReplacementPiece::Group(usize::from(bytes[at + 1] - b'0')));
            begin = at + 2;
            at += 1;
        }
        at += 1;
    }
    parts.push(ReplacementPiece::Text(VarTemplate::parse(&text[begin..])));
    parts.into()
}

impl ResponseFieldRewrite {
    /// The rewrites; `None` if none is written.
    pub(crate) fn build(
        rewrite: Option<&ResponseRewriteSpec>,
        hsts: Option<&HstsSpec>,
    ) -> Result<Option<ResponseFieldRewrite>, InvalidSettings> {
        if rewrite.is_none() && hsts.is_none() {
            return Ok(None);
        }
        let compiled = |list: Option<&Vec<TextReplacementSpec>>, member: &str| {
            let list = list.into_iter().flatten().enumerate();
            let build = |(at, one)| {
                TextReplacement::build(one).map_err(|invalid: InvalidSettings| {
                    invalid.under(&format!("response_rewrite.{member}[{at}]"))
                })
            };
            list.map(build).collect::<Result<Box<[_]>, _>>()
        };
        let written = rewrite.cloned().unwrap_or_default();
        Ok(Some(ResponseFieldRewrite {
            domains: compiled(written.cookie_domains.as_ref(), "cookie_domains")?,
            paths: compiled(written.cookie_paths.as_ref(), "cookie_paths")?,
            locations: compiled(written.locations.as_ref(), "locations")?,
            hsts: hsts.map(|written| rule(written).into_bytes().into()),
        }))
    }

    /// Rewrites a response. Cookies and locations of the gateway itself stay.
    pub(crate) fn apply(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        let is_of_endpoint = ex.endpoint.status != 0;
        if is_of_endpoint && !(self.domains.is_empty() && self.paths.is_empty()) {
            rewrite_all(&mut head.fields, "Set-Cookie", |cookie| self.cookie(cookie, ex));
        }
        if is_of_endpoint && !self.locations.is_empty() {
            rewrite_all(&mut head.fields, "Location", |url| self.location(url, ex));
            rewrite_all(&mut head.fields, "Refresh", |value| {
                let at = value.windows(4).position(|four| four.eq_ignore_ascii_case(b"url="))? + 4;
                Some([&value[..at], &self.location(&value[at..], ex)?].concat())
            });
        }
        if let Some(rule) = &self.hsts
            && ex.client.scheme() == "https"
        {
            // RFC 6797 §7.2: never over plain HTTP.
            head.fields.set("Strict-Transport-Security", rule);
        }
    }

    fn location(&self, url: &[u8], ex: &Exchange<'_>) -> Option<Vec<u8>> {
        self.locations.iter().find_map(|one| one.replaced(url, ReplacedPart::Prefix, ex))
    }

    /// A cookie with another domain or path; `None` if both stay.
    fn cookie(&self, cookie: &[u8], ex: &Exchange<'_>) -> Option<Vec<u8>> {
        let mut is_changed = false;
        let mut out = Vec::with_capacity(cookie.len() + 32);
        for (at, part) in cookie.split(|byte| *byte == b';').enumerate() {
            if at > 0 {
                out.push(b';');
            }
            // The first part is name and value.
            match (at > 0).then(|| self.attribute(part, ex)).flatten() {
                Some(new) => {
                    is_changed = true;
                    out.extend_from_slice(&new);
                }
                None => out.extend_from_slice(part),
            }
        }
        is_changed.then_some(out)
    }

    fn attribute(&self, part: &[u8], ex: &Exchange<'_>) -> Option<Vec<u8>> {
        let equals = part.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (part[..equals].trim_ascii(), part[equals + 1..].trim_ascii());
        let (list, kind) = match name {
            _ if name.eq_ignore_ascii_case(b"domain") => (&self.domains, ReplacedPart::Domain),
            _ if name.eq_ignore_ascii_case(b"path") => (&self.paths, ReplacedPart::Prefix),
            _ => return None,
        };
        let new = list.iter().find_map(|one| one.replaced(value, kind, ex))?;
        Some([&part[..=equals], &new].concat())
    }
}

/// The value of `Strict-Transport-Security`.
fn rule(written: &HstsSpec) -> String {
    let mut out = format!("max-age={}", written.max_age_s);
    if written.include_subdomains {
        out.push_str("; includeSubDomains");
    }
    if written.preload {
        out.push_str("; preload");
    }
    out
}

/// Replaces the values of all fields of a name; `None` keeps a value.
fn rewrite_all(fields: &mut Fields, name: &str, rewrite: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    if !fields.has(name) {
        return;
    }
    let values: Vec<(Vec<u8>, Option<Vec<u8>>)> = fields
        .iter()
        .filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| (value.to_vec(), rewrite(value)))
        .collect();
    if values.iter().all(|(_, new)| new.is_none()) {
        return;
    }
    fields.remove(name);
    for (old, new) in values {
        fields.add(name, &new.unwrap_or(old));
    }
}

#[cfg(test)]
mod tests;
