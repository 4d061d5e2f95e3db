//! The two listeners of all Ingresses.

use serde_json::{Value, json};

use crate::engine::{TrackedView, UnitOutput};
use crate::resources::TranslatedKind;
use crate::settings::TranslationSettings;

/// Id of the listener for http.
pub(super) const HTTP: &str = "ingress!http";
/// Id of the listener for https.
pub(super) const HTTPS: &str = "ingress!https";

/// Opens the listeners. The unit exists while an Ingress is served.
pub(crate) fn translate_listeners(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(defaults) = view.ingress_defaults() else { return output };
    let options = &view.settings().ingress;
    let ports = [(HTTP, "http", options.http_port), (HTTPS, "https", options.https_port)];
    for (id, protocol, port) in ports {
        let mut value = json!({
            "address": any_address(view.settings(), port),
            "protocol": protocol,
            "labels": { "origin": "Ingress" },
        });
        if defaults.client.proxy_protocol {
            value["proxy_protocol_from"] = json!(["0.0.0.0/0", "::/0"]);
        }
        // Not a plugin of the routes: conditions of snippets choose the route by the address.
        if !defaults.client.trusted.is_empty() {
            let field = defaults.client.field.to_ascii_lowercase().replace('-', "_");
            let from: Value = defaults.client.trusted.iter().map(|one| Value::from(&**one)).collect();
            value["real_ip"] = json!({ "from": from, "source": format!("http_{field}"), "recursive": true });
        }
        output.add_resource(TranslatedKind::Listeners, id, &value);
    }
    output
}

/// The address of all interfaces.
pub(super) fn any_address(settings: &TranslationSettings, port: u16) -> String {
    if settings.has_ipv6 { format!("[::]:{port}") } else { format!("0.0.0.0:{port}") }
}

/// The listeners as the member `listeners` of a scope.
pub(super) fn both() -> Value {
    json!([HTTP, HTTPS])
}
