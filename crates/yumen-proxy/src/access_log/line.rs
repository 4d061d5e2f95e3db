//! A line of the access log as somebody wrote it: text with the variables of NGINX in it.
//!
//! Knows what an outcome tells beside an exchange, and how values are escaped.

use std::io::Write;

use yumen_plugin::{Exchange, Outcome, Var};

use super::escape;

/// How values are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// What is not printable becomes `\xHH`, a missing value `-`.
    Default,
    /// As in a text of JSON; a missing value is empty.
    Json,
    /// Ends of lines become spaces; a missing value is empty.
    None,
}

/// A line, cut once.
#[derive(Debug, Clone)]
pub struct Line {
    pieces: Box<[Piece]>,
    escape: Escape,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(Box<str>),
    Var(Var),
    Told(Told),
}

/// What is known only when all is over.
#[derive(Debug, Clone, Copy)]
enum Told {
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

impl Told {
    fn of(name: &str) -> Option<Told> {
        Some(match name {
            "status" => Told::Status,
            "request_time" | "session_time" => Told::RequestTime,
            "request_length" | "bytes_received" => Told::RequestLength,
            "bytes_sent" => Told::BytesSent,
            "body_bytes_sent" => Told::BodyBytesSent,
            "upstream_response_time" => Told::UpstreamTime,
            "upstream_status" => Told::UpstreamStatus,
            "attempts" => Told::Attempts,
            "fault" => Told::Fault,
            "response_source" => Told::Source,
            _ => return None,
        })
    }

    fn append(self, outcome: &Outcome<'_>, out: &mut Vec<u8>) -> bool {
        // A vector never fails to take bytes.
        let _ = match self {
            Told::Status => write!(out, "{}", outcome.status),
            Told::RequestTime => seconds(outcome.duration_us, out),
            Told::RequestLength => write!(out, "{}", outcome.received_bytes),
            Told::BytesSent => write!(out, "{}", outcome.sent_bytes),
            Told::BodyBytesSent => write!(out, "{}", outcome.sent_body_bytes()),
            Told::UpstreamTime => match outcome.upstream_us {
                Some(us) => seconds(us, out),
                None => return false,
            },
            // As NGINX has it: what we say in place of an endpoint that failed counts as its answer.
            Told::UpstreamStatus => match outcome.upstream_status.or(outcome.upstream_failure) {
                Some(status) => write!(out, "{status}"),
                None => return false,
            },
            Told::Attempts => write!(out, "{}", outcome.attempts),
            Told::Fault if outcome.fault.is_empty() => return false,
            Told::Fault => write!(out, "{}", outcome.fault),
            Told::Source => write!(out, "{}", outcome.source.name()),
        };
        true
    }
}

fn seconds(us: u64, out: &mut Vec<u8>) -> std::io::Result<()> {
    write!(out, "{}.{:03}", us / 1_000_000, us / 1000 % 1000)
}

impl Line {
    /// Cuts `text` at its variables: `$name` and `${name}`.
    ///
    /// # Errors
    /// A name that no variable has.
    pub fn parse(text: &str, escape: Escape) -> Result<Line, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let (name, after) = name(&rest[dollar + 1..])
                .ok_or_else(|| format!("a dollar sign without a name behind it: \"{}\"", &rest[dollar..]))?;
            if dollar > 0 {
                pieces.push(Piece::Text(rest[..dollar].into()));
            }
            pieces.push(piece(name)?);
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Line { pieces: pieces.into(), escape })
    }

    pub(super) fn reads_answer(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Var(var) if var.reads_answer()))
    }

    pub(super) fn write(&self, ex: &Exchange<'_>, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let has_value = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    true
                }
                Piece::Told(told) => told.append(outcome, out),
                Piece::Var(var) => match var.get(ex) {
                    Some(value) => {
                        self.escape(&value, out);
                        true
                    }
                    None => false,
                },
            };
            if !has_value && self.escape == Escape::Default {
                out.push(b'-');
            }
        }
    }

    fn escape(&self, value: &[u8], out: &mut Vec<u8>) {
        match self.escape {
            Escape::Default => escape(out, value),
            Escape::Json => {
                let text = serde_json::Value::from(String::from_utf8_lossy(value)).to_string();
                out.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
            }
            Escape::None => {
                out.extend(value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
            }
        }
    }
}

/// What a variable is filled in from.
fn piece(name: &str) -> Result<Piece, String> {
    Ok(match (name, Told::of(name), Var::parse(name)) {
        (_, Some(told), _) => Piece::Told(told),
        // In NGINX's own log, which APISIX writes too, it is what the client sent.
        ("request_uri", ..) => Piece::Var(Var::parse("real_request_uri")),
        (.., Var::Unknown(_)) => return Err(format!("there is no variable ${name}")),
        (.., var) => Piece::Var(var),
    })
}

/// A name at the start of `text`, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('{') {
        return inside.split_once('}').filter(|(name, _)| !name.is_empty());
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}
