//! Fixtures that tests of several crates share. Other crates depend on it for their tests only; it depends on none.

mod net;
mod otlp;
mod otlp_logs;
mod otlp_metrics;
mod require;

pub use net::TestNetwork;
pub use otlp::{ReceivedSpan, received_spans};
pub use otlp_logs::{ReceivedRecord, received_records};
pub use otlp_metrics::{ReceivedMetric, received_metrics};
pub use require::missing_prerequisite;
