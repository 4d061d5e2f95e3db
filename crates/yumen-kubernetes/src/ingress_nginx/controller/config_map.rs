//! The ConfigMap of ingress-nginx.

mod access;
mod defaults;
mod node;

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_config::suggestion;

use super::keys::{KEY_GROUPS, KeyEffect, find_key};
use super::settings_reader::SettingsReader;
use super::types::{ControllerProblem, ControllerSettings};
use crate::ingress_nginx::snippet::guards_all_hosts;

/// Reads the data of the ConfigMap over `settings`, those of the flags.
pub fn read_config_map(
    data: &BTreeMap<Arc<str>, Arc<str>>,
    mut settings: ControllerSettings,
) -> (ControllerSettings, Vec<ControllerProblem>) {
    let values = data.iter().map(|(key, value)| (&**key, &**value)).collect();
    let mut reader = SettingsReader::new(values, "");
    report_effects(&mut reader);
    access::read_policy(&mut reader, &mut settings);
    defaults::read_redirects(&mut reader, &mut settings);
    defaults::read_proxy(&mut reader, &mut settings);
    defaults::read_limits(&mut reader, &mut settings);
    access::read_headers(&mut reader, &mut settings);
    access::read_clients(&mut reader, &mut settings);
    access::read_compression(&mut reader, &mut settings);
    access::read_tls(&mut reader, &mut settings);
    access::read_auth(&mut reader, &mut settings);
    access::read_snippets(&mut reader, &mut settings);
    node::read_connections(&mut reader);
    node::read_logs(&mut reader, &mut settings);
    settings.node.append(&mut reader.node);
    settings.blocked.all = reader.denial;
    (settings, reader.problems)
}

/// Reports keys without effect and unknown ones.
fn report_effects(reader: &mut SettingsReader<'_>) {
    for key in reader.keys() {
        let Some(row) = find_key(key) else {
            let known = KEY_GROUPS.iter().flat_map(|group| group.rows).map(|row| row.key);
            let hint = suggestion(key, known);
            reader.warn(key, "ingress-nginx has no key of this name", hint.as_deref());
            continue;
        };
        // Switches that are off and empty texts ask for nothing.
        let asks = reader.text(key).is_some_and(|value| value != "false");
        match row.effect {
            KeyEffect::Used(_) | KeyEffect::Node(_) => {}
            KeyEffect::NoEffect(reason) => reader.warn(key, format!("no effect: {reason}"), None),
            KeyEffect::Refused { reason, way_over, guards } if asks => {
                let is_http = key == "http-snippet";
                // A missing firewall is an error only: the Helm chart asks the operator to accept it.
                match is_http && reader.text(key).is_some_and(guards_all_hosts) {
                    true => reader.deny(key, reason, Some(way_over)),
                    false => reader.push(key, guards, reason, Some(way_over)),
                }
            }
            KeyEffect::Refused { .. } => {}
        }
    }
}
