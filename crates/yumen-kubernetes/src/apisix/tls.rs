//! ApisixTls.

use serde_json::{Map, Value, json};

use super::{class, finish_members, report};
use crate::certificates::served_names;
use crate::engine::{TrackedView, UnitOutput};
use crate::grants::{granted_secret, key_pair};
use crate::model::{ApisixTlsObject, ClusterKind, ObjectKey, SecretObject};
use crate::resources::{ResourceName, SpecDefect, TranslatedKind};

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixTlsObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    let mut defects = Vec::new();
    let mut members = Map::new();
    let mut snis: Vec<String> = Vec::new();
    for host in object.spec.hosts.iter().map(|host| host.trim().to_ascii_lowercase()) {
        if !host.is_empty() && !snis.contains(&host) {
            snis.push(host);
        }
    }
    if snis.is_empty() {
        defects.push(SpecDefect::new("snis", "hosts is empty"));
    }
    members.insert("snis".to_owned(), snis.into());
    match certificate(view, key, object) {
        Ok((cert, key)) => {
            members.insert("cert".to_owned(), cert.into());
            members.insert("key".to_owned(), key.into());
        }
        Err(message) => defects.push(SpecDefect::new("cert", message)),
    }
    // As for a listener of a Gateway, a certificate that is withdrawn serves no longer. One that verifies clients keeps
    // its names, so that no other certificate admits clients unverified.
    if !members.contains_key("cert") && object.spec.client.is_none() {
        report::add_status(&mut output, key, object.meta.generation, &defects, Vec::new());
        return output;
    }
    if object.spec.client.is_some() {
        match client_value(view, key, object) {
            Ok(client) => drop(members.insert("client".to_owned(), client)),
            Err(message) => {
                // The member keeps clients without a certificate out while the authorities are not known.
                members.insert("client".to_owned(), json!({ "ca": "" }));
                defects.push(SpecDefect::new("client.ca", message));
            }
        }
    }
    finish_members(&mut members, key, object.meta.created_s, &defects);
    let name = ResourceName::new(TranslatedKind::Ssls, format!("{}/{}!tls", key.namespace, key.name));
    output.add_resource(name.kind, name.id.clone(), &members.into());
    report::add_status(&mut output, key, object.meta.generation, &defects, vec![name]);
    output
}

fn certificate<'t>(
    view: &TrackedView<'t>,
    key: &ObjectKey,
    object: &ApisixTlsObject,
) -> Result<(&'t str, &'t str), String> {
    let reference = &object.spec.secret;
    let namespace = reference.namespace_or(&key.namespace);
    let secret = granted_secret(view, key, namespace, &reference.name)?;
    let (cert, private) = key_pair(secret)?;
    let checked = served_names(view.certificates(), cert, private);
    checked.map_err(|reason| format!("Secret {namespace}/{} does not serve: {reason}.", reference.name))?;
    Ok((cert, private))
}

fn client_value(view: &TrackedView<'_>, key: &ObjectKey, object: &ApisixTlsObject) -> Result<Value, String> {
    let Some(client) = &object.spec.client else { return Ok(Value::Null) };
    let namespace = client.ca_secret.namespace_or(&key.namespace);
    let secret = granted_secret(view, key, namespace, &client.ca_secret.name)?;
    let name = format!("{} {namespace}/{}", ClusterKind::Secret, client.ca_secret.name);
    let text =
        authorities(secret).ok_or_else(|| format!("{name} has no text in cert, ca.crt or tls.crt."))?;
    let checked = view.certificates().authorities(text);
    checked.map_err(|reason| format!("{name} cannot verify a client: {reason}."))?;
    let mut value = json!({ "ca": text });
    if let Some(depth) = client.depth {
        value["depth"] = depth.into();
    }
    if !client.skip_mtls_uri_regex.is_empty() {
        value["skip_mtls_uri_regex"] = client.skip_mtls_uri_regex.clone().into();
    }
    Ok(value)
}

/// The authorities of a Secret. An issuer writes `ca.crt` beside a certificate of its own in `tls.crt`.
fn authorities(secret: &SecretObject) -> Option<&str> {
    let texts = ["cert", "ca.crt", "tls.crt"].into_iter().filter_map(|entry| secret.text(entry));
    texts.into_iter().find(|text| !text.trim().is_empty())
}
