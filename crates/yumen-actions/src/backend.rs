//! Edits on the requests and responses of one backend of a route.

use yumen_config::InvalidSettings;
use yumen_config::resource::BackendActionsSpec;
use yumen_plugin::Exchange;

use crate::fields::FieldEdits;
use crate::rewrite::{PathRewrite, RewriteRefused};

/// Edits on the requests and responses of one backend, after those of its route.
#[derive(Debug, Clone, Default)]
pub struct BackendEdits {
    /// Edits of the fields of requests.
    pub request: FieldEdits,
    /// Host and path for the upstream.
    pub rewrite: Option<PathRewrite>,
    /// Edits of the fields of responses.
    pub response: FieldEdits,
}

impl BackendEdits {
    /// Compiles the actions of a backend.
    ///
    /// # Errors
    /// A pattern has syntax that no engine supports.
    pub fn build(written: &BackendActionsSpec) -> Result<BackendEdits, InvalidSettings> {
        Ok(BackendEdits {
            request: FieldEdits::new(written.request_fields.as_ref()),
            rewrite: written.rewrite.as_ref().map(PathRewrite::build).transpose()?,
            response: FieldEdits::new(written.response_fields.as_ref()),
        })
    }

    /// Edits a request right after the choice of its backend.
    ///
    /// # Errors
    /// Client text would form a dot segment in the new path.
    pub fn apply_to_request(&self, ex: &mut Exchange<'_>) -> Result<(), RewriteRefused> {
        apply_to_request(&self.request, self.rewrite.as_ref(), ex)
    }
}

/// Edits the request of an exchange: fields, then host and path.
pub(crate) fn apply_to_request(
    fields: &FieldEdits,
    rewrite: Option<&PathRewrite>,
    ex: &mut Exchange<'_>,
) -> Result<(), RewriteRefused> {
    // Variables read the request before its edits.
    let host = fields.host(ex);
    fields.apply_to_request(ex);
    ex.upstream.omitted.extend(fields.omitted());
    if let Some(host) = host {
        ex.upstream.host = Some(host.into());
    }
    rewrite.map_or(Ok(()), |rewrite| rewrite.apply(ex))
}
