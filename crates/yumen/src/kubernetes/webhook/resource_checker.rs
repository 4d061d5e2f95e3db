//! Checks of translated resources by the rules of the compiler.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::{InvalidSettings, Kind, NodeConfig};
use yumen_plugin::{MissingPlugins, PluginRegistry};
use yumen_proxy::tls::CertificateLoader;
use yumen_snapshot::compile::{LoadCertificate, Variables};
use yumen_snapshot::{ObjectError, ObjectValidator, PluginSettingsError};

/// The rules by which the compiler of this node quarantines resources.
pub(in crate::kubernetes) struct ResourceChecker {
    registry: PluginRegistry,
    missing: MissingPlugins,
    load_certificate: LoadCertificate,
    variables: Variables,
}

impl ResourceChecker {
    pub(super) fn new(node: &NodeConfig) -> ResourceChecker {
        ResourceChecker {
            registry: PluginRegistry::new(yumen_plugins::BUILTIN),
            missing: yumen_plugins::inactive::missing(&node.plugins.allow_missing),
            load_certificate: Arc::new(CertificateLoader::default()),
            variables: Arc::new(|name: &str| std::env::var(name).ok()),
        }
    }

    /// Validates a resource; the error is the reason that would quarantine it.
    pub(in crate::kubernetes) fn check(&self, kind: Kind, value: &Value) -> Result<(), String> {
        let validator = ObjectValidator {
            registry: &self.registry,
            missing: &self.missing,
            load_certificate: &self.load_certificate,
            variables: &self.variables,
        };
        validator.validate(kind, value).map_err(|error| reason(&error))
    }
}

fn reason(error: &ObjectError) -> String {
    let at = |path: &str, message: &str| match path {
        "" => message.to_owned(),
        path => format!("{path}: {message}"),
    };
    let of = |invalid: &InvalidSettings| at(&invalid.path, &invalid.message);
    match error {
        ObjectError::Object(invalid) => of(invalid),
        ObjectError::Plugin { name, flaw: PluginSettingsError::Settings(invalid) } => {
            format!("plugins.{name}.{}", of(invalid))
        }
        ObjectError::Plugin { name, flaw: PluginSettingsError::Unknown } => {
            format!("unknown plugin {name:?}")
        }
        ObjectError::Plugin { name, .. } => format!("plugins.{name}: the settings are refused"),
        ObjectError::Vars(message) => at("vars", message),
        ObjectError::Address(position) => format!("remote_addrs[{position}]: no address"),
        ObjectError::Certificate { at: position, .. } => format!("certificate {position} cannot be loaded"),
        ObjectError::Upstream { path, message } => at(path, message),
        ObjectError::Handshake { path, message } => at(path, message),
    }
}

/// The problem of a webhook that does not work.
pub(super) fn webhook_problem(message: String, hint: &str) -> Problem {
    Problem::warning("kubernetes/webhook", "", message).hint(hint)
}
