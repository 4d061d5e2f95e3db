//! Builds request targets and locations from templates and client text. The position of a component, in path
//! or query, determines its encoding.

use std::borrow::Cow;
use std::ops::Range;

use yumen_http::uri::{encode_path, encode_query_value, escape, raw_part, raw_routed_part};
use yumen_plugin::vars::{FixedVar, Var};
use yumen_plugin::{Exchange, RequestHead};

/// The position of the next component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetPlace {
    Path,
    Query,
    Fragment,
}

/// The encoding of the literals of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteralEncoding {
    /// Encoded, as configured.
    AsWritten,
    /// Percent-encoded like decoded text, up to the query.
    Path,
}

/// A target under construction.
#[derive(Debug)]
pub(crate) struct TargetBuilder {
    out: Vec<u8>,
    part: TargetPlace,
    literals: LiteralEncoding,
    /// Whether a variable at the beginning of the target is inserted as a URL.
    begins_with_url: bool,
    /// Offset of the question mark.
    question: Option<usize>,
    fragment: Option<usize>,
    carries_query: bool,
    /// Ranges with client text; recorded for locations only.
    client_text: Option<Vec<Range<usize>>>,
}

impl TargetBuilder {
    /// An empty target.
    pub(crate) fn new(literals: LiteralEncoding) -> TargetBuilder {
        TargetBuilder {
            out: Vec::with_capacity(64),
            part: TargetPlace::Path,
            literals,
            begins_with_url: false,
            question: None,
            fragment: None,
            carries_query: false,
            client_text: None,
        }
    }

    /// Records the ranges with client text, for [`TargetBuilder::has_client_text_in_authority`].
    pub(crate) fn noting_client_text(self) -> TargetBuilder {
        TargetBuilder { client_text: Some(Vec::new()), ..self }
    }

    /// An empty location, which may begin with a variable that contains a URL.
    pub(crate) fn location(literals: LiteralEncoding) -> TargetBuilder {
        TargetBuilder { begins_with_url: true, ..TargetBuilder::new(literals) }
    }

    /// Appends text of the settings. Its first question mark begins the query.
    pub(crate) fn literal(&mut self, text: &[u8]) {
        let mut rest = text;
        // In a template that is percent-encoded, a number sign is text.
        let is_mark =
            |byte: &u8| *byte == b'?' || (*byte == b'#' && self.literals == LiteralEncoding::AsWritten);
        if self.part == TargetPlace::Path
            && let Some(at) = rest.iter().position(is_mark)
        {
            self.literal_path(&rest[..at]);
            self.begin(rest[at]);
            rest = &rest[at + 1..];
        }
        match self.part {
            TargetPlace::Path => self.literal_path(rest),
            TargetPlace::Query if self.literals == LiteralEncoding::AsWritten => {
                let end = rest.iter().position(|byte| *byte == b'#').unwrap_or(rest.len());
                self.out.extend_from_slice(&rest[..end]);
                if let Some((hash, rest)) = rest[end..].split_first() {
                    self.begin(*hash);
                    self.out.extend_from_slice(rest);
                }
            }
            TargetPlace::Query | TargetPlace::Fragment => self.out.extend_from_slice(rest),
        }
    }

    fn literal_path(&mut self, text: &[u8]) {
        match self.literals {
            LiteralEncoding::AsWritten => self.out.extend_from_slice(text),
            LiteralEncoding::Path => encode_path(text, &mut self.out),
        }
    }

    fn begin(&mut self, mark: u8) {
        if mark == b'#' {
            self.fragment = Some(self.out.len());
            self.part = TargetPlace::Fragment;
        } else {
            self.question = Some(self.out.len());
            self.part = TargetPlace::Query;
        }
        self.out.push(mark);
    }

    /// Appends decoded client text.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match self.part {
            TargetPlace::Query => encode_query_value(text, &mut self.out),
            TargetPlace::Path | TargetPlace::Fragment => encode_path(text, &mut self.out),
        }
    }

    /// Appends a range of the request's path. Within a path its octets remain as received.
    pub(crate) fn path_part(&mut self, request: &RequestHead, decoded: Range<usize>) {
        let start = self.out.len();
        match self.part {
            TargetPlace::Query => self.text(&request.path()[decoded]),
            _ => self.encoded(raw_part(request.raw_path(), decoded)),
        }
        self.note_client_text(start);
    }

    /// Appends the value of a variable, or `default` without a value.
    pub(crate) fn variable(&mut self, var: &Var, default: Option<&[u8]>, ex: &Exchange<'_>) {
        let start = self.out.len();
        self.value(var, default, ex);
        if !names_own_host(var) {
            self.note_client_text(start);
        }
    }

    fn note_client_text(&mut self, start: usize) {
        let end = self.out.len();
        if let Some(ranges) = self.client_text.as_mut().filter(|_| start < end) {
            ranges.push(start..end);
        }
    }

    /// Whether client text is in the authority of the location, or forms its scheme.
    ///
    /// Client text may be a label before a constant suffix, as in `//$arg_tenant.example.com`.
    pub(crate) fn has_client_text_in_authority(&self) -> bool {
        let out = &self.out;
        let is_after_scheme = |at: usize| {
            at == 0 || out[at - 1] == b':' && !out[..at].iter().any(|byte| matches!(byte, b'/' | b'?' | b'#'))
        };
        let Some(slashes) = (0..out.len()).find(|at| out[*at..].starts_with(b"//") && is_after_scheme(*at))
        else {
            return false;
        };
        let start = slashes + 2;
        // Browsers treat a backslash as a slash (WHATWG URL).
        let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#' | b'\\');
        let end = out[start..].iter().position(is_end).map_or(out.len(), |length| start + length);
        let is_client = |at: usize| self.client_text.iter().flatten().any(|range| range.contains(&at));
        let is_label = |range: &Range<usize>| {
            let is_of_label = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            range.start >= start
                && range.end < end
                && out[range.clone()].iter().all(is_of_label)
                && out[range.end] == b'.'
                && (range.end..end).all(|at| !is_client(at))
        };
        let mut ranges = self.client_text.iter().flatten();
        ranges.any(|range| range.start < end && !is_label(range) && (range.end > start || range.start == 0))
    }

    fn value(&mut self, var: &Var, default: Option<&[u8]>, ex: &Exchange<'_>) {
        let request = &ex.request;
        let is_url = self.begins_with_url && self.out.is_empty();
        match var {
            Var::Fixed(FixedVar::Uri) => self.path_part(request, 0..request.path().len()),
            Var::Fixed(FixedVar::RequestUri) => self.whole_target(&request.forwarded_request_uri()),
            Var::Fixed(FixedVar::RealRequestUri) => self.whole_target(request.real_request_uri()),
            Var::Fixed(FixedVar::UpstreamUri) => self.whole_target(request.upstream_target()),
            Var::Fixed(FixedVar::IsArgs) => self.is_args(request),
            Var::Fixed(FixedVar::Args) => self.args(request.query().or(default).unwrap_or_default()),
            Var::PathParam(name) if self.part != TargetPlace::Query => {
                match ex.route.path_params.iter().find(|(param, _)| **param == **name) {
                    Some((_, range)) => self.encoded(raw_routed_part(request.raw_path(), range.clone())),
                    None => self.text(default.unwrap_or_default()),
                }
            }
            _ => {
                let value = var.get(ex).or(default.map(Cow::Borrowed)).unwrap_or_default();
                if is_url { self.url(&value) } else { self.text(&value) }
            }
        }
    }

    /// Appends encoded text. Octets that are invalid in a URL are escaped.
    fn encoded(&mut self, text: &[u8]) {
        for &byte in text {
            match byte {
                0..=b' ' | 0x7f.. | b'\\' | b'"' | b'<' | b'>' => escape(byte, &mut self.out),
                _ => self.out.push(byte),
            }
        }
    }

    /// Appends path and query of the request; within a query they are one value.
    fn whole_target(&mut self, target: &[u8]) {
        if self.part == TargetPlace::Query {
            return self.text(target);
        }
        self.carries_query = true;
        self.url(target);
    }

    /// Appends text that may contain a query.
    fn url(&mut self, url: &[u8]) {
        let question = url.iter().position(|byte| *byte == b'?').unwrap_or(url.len());
        self.encoded(&url[..question]);
        if let (TargetPlace::Path, Some((mark, query))) = (self.part, url[question..].split_first()) {
            self.begin(*mark);
            self.encoded(query);
        }
    }

    fn is_args(&mut self, request: &RequestHead) {
        if request.query().is_none_or(|query| query.is_empty()) {
            return;
        }
        match self.part {
            TargetPlace::Path => self.begin(b'?'),
            TargetPlace::Query | TargetPlace::Fragment => self.out.push(b'?'),
        }
    }

    /// Appends the encoded query of the request.
    fn args(&mut self, query: &[u8]) {
        if self.part == TargetPlace::Query {
            self.carries_query = true;
            return self.encoded(query);
        }
        // In a path, a question mark would begin the query.
        for part in query.split_inclusive(|byte| *byte == b'?') {
            match part.split_last() {
                Some((b'?', before)) => {
                    self.encoded(before);
                    self.out.extend_from_slice(b"%3F");
                }
                _ => self.encoded(part),
            }
        }
    }

    /// Inserts a query before the fragment, unless a variable has already inserted that of the request.
    pub(crate) fn add_query(&mut self, query: &[u8]) {
        if query.is_empty() || self.carries_query {
            return;
        }
        // The query precedes the fragment.
        let fragment = self.fragment.map(|at| self.out.split_off(at)).unwrap_or_default();
        self.out.push(if self.question.is_some() { b'&' } else { b'?' });
        self.out.extend_from_slice(query);
        self.out.extend_from_slice(&fragment);
    }

    /// The finished target.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// Whether the variable is the host or port that the client connected to, which no third party can choose.
fn names_own_host(var: &Var) -> bool {
    use FixedVar::{Host, ServerAddr, ServerName, ServerPort, SslServerName};
    match var {
        Var::Fixed(var) => matches!(var, Host | ServerAddr | ServerName | ServerPort | SslServerName),
        Var::RequestField(name) => name.eq_ignore_ascii_case("host"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
