//! What an adapter is asked to configure, and what it answers with. Must not know any gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What every gateway of a case is to do, in no gateway's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// A directory of its own, empty before.
    pub folder: PathBuf,
    /// The program that was found.
    pub program: PathBuf,
    /// Where it listens.
    pub ports: GatewayPorts,
    /// The endpoints of the one upstream.
    pub endpoints: Vec<SocketAddr>,
    /// Worker processes or threads.
    pub workers: usize,
    /// Routes `/r/0`, `/r/1`, … beside the one that takes every path.
    pub routes: usize,
    /// Whether requests need a key.
    pub key_auth: bool,
    /// Consumers with a key each; at least one where keys are needed.
    pub consumers: usize,
    /// Whether requests are counted per client address, against a limit that is never met.
    pub limit_count: bool,
    /// Whether the gateway answers itself.
    pub mock: bool,
    /// The most idle upstream connections that are kept.
    pub keepalive: usize,
    /// The most client connections.
    pub connections_max: usize,
    /// Certificate and key for the TLS listener.
    pub certificate: Option<LabCertificate>,
    /// Whether endpoints will be changed while it runs.
    pub dynamic: bool,
    /// The most endpoints a change may ask for.
    pub endpoints_max: usize,
}

/// Ports on 127.0.0.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayPorts {
    /// Plain HTTP.
    pub http: u16,
    /// HTTPS; unused where the plan has no certificate.
    pub https: u16,
    /// The gateway's own interface for changes.
    pub admin: u16,
    /// A second one, for gateways that need it.
    pub status: u16,
}

/// Files of a certificate for `localhost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabCertificate {
    /// Chain, PEM.
    pub chain: PathBuf,
    /// Key, PEM.
    pub key: PathBuf,
    /// Chain and key in one file.
    pub both: PathBuf,
    /// The chain's text.
    pub chain_text: String,
    /// The key's text.
    pub key_text: String,
}

/// What an adapter makes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedConfig {
    /// Files below the plan's folder, by relative path.
    pub files: BTreeMap<String, String>,
    /// Arguments of the program, which stays in the foreground.
    pub args: Vec<String>,
    /// Environment beside the inherited one.
    pub env: Vec<(String, String)>,
    /// Where a program that goes into the background writes its process id, relative to the folder.
    pub pid_file: Option<String>,
    /// What a reader must know of the fairness of this configuration.
    pub notes: Vec<String>,
}

/// One thing done to a running gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayStep {
    /// Replaces a file below the folder in one move.
    Write {
        /// Relative path.
        file: String,
        /// New content.
        text: String,
    },
    /// Tells the first process to read its configuration again (SIGHUP).
    Reload,
    /// A request to the gateway's own interface; any status but 2xx is an error.
    Http {
        /// Method.
        method: &'static str,
        /// Port on 127.0.0.1.
        port: u16,
        /// Path and query.
        target: String,
        /// Fields beside `Host` and `Content-Length`.
        headers: Vec<(&'static str, String)>,
        /// Body.
        body: String,
    },
    /// A line to a text interface on a port; the answer must be empty or hold one of the words.
    Line {
        /// Port on 127.0.0.1.
        port: u16,
        /// The line.
        line: String,
        /// Words of good answers.
        good: &'static [&'static str],
    },
}

/// How a gateway is asked to stop.
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

    /// Adds a variable.
    pub(super) fn env(mut self, name: &str, value: impl ToString) -> RenderedConfig {
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a note where it applies.
    pub(super) fn note_if(mut self, applies: bool, note: &str) -> RenderedConfig {
        if applies {
            self.notes.push(note.to_owned());
        }
        self
    }
}

impl GatewayPlan {
    /// A path below the folder, as text for configuration files.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Keys of the consumers; empty where none are needed.
    pub(super) fn keys(&self) -> Vec<String> {
        let count = if self.key_auth { self.consumers.max(1) } else { 0 };
        (0..count).map(key).collect()
    }

    /// A fresh connection limit that is never met.
    pub(super) fn connections_room(&self) -> usize {
        self.connections_max * 2 + 1024
    }
}

/// The key of a consumer.
pub fn key(consumer: usize) -> String {
    format!("lab-key-{consumer}")
}

/// What a gateway answers that leaves the upstream out.
pub fn mock_body() -> &'static str {
    "hello\n"
}

/// A path as text.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}
