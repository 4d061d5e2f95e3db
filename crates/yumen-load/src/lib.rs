//! The load generator of the lab, and the test upstream that it loads. Independent of gateways, scenarios and
//! the presentation of results.

mod alarm;
mod error;
mod generator;
mod http1;
mod http2;
mod idle;
mod machine;
mod phase;
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
pub use plan::{
    LoadLimits, LoadPlan, LoadProtocol, LoadShape, LoadTlsVersion, RequestPlan, StatusRange, TlsPlan,
    WeightedUrl,
};
pub use run::{LoadProgress, run};
pub use summary::{
    ConnectionTotals, ErrorTotals, FORMAT, GeneratorCost, GeneratorMachine, GeneratorReport, IdleSummary,
    LatencyPercentile, LatencySummary, LoadLatencies, LoadProtocols, LoadSummary, RampStep, RequestTotals,
    SecondSummary, TlsFacts, TransferTotals,
};
pub use upstream::{
    LatencyShape, StallSchedule, TestUpstream, UpstreamBehaviour, UpstreamCertificate, UpstreamOptions,
    UpstreamStats, upstream,
};
