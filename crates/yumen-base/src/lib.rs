//! Basics for all other crates: problems, time, IP sets, metrics, counters.
//!
//! Independent of HTTP, configuration and any runtime. Every crate depends on this one, so additions need a
//! strong reason.

pub mod counter;
pub mod invisible;
pub mod ipset;
pub mod local_address;
pub mod metric;
pub mod pem;
pub mod problem;
pub mod protobuf;
pub mod quantity;
pub mod time;

pub use counter::{Counter, Gauge, Histogram};
pub use ipset::IpSet;
pub use problem::{FilePlace, LineSpan, Problem, ProblemLevel, Problems, keep_last_good};
pub use protobuf::ProtobufWriter;
pub use quantity::quantity;
pub use time::{Now, civil_date, utc_text};
