//! What a plugin is, what it sees of an exchange, and the chain that runs plugins in order.
//!
//! Knows no concrete plugin, no socket, no store. Time, randomness and delays come in with the
//! exchange.

pub mod ask;
pub mod buffered_body;
pub mod carry;
pub mod chain;
pub mod coding;
pub mod consumer;
pub mod exchange;
pub mod expr;
pub mod forwarding;
pub mod json_scan;
pub mod kind;
pub mod missing;
pub mod objects;
pub mod offload;
pub mod outbound;
pub mod outcome;
pub mod pattern;
pub mod plugin;
pub mod proto;
pub mod real_ip;
pub mod response;
#[cfg(test)]
mod test_exchange;
pub mod tls;
pub mod translate;
pub mod vars;

pub use ask::{Answer, AskFault, Question};
pub use buffered_body::BufferedBody;
pub use carry::{Carry, Portable, Told};
pub use chain::{Chain, Instance, Meta, Origin, Phase, Verdict};
pub use coding::{Coder, Coding, Codings};
pub use consumer::{Consumer, Consumers, Identity};
pub use exchange::{Client, DeferredBody, Exchange, Host, Mirror, RouteInfo, StreamFacts, UpstreamChoice};
pub use expr::{Expr, Failing};
pub use json_scan::{JsonFault, JsonScan};
pub use kind::{Configure, ConsumerAuth, Kind, Registry, Serves, Setup};
pub use missing::{MissingPlugin, MissingPlugins, MissingRole};
pub use objects::{Objects, UpstreamSlot};
pub use offload::{Computation, Offload, OffloadJob, OffloadRefused, compute};
pub use outbound::{Outbound, SharedOutbound};
pub use outcome::{Outcome, Source};
pub use pattern::{Budget, GaveUp, Pattern, PatternOptions};
pub use plugin::{Chunk, Foreseen, Phases, Plugin, Preread, Step};
pub use response::Response;
pub use tls::{ClientCertificate, ClientVerdict, TlsInfo};
pub use translate::{Translate, WholeAnswer};
pub use vars::{BodyIndexing, IndexingProgress, Reads, Template, Var};
pub use yumen_base::{Now, Problem};
pub use yumen_http::{FieldName, Fields, Known, Method, RequestHead, ResponseHead};
