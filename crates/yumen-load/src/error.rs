//! Errors of preparing a load run.

/// Error of preparing a load run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan is invalid.
    #[error("{0}")]
    Plan(String),
    /// A URL is invalid or cannot be resolved.
    #[error("{url}: {why}")]
    Url {
        /// URL as given.
        url: String,
        /// Reason.
        why: String,
    },
    /// TLS could not be configured.
    #[error("TLS: {0}")]
    Tls(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
