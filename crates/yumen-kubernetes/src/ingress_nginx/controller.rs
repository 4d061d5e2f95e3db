//! The ConfigMap and the flags of ingress-nginx: tables of all names, and their readers.

mod config_map;
mod flags;
mod keys;
mod settings_reader;
mod types;

pub use config_map::read_config_map;
pub(super) use flags::FLAG_ROWS;
pub use flags::read_flags;
pub(super) use keys::{KEY_GROUPS, KeyEffect};
pub use types::{
    AnnotationPolicy, BlockedClients, ClientAddressSettings, CompressionSettings, ControllerFlags,
    ControllerHeaders, ControllerProblem, ControllerSettings, ControllerTls, ForwardedTrust, HstsSettings,
    LogLineSettings, NodeSetting, PathTypeRule, RedirectDefaults, WebhookFlags,
};

#[cfg(test)]
mod tests;
