//! The plugin interface: the trait, the exchange that plugins see, and the chain that runs them in order.
//!
//! Plugins access no socket, no store and no clock. Time, randomness and delays come with the exchange.

pub mod background;
pub mod buffered_body;
pub mod carry;
pub mod chain;
pub mod coding;
pub mod consumer;
pub mod directory;
pub mod exchange;
pub mod expr;
pub mod fetched;
pub mod forwarding;
mod host;
pub mod json_scan;
pub mod kind;
pub mod missing;
pub mod objects;
pub mod offload;
pub mod outcome;
pub mod pattern;
mod per_worker;
pub mod plugin;
pub mod proto;
pub mod real_ip;
pub mod response;
pub mod sink;
mod still_host;
pub mod subrequest;
mod tap;
#[cfg(test)]
mod test_exchange;
pub mod tls;
pub mod translate;
pub mod vars;

pub use background::{BackgroundHost, SharedOutbound};
pub use buffered_body::BufferedBody;
pub use carry::{Carry, ExportedState, PortableState};
pub use chain::{ChainVerdict, Origin, Phase, PluginChain, PluginInstance, PluginMeta};
pub use coding::{BodyCoder, CodingOffers, ResponseCoding};
pub use consumer::{Consumer, ConsumerIdentity, ConsumerIndex, VouchedFields};
pub use directory::{
    DirectoryAccess, DirectoryFault, DirectoryFuture, DirectoryLogin, DirectoryQuery, DirectoryReply,
    DirectoryResult, DirectorySearch, DirectorySecurity, DirectoryService, DirectoryTarget,
};
pub use exchange::phases::{
    LogPreparation, PrereadPhase, ResponseBodyPhase, ResponseHeadPhase, UpstreamRequestPhase,
};
pub use exchange::timeline::{AttemptTiming, ExchangeTimeline, PluginTiming};
pub use exchange::{
    ClientInfo, DeferredBody, ErrorPageRules, ErrorRules, Exchange, ExchangeClient, ExchangeResponse,
    ExchangeTrace, ExternalUser, IndecisionCause, ListenerNumber, MirrorTarget, OmittedForwarding,
    RequestBody, ResponseProtocol, RouteInfo, RouteMatch, SelectedEndpoint, StickyEndpoint, StreamInfo,
    UpstreamSelection,
};
pub use expr::{ConditionExpr, FailedCondition};
pub use fetched::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, FetchedCells,
    FetchedValue, HttpFetch, SecretFetch,
};
pub use host::PluginHost;
pub use json_scan::{JsonFault, JsonScan};
pub use kind::{
    AccessRole, ConsumerAuth, NestedPluginFault, NestedPlugins, PluginBuildContext, PluginFactory,
    PluginKind, PluginRegistry, ServedTraffic,
};
pub use missing::{MemberTypes, MissingPlugin, MissingPlugins, MissingRole};
pub use objects::{ObjectLookup, UpstreamSlot};
pub use offload::{Computation, Offload, OffloadJob, OffloadRefused, compute};
pub use outcome::{ExchangeOutcome, ResponseSource};
pub use pattern::{
    BacktrackBudget, BacktrackLimitExceeded, PatternCase, PatternOptions, PatternSyntax, PatternUnit,
    RegexPattern,
};
pub use per_worker::PerWorker;
pub use plugin::{BodyChunk, DryRunResult, PhaseSet, Plugin, PrereadStep, Step};
pub use response::LocalResponse;
pub use sink::{
    BatchPolicy, ClientPair, GoogleAccount, KafkaLogin, KafkaMechanism, KafkaSettings, NodeLogLevel,
    NodeLogSink, SinkAddress, SinkBatch, SinkChunk, SinkEncoder, SinkFraming, SinkHandle, SinkHeartbeat,
    SinkQueue, SinkRegistry, SinkReply, SinkRequest, SinkSpec, SinkTls, SinkVerdict,
};
pub use still_host::StillHost;
pub use subrequest::{OutboundProxy, SubrequestFault, SubrequestResponse, SubrequestSpec};
pub use tap::{BodyTap, TapBudget};
pub use tls::{ClientCertVerdict, ClientCertificate, TlsInfo};
pub use translate::{BufferedResponse, ResponseTranslator};
pub use vars::{BodyIndexing, IndexingProgress, Var, VarInputs, VarTemplate, escape_argument};
pub use yumen_base::{Now, Problem};
pub use yumen_http::{FieldName, Fields, KnownField, Method, RequestHead, ResponseHead};
