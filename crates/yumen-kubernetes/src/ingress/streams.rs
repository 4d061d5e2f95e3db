//! TCP and UDP ports by ConfigMaps: `{port}: {namespace}/{service}:{port}[:PROXY][:PROXY]`.

use std::sync::Arc;

use serde_json::json;
use yumen_base::problem::Problem;

use super::backends::port_number;
use super::listeners::any_address;
use crate::derived::{UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::engine::{ReferencedObject, TrackedView, UnitOutput};
use crate::model::{IngressServicePort, ObjectKey};
use crate::resources::TranslatedKind;

pub(crate) fn translate_streams(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let options = &view.settings().ingress;
    let flags = &options.controller.flags;
    for (map, is_udp) in [(&flags.tcp_services, false), (&flags.udp_services, true)] {
        let Some(map) = map.as_ref().filter(|_| options.is_enabled) else { continue };
        let data = match view.config_map(&map.namespace, &map.name) {
            ReferencedObject::Found(object) => &object.data,
            ReferencedObject::Missing => {
                output.problems.push(Problem::warning(map.to_string(), "", "the ConfigMap does not exist"));
                continue;
            }
            ReferencedObject::Pending => continue,
        };
        for (port, target) in data {
            if let Err(message) = add_port(view, map, port, target, is_udp, &mut output) {
                output.problems.push(Problem::error(map.to_string(), format!("data.{port}"), message));
            }
        }
    }
    output
}

/// The target of a port.
#[derive(Debug, PartialEq)]
struct PortTarget<'t> {
    namespace: &'t str,
    service: &'t str,
    port: IngressServicePort,
    /// Whether connections begin with a PROXY header.
    decodes: bool,
    /// Whether the service gets one.
    encodes: bool,
}

fn parse_target(text: &str) -> Option<PortTarget<'_>> {
    let mut parts = text.trim().split(':');
    let (namespace, service) = parts.next()?.split_once('/')?;
    let port = parts.next().filter(|port| !port.is_empty())?;
    let is_proxy = |part: Option<&str>| part.is_some_and(|part| part.eq_ignore_ascii_case("PROXY"));
    let (decodes, encodes) = (is_proxy(parts.next()), is_proxy(parts.next()));
    let port = match port.parse::<u16>() {
        Ok(number) => IngressServicePort { number: Some(number), name: None },
        Err(_) => IngressServicePort { number: None, name: Some(port.into()) },
    };
    let is_complete = !namespace.is_empty() && !service.is_empty() && parts.next().is_none();
    is_complete.then_some(PortTarget { namespace, service, port, decodes, encodes })
}

fn add_port(
    view: &TrackedView<'_>,
    map: &ObjectKey,
    port: &str,
    target: &str,
    is_udp: bool,
    output: &mut UnitOutput,
) -> Result<(), String> {
    let number: u16 = port.parse().ok().filter(|port| *port != 0).ok_or("the key is no port")?;
    let options = &view.settings().ingress;
    if !is_udp && (number == options.http_port || number == options.https_port) {
        return Err("the port is that of Ingresses".to_owned());
    }
    let parsed = parse_target(target)
        .ok_or_else(|| format!("{target:?} is no target: write namespace/service:port"))?;
    let (namespace, service): (Arc<str>, Arc<str>) = (parsed.namespace.into(), parsed.service.into());
    let service_port = port_number(view, &namespace, &service, &parsed.port, is_udp)?;
    let key = UpstreamKey {
        namespace,
        service,
        port: service_port,
        flavor: if is_udp { UpstreamFlavor::Udp } else { UpstreamFlavor::Tcp },
        source: UpstreamSource::Ingress,
        // An upstream of its own, whose connections begin with the header.
        gateway: (parsed.encodes && !is_udp).then(|| map.clone()),
    };
    let transport = if is_udp { "udp" } else { "tcp" };
    let id = format!("ingress!{transport}!{number}");
    let labels = json!({ "origin": map.origin_label() });
    let mut listener = json!({
        "address": any_address(view.settings(), number),
        "protocol": transport,
        "labels": labels,
    });
    if parsed.decodes && !is_udp {
        listener["proxy_protocol_from"] = json!(["0.0.0.0/0", "::/0"]);
    }
    output.add_resource(TranslatedKind::Listeners, id.clone(), &listener);
    output.add_resource(TranslatedKind::Scopes, id.clone(), &json!({ "listeners": [id], "labels": labels }));
    let route = json!({
        "backends": [{ "weight": 1, "upstream_id": key.to_string() }],
        "scopes": [id],
        "labels": labels,
    });
    output.add_resource(TranslatedKind::StreamRoutes, id.clone(), &route);
    output.upstreams.insert(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_namespace_a_service_and_a_port() {
        let check = |text: &str, expected: Option<(&str, &str, bool, bool)>| {
            let found = parse_target(text).map(|one| (one.namespace, one.service, one.decodes, one.encodes));
            assert_eq!(found, expected, "{text}");
        };
        check("shop/db:5432", Some(("shop", "db", false, false)));
        check("shop/db:sql:PROXY", Some(("shop", "db", true, false)));
        check("shop/db:5432::PROXY", Some(("shop", "db", false, true)));
        check("db:5432", None);
        check("shop/db", None);
        check("shop/db:1:PROXY:PROXY:x", None);
    }
}
