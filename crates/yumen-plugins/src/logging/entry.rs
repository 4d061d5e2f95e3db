//! The entry of a logger: one ended exchange as JSON, in the default form of APISIX or in a format of the user.

use std::borrow::Cow;

use yumen_http::Fields;
use yumen_http::uri::query_arguments;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{Exchange, ExchangeOutcome, VarInputs};

use super::format::LogFormat;
use super::json_text::{
    ObjectWriter, write_address, write_ip, write_json_part, write_json_text, write_ms, write_number,
};
use crate::query;

/// Members of the default form, which `log_format_extra` never replaces.
pub(super) const DEFAULT_MEMBERS: &[&str] = &[
    "request",
    "response",
    "server",
    "upstream",
    "service_id",
    "route_id",
    "consumer",
    "client_ip",
    "start_time",
    "latency",
    "upstream_latency",
    "apisix_latency",
];

/// The form of entries.
#[derive(Debug)]
pub(crate) enum LogEntryForm {
    /// The default form, with further members.
    Default(Option<LogFormat>),
    /// `log_format`, with the ids of route and service.
    Custom(LogFormat),
}

impl LogEntryForm {
    /// Inputs of the default form.
    pub(super) const DEFAULT_INPUTS: VarInputs = VarInputs { body: false, answer: true };
}

/// One ended exchange as a logger sees it.
pub(crate) struct LogEntry<'e, 's> {
    /// The exchange.
    pub(crate) ex: &'e Exchange<'s>,
    /// Its outcome.
    pub(crate) outcome: &'e ExchangeOutcome<'e>,
    pub(super) form: &'e LogEntryForm,
    /// Maximum size of the request body; `None` if the entry has none.
    pub(super) request_bytes_max: Option<usize>,
    /// Whether the default form has the request body.
    pub(super) includes_request_body: bool,
    /// The response body, decoded.
    pub(super) response_body: Option<Cow<'e, [u8]>>,
    /// `route_id` of an exchange without a route.
    pub(super) unmatched_route: Option<&'static str>,
}

impl LogEntry<'_, '_> {
    /// Appends the entry as one JSON object.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        match self.form {
            LogEntryForm::Default(extra) => {
                self.write_default(&mut object);
                if let Some(extra) = extra {
                    extra.write(&mut object, self);
                }
            }
            LogEntryForm::Custom(format) => {
                format.write(&mut object, self);
                self.write_ids(&mut object, format);
            }
        }
        object.end();
    }

    /// The form of the user, if there is one.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.form, LogEntryForm::Custom(_))
    }

    /// The request body, cut to its maximum size.
    pub(crate) fn request_body(&self) -> Option<Cow<'_, [u8]>> {
        let bytes_max = self.request_bytes_max?;
        let body = match self.ex.body.buffered.as_deref() {
            Some(buffered) => buffered,
            None => self.ex.tapped_request()?,
        };
        (!body.is_empty()).then(|| Cow::Borrowed(&body[..body.len().min(bytes_max)]))
    }

    /// Time of the whole exchange in microseconds, and the share of the upstream.
    pub(crate) fn latency_us(&self) -> (u64, Option<u64>) {
        let upstream_us = self.outcome.upstream_us.or_else(|| {
            // An attempt without a complete response lasted to the end of the exchange.
            (self.outcome.attempts > 0).then_some(self.outcome.duration_us)
        });
        (self.outcome.duration_us, upstream_us)
    }

    /// `scheme://host:port` and the request target.
    pub(crate) fn write_url(&self, out: &mut Vec<u8>) {
        self.write_url_parts(&self.ex.request.request_uri(), |part| out.extend_from_slice(part));
    }

    /// Writes the URL in parts, whose borders are ASCII.
    fn write_url_parts(&self, request_uri: &[u8], mut write: impl FnMut(&[u8])) {
        write(self.ex.client.scheme().as_bytes());
        write(b"://");
        write(self.ex.request.host());
        write(b":");
        write(itoa::Buffer::new().format(self.ex.client.connection.dialed_port()).as_bytes());
        write(request_uri);
    }

    /// Appends the request fields as an object.
    pub(crate) fn write_request_fields(&self, out: &mut Vec<u8>) {
        write_fields(out, &self.ex.request.fields);
    }

    /// Appends the response fields as an object.
    pub(crate) fn write_response_fields(&self, out: &mut Vec<u8>) {
        write_fields(out, self.ex.sent_fields());
    }

    /// Appends the query arguments as an object.
    pub(crate) fn write_query(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        let pairs: Vec<_> = query_arguments(self.ex.request.query().unwrap_or_default())
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, value)| (query::decode(name), name, value))
            .collect();
        for (index, (name, raw, value)) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|(earlier, ..)| earlier == name) {
                continue;
            }
            let all: Vec<_> = pairs[index..].iter().filter(|(other, ..)| other == name).collect();
            let out = object.member(&String::from_utf8_lossy(name));
            let write = |out: &mut Vec<u8>, value: &[u8], has_equals: bool| match has_equals {
                true => write_json_text(out, &query::decode(value)),
                // In Lua, an argument without an equals sign is `true`.
                false => out.extend_from_slice(b"true"),
            };
            let has_equals = |raw: &[u8], value: &[u8]| !value.is_empty() || self.has_equals(raw);
            match &all[..] {
                [_] => write(out, value, has_equals(raw, value)),
                several => {
                    out.push(b'[');
                    for (at, (_, raw, value)) in several.iter().enumerate() {
                        if at > 0 {
                            out.push(b',');
                        }
                        write(out, value, has_equals(raw, value));
                    }
                    out.push(b']');
                }
            }
        }
        object.end();
    }

    /// Whether the query has the argument with an equals sign and no value.
    fn has_equals(&self, raw_name: &[u8]) -> bool {
        let query = self.ex.request.query().unwrap_or_default();
        query.split(|byte| *byte == b'&').any(|pair| pair.strip_suffix(b"=") == Some(raw_name))
    }

    /// The route, or the text for exchanges without one.
    pub(crate) fn route_id(&self) -> Option<&str> {
        self.ex.route.info.map(|route| &*route.id).or(self.unmatched_route)
    }

    fn write_default(&self, object: &mut ObjectWriter<'_>) {
        let (ex, outcome) = (self.ex, self.outcome);
        self.write_request(object.known("request"));
        self.write_response(object.known("response"));
        let mut server = ObjectWriter::begin(object.known("server"));
        let hostname = ProcessVars::current().map_or("", |process| &process.hostname);
        write_json_text(server.known("hostname"), hostname.as_bytes());
        write_json_text(server.known("version"), env!("CARGO_PKG_VERSION").as_bytes());
        server.end();
        if let Some(endpoint) = outcome.endpoint {
            let out = object.known("upstream");
            out.push(b'"');
            write_address(out, endpoint);
            out.push(b'"');
        }
        let service_id = ex.route.info.map_or(ex.request.host(), |route| route.service_id.as_bytes());
        write_json_text(object.known("service_id"), service_id);
        if let Some(route_id) = self.route_id() {
            write_json_text(object.known("route_id"), route_id.as_bytes());
        }
        if let Some(consumer) = ex.consumer {
            let mut member = ObjectWriter::begin(object.known("consumer"));
            write_json_text(member.known("username"), consumer.username.as_bytes());
            member.end();
        }
        let out = object.known("client_ip");
        out.push(b'"');
        write_ip(out, ex.client.ip);
        out.push(b'"');
        write_number(object.known("start_time"), ex.now.unix_ms);
        let (latency_us, upstream_us) = self.latency_us();
        write_ms(object.known("latency"), latency_us);
        if let Some(upstream_us) = upstream_us {
            write_ms(object.known("upstream_latency"), upstream_us);
        }
        write_ms(object.known("apisix_latency"), latency_us.saturating_sub(upstream_us.unwrap_or(0)));
    }

    fn write_request(&self, out: &mut Vec<u8>) {
        let request = &self.ex.request;
        let mut object = ObjectWriter::begin(out);
        let request_uri = request.request_uri();
        let out = object.known("url");
        out.push(b'"');
        self.write_url_parts(&request_uri, |part| write_json_part(out, part));
        out.push(b'"');
        write_json_text(object.known("uri"), &request_uri);
        write_json_text(object.known("method"), request.method_name());
        self.write_request_fields(object.known("headers"));
        self.write_query(object.known("querystring"));
        write_number(object.known("size"), self.outcome.received_bytes);
        if self.includes_request_body
            && let Some(body) = self.request_body()
        {
            write_json_text(object.known("body"), &body);
        }
        object.end();
    }

    fn write_response(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        write_number(object.known("status"), self.outcome.status.into());
        self.write_response_fields(object.known("headers"));
        write_number(object.known("size"), self.outcome.sent_bytes);
        if let Some(body) = &self.response_body {
            write_json_text(object.known("body"), body);
        }
        object.end();
    }

    /// Adds the ids of route and service to a format of the user, unless it has members with these names.
    fn write_ids(&self, object: &mut ObjectWriter<'_>, format: &LogFormat) {
        let service_id = self.ex.route.info.map(|route| &*route.service_id).filter(|id| !id.is_empty());
        for (name, value) in [("service_id", service_id), ("route_id", self.route_id())] {
            if let Some(value) = value.filter(|_| !format.has(name)) {
                object.text(name, value);
            }
        }
    }
}

/// Appends fields as an object: lower-case names, a list where a name occurs more than once.
fn write_fields(out: &mut Vec<u8>, fields: &Fields) {
    let mut object = ObjectWriter::begin(out);
    for (index, (name, value)) in fields.iter().enumerate() {
        let is_same = |other: &[u8]| other.eq_ignore_ascii_case(name);
        // An exchange has few fields, so scans are cheaper than a map.
        if fields.iter().take(index).any(|(other, _)| is_same(other)) {
            continue;
        }
        let mut others = fields.iter().skip(index + 1).filter(|(other, _)| is_same(other)).peekable();
        let out = object.lower_case(name);
        if others.peek().is_none() {
            write_json_text(out, value);
            continue;
        }
        out.push(b'[');
        write_json_text(out, value);
        for (_, other) in others {
            out.push(b',');
            write_json_text(out, other);
        }
        out.push(b']');
    }
    object.end();
}

#[cfg(test)]
mod tests;
