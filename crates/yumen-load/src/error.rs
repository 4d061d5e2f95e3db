//! Why a load cannot begin.

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A part of the plan makes no sense.
    #[error("{0}")]
    Plan(String),
    /// A URL cannot be used.
    #[error("{url}: {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system refused something the run needs.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}
