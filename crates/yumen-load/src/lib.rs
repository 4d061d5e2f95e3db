//! The load generator of the lab and the upstream it loads. It knows HTTP as a client sees it, and clocks.
//! Must not know gateways, scenarios or how results are shown.

mod plan;
mod summary;

pub use plan::{Kind, Plan, Protocol, TlsPlan, TlsVersion, WeightedUrl};
pub use summary::{
    Connections, Errors, FORMAT, Generator, Idle, Latency, Machine, Percentile, RampStep, Second, Summary,
    TlsFacts,
};
