//! Input and output of adapters. Independent of any gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::scenario::GatewaySettings;

/// Required behaviour of every gateway of a case, independent of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// Initially empty directory of the gateway.
    pub folder: PathBuf,
    /// Path of the program.
    pub program: PathBuf,
    /// Ports of the gateway.
    pub ports: GatewayPorts,
    /// Endpoints of the only upstream.
    pub endpoints: Vec<SocketAddr>,
    /// Workers, routes, plugins.
    pub gateway: GatewaySettings,
    /// Maximum client connections.
    pub connections_max: usize,
    /// Certificate and key of the TLS listener.
    pub certificate: Option<LabCertificate>,
    /// Maximum number of endpoints, if they change while the gateway runs.
    pub dynamic_endpoints_max: Option<usize>,
}

/// Ports on 127.0.0.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayPorts {
    /// Plain HTTP.
    pub http: u16,
    /// HTTPS; unused without a certificate.
    pub https: u16,
    /// Admin interface of the gateway.
    pub admin: u16,
    /// Second interface, for gateways that need one.
    pub status: u16,
}

/// Files of a certificate for `localhost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabCertificate {
    /// Chain in PEM.
    pub chain: PathBuf,
    /// Key in PEM.
    pub key: PathBuf,
    /// Chain and key in one file.
    pub both: PathBuf,
    /// Text of the chain.
    pub chain_text: String,
    /// Text of the key.
    pub key_text: String,
}

/// Output of an adapter for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedConfig {
    /// Files by path relative to the plan's folder.
    pub files: BTreeMap<String, String>,
    /// Arguments of the program, which stays in the foreground.
    pub args: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// PID file of a program that runs in the background, relative to the folder.
    pub pid_file: Option<String>,
    /// Remarks on the fairness of this configuration.
    pub notes: Vec<String>,
}

/// One step on a running gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayStep {
    /// Replaces a file below the folder atomically.
    Write {
        /// Relative path.
        file: String,
        /// New content.
        text: String,
    },
    /// Makes the first process reload its configuration (SIGHUP).
    Reload,
    /// Waits until the gateway's interface answers a GET with 2xx; for gateways that listen before they serve.
    Ready {
        /// Port on 127.0.0.1.
        port: u16,
        /// Path and query.
        target: String,
    },
    /// Request to the gateway's interface; a status other than 2xx is an error.
    Http {
        /// Method.
        method: &'static str,
        /// Port on 127.0.0.1.
        port: u16,
        /// Path and query.
        target: String,
        /// Header fields other than `Host` and `Content-Length`.
        headers: Vec<(&'static str, String)>,
        /// Body.
        body: String,
    },
    /// Line to a text interface; a valid response is empty or contains one of the words.
    Line {
        /// Port on 127.0.0.1.
        port: u16,
        /// The line.
        line: String,
        /// Words of valid responses.
        good: &'static [&'static str],
    },
}

/// Signal that stops a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
}

impl RenderedConfig {
    /// Adds a file.
    pub(super) fn file(mut self, name: &str, text: impl Into<String>) -> RenderedConfig {
        self.files.insert(name.to_owned(), text.into());
        self
    }

    /// Adds arguments.
    pub(super) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> RenderedConfig {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    pub(super) fn env(mut self, name: &str, value: impl ToString) -> RenderedConfig {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a note if it applies.
    pub(super) fn note_if(mut self, applies: bool, note: &str) -> RenderedConfig {
        if applies {
            self.notes.push(note.to_owned());
        }
        self
    }
}

impl GatewayPlan {
    /// Path below the folder, as text for configuration files.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Keys of the consumers; empty without key authentication.
    pub(super) fn keys(&self) -> Vec<String> {
        (0..self.gateway.key_consumers).map(key).collect()
    }

    /// Whether endpoints change while the gateway runs.
    pub(super) fn is_dynamic(&self) -> bool {
        self.dynamic_endpoints_max.is_some()
    }

    /// Connection limit that is never reached.
    pub(super) fn connections_room(&self) -> usize {
        self.connections_max * 2 + 1024
    }
}

/// Key of a consumer.
pub fn key(consumer: usize) -> String {
    format!("lab-key-{consumer}")
}

/// Response body of a gateway that responds itself.
pub fn mock_body() -> &'static str {
    "hello\n"
}

/// A path as text.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}
