//! Access log: one line per exchange, through a bounded queue to a writer thread.
//!
//! A worker never waits for the disk: if the writer falls behind, lines are dropped and counted.

use std::io::Write;

use yumen_plugin::{Exchange, ExchangeOutcome, StreamInfo, Var};

mod line;
mod queue;
#[cfg(test)]
mod tests;

pub use line::{LineEscape, LineTemplate};
pub use queue::{LogBacklog, LogQueue, LogQueueWriter, queue};

/// Format of a line.
#[derive(Debug, Clone)]
pub enum AccessLineFormat {
    /// One JSON object per line.
    Json,
    /// The combined format of NGINX and Apache.
    Combined,
    /// A template of the operator.
    Line(LineTemplate),
}

/// Lines of a worker that are not queued yet.
pub struct AccessLogBuffer {
    format: AccessLineFormat,
    text: Vec<u8>,
    lines: u64,
    queue: LogQueue,
    time_local: Var,
}

/// Bytes of lines that are queued at once.
const BATCH_BYTES: usize = 16 * 1024;

impl AccessLogBuffer {
    /// Creates the buffer of a worker.
    pub fn new(format: AccessLineFormat, queue: LogQueue) -> AccessLogBuffer {
        AccessLogBuffer { format, text: Vec::new(), lines: 0, queue, time_local: Var::parse("time_local") }
    }

    /// Whether lines contain fields of the response.
    pub(crate) fn reads_answer(&self) -> bool {
        matches!(&self.format, AccessLineFormat::Line(line) if line.reads_answer())
    }

    /// Appends the line of one exchange; returns the number of lines dropped.
    pub(crate) fn write(&mut self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) -> u64 {
        match (&self.format, &ex.client.stream) {
            (AccessLineFormat::Line(line), _) => line.write(ex, outcome, &mut self.text),
            (AccessLineFormat::Json, None) => self.json(ex, outcome),
            (AccessLineFormat::Combined, None) => self.combined(ex, outcome),
            (AccessLineFormat::Json, Some(stream)) => self.stream_json(ex, stream, outcome),
            (AccessLineFormat::Combined, Some(stream)) => self.stream_combined(ex, stream, outcome),
        }
        self.text.push(b'\n');
        self.lines += 1;
        // A batch of more lines than the queue admits would be dropped whole.
        if self.text.len() >= BATCH_BYTES || self.lines >= self.queue.lines_max { self.flush() } else { 0 }
    }

    /// Queues the buffered lines; returns the number of lines dropped, by the queue now or by the writer
    /// before.
    pub(crate) fn flush(&mut self) -> u64 {
        // Lines that the writer has lost are reported even if none is buffered now.
        let lost = self.queue.take_lost_lines();
        if self.text.is_empty() {
            return lost;
        }
        let lines = std::mem::take(&mut self.lines);
        let text = self.take_text();
        lost + self.queue.offer(text, lines)
    }

    /// Takes the buffered lines. A short text is copied, so that a queued batch does not retain a large
    /// allocation.
    fn take_text(&mut self) -> Vec<u8> {
        if self.text.len() >= BATCH_BYTES / 2 {
            // Capacity for the line that completes the next batch.
            return std::mem::replace(&mut self.text, Vec::with_capacity(BATCH_BYTES + 1024));
        }
        let text = self.text.clone();
        self.text.clear();
        text
    }

    fn json(&mut self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let field = |name: &str| ex.request.fields.get(name).map(text);
        let mut line = serde_json::json!({
            "time_unix_ms": ex.now.unix_ms,
            "remote_addr": ex.client.ip.to_string(),
            "method": text(ex.request.method_name()),
            "host": text(ex.request.host()),
            "target": text(ex.request.target()),
            "status": outcome.status,
            "source": outcome.source.name(),
            "duration_us": outcome.duration_us,
            "received_bytes": outcome.received_bytes,
            "sent_bytes": outcome.sent_bytes,
            "attempts": outcome.attempts,
        });
        let optional = [
            ("route_id", ex.route.info.map(|route| route.id.to_string())),
            ("consumer", ex.consumer.map(|consumer| consumer.username.to_string())),
            ("endpoint", outcome.endpoint.map(|endpoint| endpoint.to_string())),
            ("upstream_us", outcome.upstream_us.map(|us| us.to_string())),
            ("user_agent", field("user-agent")),
            ("referer", field("referer")),
            ("request_id", field("x-request-id")),
            ("fault", Some(outcome.fault.to_owned()).filter(|fault| !fault.is_empty())),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                line[name] = value.into();
            }
        }
        self.text.extend_from_slice(line.to_string().as_bytes());
    }

    fn stream_json(&mut self, ex: &Exchange<'_>, stream: &StreamInfo, outcome: &ExchangeOutcome<'_>) {
        let mut line = serde_json::json!({
            "time_unix_ms": ex.now.unix_ms,
            "remote_addr": ex.client.ip.to_string(),
            "protocol": stream.protocol,
            "server_addr": ex.client.connection.local.to_string(),
            "status": outcome.status,
            "duration_us": outcome.duration_us,
            "received_bytes": outcome.received_bytes,
            "sent_bytes": outcome.sent_bytes,
            "attempts": outcome.attempts,
        });
        let sni = ex.client.tls().and_then(|tls| tls.sni.as_deref());
        let optional = [
            ("route_id", ex.route.info.map(|route| route.id.to_string())),
            ("server_name", sni.map(str::to_owned)),
            ("mqtt_client_id", stream.mqtt_client_id.as_deref().map(str::to_owned)),
            ("endpoint", outcome.endpoint.map(|endpoint| endpoint.to_string())),
            ("fault", Some(outcome.fault.to_owned()).filter(|fault| !fault.is_empty())),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                line[name] = value.into();
            }
        }
        self.text.extend_from_slice(line.to_string().as_bytes());
    }

    /// Writes a stream in the combined format, with protocol and port in place of the request.
    fn stream_combined(&mut self, ex: &Exchange<'_>, stream: &StreamInfo, outcome: &ExchangeOutcome<'_>) {
        let time = self.time_local.get(ex).unwrap_or_default();
        // A write to a vector cannot fail.
        let _ = write!(self.text, "{} - - [", ex.client.ip);
        self.text.extend_from_slice(&time);
        let (port, sent) = (ex.client.connection.local.port(), outcome.sent_bytes);
        let _ = write!(self.text, "] \"{} :{port}\" {} {sent} \"-\" \"-\"", stream.protocol, outcome.status);
    }

    fn combined(&mut self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let time = self.time_local.get(ex).unwrap_or_default();
        let user = ex.consumer.map_or("-", |consumer| &consumer.username);
        let request = &ex.request;
        let version = match request.version {
            yumen_http::HttpVersion::Http10 => "1.0",
            yumen_http::HttpVersion::Http11 => "1.1",
            yumen_http::HttpVersion::Http2 => "2.0",
            yumen_http::HttpVersion::Http3 => "3.0",
        };
        // A write to a vector cannot fail.
        let _ = write!(self.text, "{} - {} [", ex.client.ip, user);
        self.text.extend_from_slice(&time);
        self.text.extend_from_slice(b"] \"");
        escape(&mut self.text, request.method_name());
        self.text.push(b' ');
        escape(&mut self.text, request.target());
        // As `$body_bytes_sent` of the combined format: without the head.
        let _ = write!(self.text, " HTTP/{version}\" {} {} \"", outcome.status, outcome.sent_body_bytes());
        escape(&mut self.text, request.fields.get("referer").unwrap_or(b"-"));
        self.text.extend_from_slice(b"\" \"");
        escape(&mut self.text, request.fields.get("user-agent").unwrap_or(b"-"));
        self.text.push(b'"');
    }
}

/// Escapes quotes, backslashes and bytes that are not printable ASCII as `\xHH`, like NGINX.
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            _ => out.push(*byte),
        }
    }
}
