//! The response side of an exchange: fields that plugins add, edits of the body, and the bytes that were sent.

use std::sync::Arc;

use yumen_http::Fields;

use super::ErrorRules;
use crate::plugin::LocalFuture;
use crate::{CodingOffers, ExchangeOutcome, ResponseTranslator};

/// A chunk of a response body that is computed in another thread; `None` if the computation fails.
pub type DeferredBody = LocalFuture<'static, Option<Vec<u8>>>;

/// The form in which the client expects local responses and the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseProtocol {
    /// The protocol follows from the head of the request.
    #[default]
    ByRequest,
    /// gRPC: the status is in `grpc-status`, a field or a trailer.
    Grpc,
    /// HTTP, although the forwarded request is a gRPC call.
    Http,
}

/// The response of an exchange.
#[derive(Default)]
pub struct ExchangeResponse {
    /// Status of the response; 0 before the response head phase.
    pub status: u16,
    /// Fields that are set in the response from any source. Plugins add to them before the response head phase.
    pub fields: Fields,
    /// The form in which the client expects its response.
    pub protocol: ResponseProtocol,
    /// Translates the whole response if the endpoint speaks another protocol than the client.
    pub translator: Option<Box<dyn ResponseTranslator>>,
    /// The form of error responses and their replacements.
    pub errors: Option<Arc<ErrorRules>>,
    /// Whether the access log has no line for the exchange.
    pub is_unlogged: bool,
    /// Set in the response head phase; the body is read only then.
    pub(super) edits_body: bool,
    /// A chunk of the body that a plugin computes in another thread.
    pub(super) deferred_body: Option<DeferredBody>,
    /// Content codings that plugins offer.
    pub(crate) codings: Option<Box<CodingOffers>>,
    /// The response fields that variables read, if a plugin reads them. Boxed, since that is rare.
    visible_fields: Option<Box<Fields>>,
}

impl ExchangeResponse {
    /// Whether a plugin or a content coding edits the body. Known after the response head phase.
    pub fn edits_body(&self) -> bool {
        self.edits_body
    }

    pub(crate) fn edit_body(&mut self) {
        self.edits_body = true;
    }

    /// Takes the computation that the last plugin has started.
    pub fn take_deferred_body(&mut self) -> Option<DeferredBody> {
        self.deferred_body.take()
    }

    /// Makes variables read these fields from now on. The copy is made only if a plugin reads response fields
    /// ([`VarInputs::answer`](crate::VarInputs)).
    pub fn expose_fields(&mut self, fields: Fields) {
        self.visible_fields = Some(Box::new(fields));
    }

    /// The exposed fields, if a plugin reads them.
    pub(crate) fn visible_fields_mut(&mut self) -> Option<&mut Fields> {
        self.visible_fields.as_deref_mut()
    }

    /// The response fields that variables read: those that plugins added so far, in the response head phase
    /// those before the plugin runs, after it those that were sent.
    pub(crate) fn visible_fields(&self) -> &Fields {
        self.visible_fields.as_deref().unwrap_or(&self.fields)
    }
}

/// Bytes sent to the client, for variables of the log phase.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SentBytes {
    /// All bytes of the response.
    pub(crate) total: u64,
    /// The bytes after the head.
    pub(crate) body: u64,
}

impl From<&ExchangeOutcome<'_>> for SentBytes {
    fn from(outcome: &ExchangeOutcome<'_>) -> SentBytes {
        SentBytes { total: outcome.sent_bytes, body: outcome.sent_body_bytes() }
    }
}
