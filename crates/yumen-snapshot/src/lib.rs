//! Resources in, immutable snapshot out; and the router and balancers that serve from it.
//!
//! Does no I/O, reads no clock. The same compile serves the live path, `yumen check` and dry runs.

pub mod balance;
pub mod compile;
pub mod explain;
mod handover;
pub mod lint;
mod max_forwards;
pub mod plan;
pub mod policy;
pub mod protection;
pub mod publish;
pub mod router;
pub mod snapshot;
pub mod streams;
#[cfg(test)]
mod testing;
pub mod upstream;

pub use balance::{Balancer, InFlight, UpstreamState};
pub use compile::{Change, Compiled, Compiler, Defaults, Env, Flaw, Judge, PluginFlaw};
pub use explain::{
    Arrival, Background, Explained, Explanation, Ports, Question, StreamExplanation, explain, explain_any,
};
pub use lint::{CertificateFacts, KeyFacts, Lint, lint};
pub use max_forwards::{max_forwards, trace_refusal};
pub use protection::Protection;
pub use publish::Publisher;
pub use router::{AwaitsBody, Losing, Lost, RequestRules, Router, Trace, Witness};
pub use snapshot::{Certificate, Filters, Life, Matching, OnChange, Route, Slot, Snapshot, Target};
pub use streams::{StreamAsk, StreamRoute, StreamRouter};
pub use upstream::{
    Endpoint, EndpointState, Health, PassHost, Scheme, Timeouts, Tried, Upstream, UpstreamTls,
};
