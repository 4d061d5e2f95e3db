//! The load generator of the lab and the upstream it loads. It knows HTTP as a client sees it, and clocks.
//! Must not know gateways, scenarios or how results are shown.

mod alarm;
mod error;
mod http1;
mod http2;
mod idle;
mod machine;
mod plan;
mod prepared;
mod ramp;
mod response;
mod run;
mod stream;
mod summary;
mod tally;
mod tls;
mod upstream;
mod worker;

pub use error::LoadError;
pub use machine::own_cost;
pub use plan::{Kind, Plan, Protocol, TlsPlan, TlsVersion, WeightedUrl};
pub use run::{Progress, run};
pub use summary::{
    Connections, Errors, FORMAT, Generator, Idle, Latency, Machine, Percentile, RampStep, Second, Summary,
    TlsFacts,
};
pub use upstream::{
    Behaviour, Certificate, LatencyShape, Stalls, Upstream, UpstreamOptions, UpstreamStats, upstream,
};
