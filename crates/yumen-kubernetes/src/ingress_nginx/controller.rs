//! The ConfigMap and the flags of ingress-nginx: tables of all names, and their readers.

mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use types::{
    AnnotationPolicy, BlockedClients, ClientAddressSettings, CompressionSettings, ControllerFlags,
    ControllerHeaders, ControllerProblem, ControllerSettings, ControllerTls, HstsSettings, LogLineSettings,
    NodeSetting, RedirectDefaults,
};

/// Reads the data of the ConfigMap over `settings`, those of the flags.
pub fn read_config_map(
    _data: &BTreeMap<Arc<str>, Arc<str>>,
    settings: ControllerSettings,
) -> (ControllerSettings, Vec<ControllerProblem>) {
    (settings, Vec::new())
}

/// Reads the arguments of the controller's process, such as `--ingress-class=nginx`.
pub fn read_flags(_arguments: &[String]) -> (ControllerSettings, Vec<ControllerProblem>) {
    (ControllerSettings::default(), Vec::new())
}
