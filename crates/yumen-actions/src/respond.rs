//! Fixed responses.

use yumen_config::resource::RespondSpec;
use yumen_plugin::LocalResponse;

/// Compiles a fixed response.
pub(crate) fn response(written: &RespondSpec) -> LocalResponse {
    let mut response = LocalResponse::status(written.status);
    for (name, value) in written.fields.iter().flatten() {
        response.fields_mut().add(name, value.as_bytes());
    }
    match &written.body {
        Some(body) => response.body(body.clone().into_bytes()),
        None => response,
    }
}
