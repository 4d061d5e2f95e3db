//! Typed results of the translation of snippets.

use std::fmt;
use std::sync::Arc;

use super::super::nginx_text::NginxText;

/// A translated snippet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SnippetPlan {
    /// Branches by condition. The first one whose conditions hold has effect; the last one has no conditions.
    pub branches: Vec<SnippetBranch>,
    /// Locations within the block. They take precedence over the paths of Ingresses by the rules of NGINX.
    pub locations: Vec<SnippetLocation>,
    /// Directives without effect.
    pub notes: Vec<SnippetNote>,
}

/// A directive without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetNote {
    /// Line in the snippet, from 1.
    pub line: u32,
    /// Name of the directive.
    pub directive: String,
    /// The reason.
    pub reason: &'static str,
}

/// Formats as `line 3: etag: reason`.
impl fmt::Display for SnippetNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.directive, self.reason)
    }
}

impl SnippetPlan {
    /// The effects without conditions, if there are no others.
    pub fn only(&self) -> Option<&SnippetEffects> {
        match &self.branches[..] {
            [branch] if branch.conditions.is_empty() => Some(&branch.effects),
            _ => None,
        }
    }
}

/// Effects on the requests that meet all conditions and none of the branches before.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SnippetBranch {
    /// The conditions; all must hold.
    pub conditions: Vec<SnippetCondition>,
    /// The effects.
    pub effects: SnippetEffects,
}

/// A test of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum SnippetTest {
    /// Neither empty nor `0`.
    IsSet,
    /// Equal to a text.
    Equals(Arc<str>),
    /// A match of a pattern anywhere in the text.
    Matches {
        /// The regular expression.
        pattern: Arc<str>,
        /// Whether upper and lower case are equal.
        ignore_case: bool,
    },
}

/// A condition on one variable of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct SnippetCondition {
    /// Name of the variable, without `$`; an argument, field or cookie as `arg_x`, `http_x`, `cookie_x`.
    pub variable: Arc<str>,
    /// The test.
    pub test: SnippetTest,
    /// Whether the test must fail.
    pub negated: bool,
}

/// A response of the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum SnippetAnswer {
    /// A status with a body.
    Respond {
        /// The status. 444 closes the connection without a response.
        status: u16,
        /// The body; `None` means the page of the status.
        body: Option<NginxText>,
        /// The media type of the body.
        media_type: Option<Arc<str>>,
    },
    /// A redirect.
    Redirect {
        /// The status.
        status: u16,
        /// The location: a URL, or a path of the same host.
        location: NginxText,
    },
    /// A redirect by a pattern on the path (`rewrite … redirect`).
    RewriteRedirect {
        /// The status.
        status: u16,
        /// Pattern and location.
        edit: SnippetPathEdit,
    },
}

/// A replacement of the whole path where a pattern matches anywhere in it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnippetPathEdit {
    /// The regular expression on the decoded path.
    pub pattern: Arc<str>,
    /// The new path with groups; a `?` separates arguments that come before those of the request.
    pub to: NginxText,
    /// Whether the query of the request is kept.
    pub keep_query: bool,
    /// Whether the new path chooses another path of the host (`last`).
    pub relocates: bool,
}

/// The value of a field for the upstream.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestFieldValue {
    /// A text. An empty one removes the field.
    Text(NginxText),
    /// A text whose variables are fields of the auth service's answer, by their names (`auth_request_set`).
    AuthAnswer(NginxText),
}

/// An edit of a field of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFieldEdit {
    /// Name of the field.
    pub name: Arc<str>,
    /// Its new value.
    pub value: RequestFieldValue,
}

/// The kind of an edit of a field of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFieldVerb {
    /// A further field (`add_header`).
    Add,
    /// The only field of the name (`more_set_headers`).
    Set,
    /// No field of the name (`more_clear_headers`, `proxy_hide_header`). A `*` at the end stands for any characters.
    Remove,
}

/// An edit of a field of responses.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseFieldEdit {
    /// Name of the field.
    pub name: Arc<str>,
    /// The edit.
    pub verb: ResponseFieldVerb,
    /// The value; empty with `Remove`.
    pub value: NginxText,
    /// Statuses of the responses that are edited; empty means all. `add_header` without `always` has the ten of NGINX.
    pub statuses: Vec<u16>,
}

/// A rule of a list of addresses; the first rule that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// Whether the rule admits.
    pub allows: bool,
    /// The network; `None` means all.
    pub network: Option<Arc<str>>,
}

/// A setting of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum SnippetSetting {
    /// The largest body of a request, in bytes; 0 means any.
    BodyBytesMax(u64),
    /// Time to connect, in milliseconds.
    ConnectTimeoutMs(u64),
    /// Time between two reads, in milliseconds.
    ReadTimeoutMs(u64),
    /// Time between two writes, in milliseconds.
    SendTimeoutMs(u64),
    /// Whether responses are compressed with gzip.
    Gzip(bool),
    /// Bytes per second of a response; 0 means any.
    ResponseRate(u64),
    /// Bytes of a response before its rate is limited.
    ResponseRateAfter(u64),
    /// Whether exchanges are in the access log.
    AccessLog(bool),
    /// The method of the request to the upstream.
    Method(Arc<str>),
    /// Whether one of the lists of addresses and authentication suffices.
    SatisfyAny(bool),
}

/// Effects on a request and its response.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SnippetEffects {
    /// The response of the gateway, in place of the upstream's.
    pub answer: Option<SnippetAnswer>,
    /// The path for the upstream.
    pub path: Option<SnippetPathEdit>,
    /// Edits of fields of requests.
    pub request_fields: Vec<RequestFieldEdit>,
    /// Edits of fields of responses, in this order.
    pub response_fields: Vec<ResponseFieldEdit>,
    /// Rules for addresses of clients, in order.
    pub access: Vec<AccessRule>,
    /// Settings; a later one of a kind replaces an earlier one.
    pub settings: Vec<SnippetSetting>,
}

/// The path of a location.
#[derive(Debug, Clone, PartialEq)]
pub enum LocationMatcher {
    /// `= /path`.
    Exact(Arc<str>),
    /// `/path`: a prefix by characters.
    Prefix(Arc<str>),
    /// `^~ /path`: a prefix that is not followed by regular expressions.
    FinalPrefix(Arc<str>),
    /// `~ pattern` or `~* pattern`: a match anywhere in the path.
    Pattern {
        /// The regular expression.
        pattern: Arc<str>,
        /// Whether upper and lower case are equal.
        ignore_case: bool,
    },
}

/// A location: its branches answer every request.
#[derive(Debug, Clone, PartialEq)]
pub struct SnippetLocation {
    /// The path.
    pub matcher: LocationMatcher,
    /// Line in the snippet, from 1.
    pub line: u32,
    /// Branches by condition, as in [`SnippetPlan`].
    pub branches: Vec<SnippetBranch>,
}

/// Why a snippet has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetRefusal {
    /// Line in the snippet, from 1.
    pub line: u32,
    /// Name of the directive; empty if the text is not NGINX's syntax.
    pub directive: String,
    /// The reason.
    pub reason: String,
    /// Another way to the same effect.
    pub way_over: Option<&'static str>,
    /// Whether the snippet has directives that admit or refuse requests, so that a protection is missing without it.
    pub guards: bool,
}

/// Formats as `line 3: proxy_pass: reason`.
impl fmt::Display for SnippetRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.directive.is_empty() {
            write!(f, "{}: ", self.directive)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SnippetRefusal {}
