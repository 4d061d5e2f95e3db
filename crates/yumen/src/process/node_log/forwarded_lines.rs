//! Lines of the node log for the plugin `error-log-logger`, beside those on standard error.

use std::fmt::{Debug, Write};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use yumen_base::civil_date;
use yumen_plugin::{NodeLogLevel, SinkRegistry};

use super::escaped;

/// The sinks of the process, once it has some.
static SINKS: OnceLock<Arc<SinkRegistry>> = OnceLock::new();

/// Modules whose events are about sinks: each failure to send their lines would make further lines.
const OWN_TARGETS: [&str; 2] = ["yumen_outbound", "yumen::senders"];

/// Lets the node log write to the sink for it in this registry.
pub(crate) fn forward_to(sinks: Arc<SinkRegistry>) {
    // A process has one registry.
    let _ = SINKS.set(sinks);
}

/// Hands events to the sink of the node's log.
pub(super) struct ForwardedLines;

impl<S: Subscriber> Layer<S> for ForwardedLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(sink) = SINKS.get().and_then(|sinks| sinks.node_log()) else { return };
        let metadata = event.metadata();
        let (level, name) = match *metadata.level() {
            Level::ERROR => (NodeLogLevel::Error, "error"),
            Level::WARN => (NodeLogLevel::Warn, "warn"),
            Level::INFO => (NodeLogLevel::Info, "info"),
            _ => (NodeLogLevel::Debug, "debug"),
        };
        let is_own = OWN_TARGETS.iter().any(|own| metadata.target().starts_with(own));
        if is_own || level > sink.level {
            return;
        }
        let mut text = EventText::default();
        event.record(&mut text);
        let line = format!("{} [{name}] {}#0: {}{}", now(), std::process::id(), text.message, text.fields);
        // A full sink counts the line as dropped.
        sink.handle.push((sink.render)(&escaped(&line, false)));
    }
}

/// The message of an event, and its fields as ` name=value`.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// `2026/11/27 13:00:00` in UTC, the form of NGINX.
fn now() -> String {
    let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil_date(unix_s / 86_400);
    let second = unix_s % 86_400;
    format!("{year:04}/{month:02}/{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}
