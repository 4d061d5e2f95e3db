//! Cross-origin resource sharing.

use serde_json::{Value, json};

use super::LocationDraft;
use crate::ingress_nginx::IngressCors;

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>) {
    let Some(cors) = &draft.settings.cors else { return };
    let value = cors_value(cors);
    draft.actions.insert("cors".to_owned(), value);
}

fn cors_value(cors: &IngressCors) -> Value {
    let names = |list: &str| -> Value {
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Value::from).collect()
    };
    let origins: Value = cors.origins.iter().map(|origin| Value::from(&**origin)).collect();
    let mut value = json!({
        "allow_origins": origins,
        "allow_credentials": cors.credentials,
        "allow_methods": names(&cors.methods),
        "allow_headers": names(&cors.headers),
        "max_age": cors.max_age_s.max(1),
    });
    if !cors.expose_headers.trim().is_empty() {
        value["expose_headers"] = names(&cors.expose_headers);
    }
    value
}
