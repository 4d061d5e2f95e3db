//! What is seldom waited for, kept out of what always is.

use yumen_plugin::plugin::LocalFuture;

/// The future, boxed and out of the compiler's sight: those that nearly always run without it are neither
/// larger nor slower for it.
#[cold]
#[inline(never)]
pub(crate) fn apart<'a, T>(future: impl Future<Output = T> + 'a) -> LocalFuture<'a, T> {
    Box::pin(future)
}
