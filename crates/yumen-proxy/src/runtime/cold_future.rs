//! Boxing of futures that are rarely awaited.

use yumen_plugin::plugin::LocalFuture;

/// Boxes a future behind a call that is not inlined, so that callers that rarely await it become neither
/// larger nor slower.
#[cold]
#[inline(never)]
pub(crate) fn box_cold<'a, T>(future: impl Future<Output = T> + 'a) -> LocalFuture<'a, T> {
    Box::pin(future)
}
