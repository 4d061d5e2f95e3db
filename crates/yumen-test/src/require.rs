//! Prerequisites of tests: tools and privileges that a developer's machine may lack and CI must have.

use std::io::Write;

/// Set by `make test` and in CI: a test that cannot run fails.
const REQUIRE_ALL: &str = "YUMEN_REQUIRE_ALL";

/// Reports a test that cannot run here. The message bypasses the capture of the test runner, so that a
/// passing run shows it.
///
/// # Panics
/// If `YUMEN_REQUIRE_ALL` is set: a skipped test proves nothing.
pub fn missing_prerequisite(reason: &str) {
    assert!(std::env::var_os(REQUIRE_ALL).is_none(), "this test must run, and cannot: {reason}");
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}
