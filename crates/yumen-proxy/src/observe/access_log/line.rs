//! Line templates of the access log: text with NGINX variables.
//!
//! Owns the variables of an outcome and the escaping of values.

use std::io::Write;

use yumen_plugin::{Exchange, ExchangeOutcome, Var};

use super::escape;

/// Escaping of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEscape {
    /// Bytes that are not printable become `\xHH`; a missing value is `-`.
    Default,
    /// As in a JSON string; a missing value is empty.
    Json,
    /// Line ends become spaces; a missing value is empty.
    None,
}

/// A parsed template.
#[derive(Debug, Clone)]
pub struct LineTemplate {
    pieces: Box<[LinePart]>,
    escape: LineEscape,
}

#[derive(Debug, Clone)]
enum LinePart {
    Text(Box<str>),
    Var(Var),
    Told(OutcomeVar),
}

/// Variables whose value exists only at the end of the exchange.
#[derive(Debug, Clone, Copy)]
enum OutcomeVar {
    Status,
    RequestTime,
    RequestLength,
    BytesSent,
    BodyBytesSent,
    UpstreamTime,
    UpstreamStatus,
    Attempts,
    Fault,
    Source,
}

impl OutcomeVar {
    fn of(name: &str) -> Option<OutcomeVar> {
        Some(match name {
            "status" => OutcomeVar::Status,
            "request_time" | "session_time" => OutcomeVar::RequestTime,
            "request_length" | "bytes_received" => OutcomeVar::RequestLength,
            "bytes_sent" => OutcomeVar::BytesSent,
            "body_bytes_sent" => OutcomeVar::BodyBytesSent,
            "upstream_response_time" => OutcomeVar::UpstreamTime,
            "upstream_status" => OutcomeVar::UpstreamStatus,
            "attempts" => OutcomeVar::Attempts,
            "fault" => OutcomeVar::Fault,
            "response_source" => OutcomeVar::Source,
            _ => return None,
        })
    }

    fn append(self, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) -> bool {
        // A write to a vector cannot fail.
        let _ = match self {
            OutcomeVar::Status => write!(out, "{}", outcome.status),
            OutcomeVar::RequestTime => seconds(outcome.duration_us, out),
            OutcomeVar::RequestLength => write!(out, "{}", outcome.received_bytes),
            OutcomeVar::BytesSent => write!(out, "{}", outcome.sent_bytes),
            OutcomeVar::BodyBytesSent => write!(out, "{}", outcome.sent_body_bytes()),
            OutcomeVar::UpstreamTime => match outcome.upstream_us {
                Some(us) => seconds(us, out),
                None => return false,
            },
            // As in NGINX: the status of a local response for a failed endpoint counts as the endpoint's.
            OutcomeVar::UpstreamStatus => match outcome.upstream_status.or(outcome.upstream_failure) {
                Some(status) => write!(out, "{status}"),
                None => return false,
            },
            OutcomeVar::Attempts => write!(out, "{}", outcome.attempts),
            OutcomeVar::Fault if outcome.fault.is_empty() => return false,
            OutcomeVar::Fault => write!(out, "{}", outcome.fault),
            OutcomeVar::Source => write!(out, "{}", outcome.source.name()),
        };
        true
    }
}

fn seconds(us: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    write!(out, "{}.{:03}", us / 1_000_000, us / 1000 % 1000)
}

impl LineTemplate {
    /// Parses the variables of `text`: `$name` and `${name}`.
    ///
    /// # Errors
    /// An unknown variable.
    pub fn parse(text: &str, escape: LineEscape) -> Result<LineTemplate, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let (name, after) = name(&rest[dollar + 1..])
                .ok_or_else(|| format!("a dollar sign without a variable name: \"{}\"", &rest[dollar..]))?;
            if dollar > 0 {
                pieces.push(LinePart::Text(rest[..dollar].into()));
            }
            pieces.push(piece(name)?);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(LinePart::Text(rest.into()));
        }
        Ok(LineTemplate { pieces: pieces.into(), escape })
    }

    pub(super) fn reads_answer(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, LinePart::Var(var) if var.reads_answer()))
    }

    pub(super) fn write(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let has_value = match piece {
                LinePart::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    true
                }
                LinePart::Told(field) => field.append(outcome, out),
                LinePart::Var(var) => match var.get(ex) {
                    Some(value) => {
                        self.escape(&value, out);
                        true
                    }
                    None => false,
                },
            };
            if !has_value && self.escape == LineEscape::Default {
                out.push(b'-');
            }
        }
    }

    fn escape(&self, value: &[u8], out: &mut Vec<u8>) {
        match self.escape {
            LineEscape::Default => escape(out, value),
            LineEscape::Json => {
                let text = serde_json::Value::from(String::from_utf8_lossy(value)).to_string();
                out.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
            }
            LineEscape::None => {
                out.extend(value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
            }
        }
    }
}

/// Source of a variable's value.
fn piece(name: &str) -> Result<LinePart, String> {
    Ok(match (name, OutcomeVar::of(name), Var::parse(name)) {
        (_, Some(field), _) => LinePart::Told(field),
        // In the log, NGINX and APISIX write the target that the client sent.
        ("request_uri", ..) => LinePart::Var(Var::parse("real_request_uri")),
        (.., Var::Unknown(_)) => return Err(format!("unknown variable ${name}")),
        (.., var) => LinePart::Var(var),
    })
}

/// Splits a name off the start of `text`.
fn name(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('{') {
        return inside.split_once('}').filter(|(name, _)| !name.is_empty());
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}
