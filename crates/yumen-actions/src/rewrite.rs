//! Changes of hosts and paths, for rewrites and for the locations of redirects.

use std::borrow::Cow;
use std::ops::Range;

use yumen_config::InvalidSettings;
use yumen_config::resource::{PathEditSpec, RewriteSpec};
use yumen_http::uri::{self, PathForms, PathPolicy};
use yumen_plugin::{
    BacktrackBudget, Exchange, LocalResponse, PatternCase, PatternOptions, RegexPattern, RequestHead,
};

/// Host and path for the upstream.
#[derive(Debug, Clone)]
pub struct PathRewrite {
    host: Option<Box<[u8]>>,
    path: Option<PathEdit>,
}

/// Client text would form a dot segment in the new path. The upstream would resolve it to a path outside the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewriteRefused;

impl RewriteRefused {
    /// The response to the request.
    pub fn response(self) -> LocalResponse {
        LocalResponse::error_msg(400, "the rewritten path has a dot segment or an invalid escape")
    }
}

impl PathRewrite {
    /// Compiles a rewrite.
    ///
    /// # Errors
    /// The pattern has syntax that no engine supports.
    pub fn build(written: &RewriteSpec) -> Result<PathRewrite, InvalidSettings> {
        let path = written.path.as_ref().map(PathEdit::build).transpose();
        Ok(PathRewrite {
            host: written.host.as_ref().map(|host| host.as_bytes().into()),
            path: path.map_err(|invalid| invalid.under("rewrite"))?,
        })
    }

    /// Rewrites the request of an exchange. A path that the edit does not match stays.
    ///
    /// # Errors
    /// Client text would form a dot segment in the new path.
    pub fn apply(&self, ex: &mut Exchange<'_>) -> Result<(), RewriteRefused> {
        if let Some(host) = &self.host {
            ex.upstream.host = Some(host.clone());
        }
        let Some(edit) = &self.path else { return Ok(()) };
        let path = edit.edited(PathSource::for_upstream(&ex.request), ex)?;
        let Some(mut target) = path else { return Ok(()) };
        if target.is_empty() {
            // The empty path is `/` (RFC 9110 §4.2.3).
            target.push(b'/');
        }
        append_query(&mut target, query_of(ex.request.upstream_target()));
        ex.request.set_upstream_target(&target);
        Ok(())
    }
}

/// The query of a target.
pub(crate) fn query_of(target: &[u8]) -> Option<&[u8]> {
    let question = target.iter().position(|byte| *byte == b'?')?;
    Some(&target[question + 1..])
}

/// Appends a query to a target, which may have one already.
pub(crate) fn append_query(target: &mut Vec<u8>, query: Option<&[u8]>) {
    let Some(query) = query else { return };
    target.push(if target.contains(&b'?') { b'&' } else { b'?' });
    target.extend_from_slice(query);
}

/// A path before an edit.
pub(crate) struct PathSource<'p> {
    /// With the escapes of the client.
    raw: Cow<'p, [u8]>,
    /// As the router compares it.
    routed: Cow<'p, [u8]>,
    /// Whether `%2F` and `%25` remain encoded in the routed form.
    keeps_escapes: bool,
}

impl<'p> PathSource<'p> {
    /// The path that the client sent, without dot segments.
    pub(crate) fn of_client(head: &'p RequestHead) -> PathSource<'p> {
        PathSource {
            raw: Cow::Borrowed(head.raw_path()),
            routed: Cow::Borrowed(head.routed_path()),
            keeps_escapes: head.routed_path() != head.path(),
        }
    }

    /// The octets of a range of the routed form, with the escapes of the client.
    fn raw_part(&self, range: Range<usize>) -> &[u8] {
        match self.keeps_escapes {
            true => uri::raw_routed_part(&self.raw, range),
            false => uri::raw_part(&self.raw, range),
        }
    }

    /// The path as the upstream would get it so far.
    fn for_upstream(head: &'p RequestHead) -> PathSource<'p> {
        if !head.is_rewritten() {
            return PathSource::of_client(head);
        }
        let target = head.upstream_target();
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        match PathForms::read(&target[..end], PathPolicy::default()) {
            Ok(forms) => PathSource {
                raw: forms.resolved.map_or(Cow::Borrowed(&target[..end]), Cow::Owned),
                keeps_escapes: forms.routed.is_some(),
                routed: Cow::Owned(forms.routed.unwrap_or(forms.decoded)),
            },
            // Without a normal form nothing matches.
            Err(_) => PathSource {
                raw: Cow::Borrowed(&target[..end]),
                routed: Cow::Borrowed(&[]),
                keeps_escapes: false,
            },
        }
    }
}

/// A change of a path.
#[derive(Debug, Clone)]
pub(crate) enum PathEdit {
    Full(Box<[u8]>),
    Prefix {
        /// Decoded, without a slash at the end.
        from: Box<[u8]>,
        to: Box<[u8]>,
    },
    Regex {
        pattern: RegexPattern,
        to: Box<[PathTemplatePart]>,
    },
    /// Without the last slash, if there is no query.
    TrimSlash,
}

/// A part of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathTemplatePart {
    Text(Box<[u8]>),
    /// A group of the match.
    Group(usize),
}

impl PathEdit {
    /// Compiles a change.
    pub(crate) fn build(written: &PathEditSpec) -> Result<PathEdit, InvalidSettings> {
        Ok(match written {
            PathEditSpec::Full(path) if path.is_empty() => PathEdit::Full(Box::from(*b"/")),
            PathEditSpec::Full(path) => PathEdit::Full(path.as_bytes().into()),
            PathEditSpec::Prefix { from, to } => PathEdit::Prefix {
                from: uri::decode_escapes(without_slash(from.as_bytes())).into(),
                to: to.as_bytes().into(),
            },
            PathEditSpec::Regex { pattern, ignore_case, to } => {
                let case = if *ignore_case { PatternCase::Insensitive } else { PatternCase::Sensitive };
                let options = PatternOptions { case, ..PatternOptions::default() };
                let compiled = RegexPattern::new(&format!("^(?:{pattern})"), options);
                let refused =
                    |reason| InvalidSettings::at("path.regex.pattern", format!("\"{pattern}\": {reason}"));
                PathEdit::Regex { pattern: compiled.map_err(refused)?, to: template(to) }
            }
            PathEditSpec::TrimSlash => PathEdit::TrimSlash,
        })
    }

    /// The new path, encoded; `None` if the edit does not match.
    pub(crate) fn edited(
        &self,
        path: PathSource<'_>,
        ex: &Exchange<'_>,
    ) -> Result<Option<Vec<u8>>, RewriteRefused> {
        match self {
            PathEdit::Full(full) => Ok(Some(full.to_vec())),
            PathEdit::TrimSlash if query_of(ex.request.real_request_uri()).is_some() => Ok(None),
            PathEdit::TrimSlash => Ok(path.raw.strip_suffix(b"/").map(<[u8]>::to_vec)),
            _ if path.routed.is_empty() => Ok(None),
            PathEdit::Prefix { from, to } => Ok(with_prefix(&path, from, to)),
            PathEdit::Regex { pattern, to } => {
                let found = filled(&path, pattern, to, ex.budget());
                let new_path = ex.decided(found);
                match new_path {
                    Some(new) if uri::has_dot_segment(&new) => Err(RewriteRefused),
                    other => Ok(other),
                }
            }
        }
    }
}

/// Text without slashes at its end.
fn without_slash(mut text: &[u8]) -> &[u8] {
    while let Some(shorter) = text.strip_suffix(b"/") {
        text = shorter;
    }
    text
}

/// The path with another prefix, by the table of the Gateway API.
fn with_prefix(path: &PathSource<'_>, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let rest = path.routed.strip_prefix(from)?;
    // By path element: `/foo` is no prefix of `/foobar`.
    if !rest.is_empty() && !rest.starts_with(b"/") {
        return None;
    }
    if rest.is_empty() {
        return Some(if to.is_empty() { b"/".to_vec() } else { to.to_vec() });
    }
    let rest = path.raw_part(from.len()..path.routed.len());
    Some([without_slash(to), rest].concat())
}

/// The replacement of a path that the pattern matches. Groups keep the encoding of the client.
fn filled(
    path: &PathSource<'_>,
    pattern: &RegexPattern,
    to: &[PathTemplatePart],
    budget: &BacktrackBudget,
) -> Result<Option<Vec<u8>>, yumen_plugin::BacktrackLimitExceeded> {
    let Some(found) = pattern.captures(&path.routed, budget)? else { return Ok(None) };
    let mut out = Vec::with_capacity(path.raw.len() + 16);
    for part in to {
        match part {
            PathTemplatePart::Text(text) => out.extend_from_slice(text),
            PathTemplatePart::Group(number) => {
                if let Some((start, text)) = found.get(*number) {
                    out.extend_from_slice(path.raw_part(start..start + text.len()));
                }
            }
        }
    }
    Ok(Some(out))
}

/// Parses a replacement: `$1` to `$9` are groups, `$$` is a dollar sign.
fn template(text: &str) -> Box<[PathTemplatePart]> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after.first()) {
            (b'$', Some(digit @ b'1'..=b'9')) => {
                if !literal.is_empty() {
                    parts.push(PathTemplatePart::Text(std::mem::take(&mut literal).into()));
                }
                parts.push(PathTemplatePart::Group(usize::from(digit - b'0')));
                &after[1..]
            }
            (b'$', Some(b'$')) => {
                literal.push(b'$');
                &after[1..]
            }
            _ => {
                literal.push(byte);
                after
            }
        };
    }
    if !literal.is_empty() {
        parts.push(PathTemplatePart::Text(literal.into()));
    }
    parts.into()
}

#[cfg(test)]
mod tests;
