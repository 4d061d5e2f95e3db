//! Compiles resources into an immutable snapshot, with the router and the balancers that serve from it.
//!
//! Does no I/O and reads no clock. The same compiler serves the data plane, `yumen check` and dry runs.

pub mod balance;
mod certificates;
pub mod compile;
mod endpoint;
pub mod explain;
mod handover;
pub mod lint;
mod max_forwards;
pub mod plan;
pub mod policy;
pub mod protection;
pub mod publish;
mod route;
pub mod router;
mod scope;
mod slot_table;
pub mod snapshot;
pub mod streams;
#[cfg(test)]
mod testing;
pub mod upstream;

pub use balance::{Balancer, RoundRobinState};
pub use certificates::{ClientCertPolicy, CompiledCertificate};
pub use compile::{
    CompileOutput, Compiler, CompilerEnv, ConfigChange, ObjectError, ObjectValidator, PluginSettingsError,
    UpstreamDefaults,
};
pub use explain::{
    ExplainContext, ExplainResult, ListenerPorts, MatchExplanation, Question, RequestExplanation,
    StreamExplanation, explain, explain_any,
};
pub use lint::{CertificateFacts, KeyFacts, LintInput, lint};
pub use max_forwards::{max_forwards, trace_refusal};
pub use protection::UpstreamProtection;
pub use publish::Publisher;
pub use route::{
    CanaryTarget, FieldCondition, ForwardingRules, MatchConditions, PathForm, PathPattern, Route,
    RouteFilters, RouteLifetime, RouteMatching, RouteTarget, ScopeIds, SessionRules, StatusRetry, ValueTest,
    WeightedTarget, WeightedTargets,
};
pub use router::{
    BodyRequired, MatchObserver, MatchTrace, MismatchReason, RequestRules, RouteMismatch, Router,
};
pub use scope::{CompiledListener, CompiledScope, ListenProtocol, ListenSettings, ScopeSlotId, ScopeTlsMode};
pub use snapshot::{ScopeOfRequest, Snapshot};
pub use streams::{StreamLookup, StreamRoute, StreamRouter};
pub use upstream::{
    AttemptTimeouts, Endpoint, EndpointHealth, EndpointName, EndpointState, HostRewrite, InFlight,
    TriedEndpoints, TunnelPolicy, Upstream, UpstreamScheme, UpstreamSlotId, UpstreamTls, UpstreamTunnel,
};
pub use yumen_config::resource::ClientCertMode;
