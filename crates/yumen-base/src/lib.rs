//! What every other room may use: problems, time, bounded collections, counters.
//!
//! Knows nothing of HTTP, configuration or any runtime. Think twice before adding to it.

pub mod counter;
pub mod ipset;
pub mod metric;
pub mod pem;
pub mod problem;
pub mod time;

pub use counter::{Counter, Gauge, Histogram};
pub use ipset::IpSet;
pub use problem::{Problem, ProblemLevel, Problems, keep_last_good};
pub use time::Now;
