//! Settings of authentication plugins for consumers, from values or from Secrets.

use serde_json::{Map, Value};

use crate::model::SecretObject;

/// A method of authentication.
pub(super) struct AuthMethod {
    /// Name of the member of `authParameter`.
    pub(super) member: &'static str,
    pub(super) plugin: &'static str,
    /// Entries of a Secret, with those that must be there.
    entries: &'static [(&'static str, EntryForm)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryForm {
    Required,
    Text,
    Number,
    Flag,
}

/// The methods, as APISIX has them.
pub(super) const METHODS: [AuthMethod; 6] = [
    AuthMethod { member: "keyAuth", plugin: "key-auth", entries: &[("key", EntryForm::Required)] },
    AuthMethod {
        member: "basicAuth",
        plugin: "basic-auth",
        entries: &[("username", EntryForm::Required), ("password", EntryForm::Required)],
    },
    AuthMethod {
        member: "jwtAuth",
        plugin: "jwt-auth",
        entries: &[
            ("key", EntryForm::Required),
            ("secret", EntryForm::Text),
            ("public_key", EntryForm::Text),
            ("private_key", EntryForm::Text),
            ("algorithm", EntryForm::Text),
            ("exp", EntryForm::Number),
            ("base64_secret", EntryForm::Flag),
            ("lifetime_grace_period", EntryForm::Number),
        ],
    },
    AuthMethod {
        member: "hmacAuth",
        plugin: "hmac-auth",
        entries: &[
            ("key_id", EntryForm::Text),
            ("access_key", EntryForm::Text),
            ("secret_key", EntryForm::Required),
        ],
    },
    AuthMethod { member: "ldapAuth", plugin: "ldap-auth", entries: &[("user_dn", EntryForm::Required)] },
    AuthMethod {
        member: "wolfRBAC",
        plugin: "wolf-rbac",
        entries: &[
            ("server", EntryForm::Text),
            ("appid", EntryForm::Text),
            ("header_prefix", EntryForm::Text),
        ],
    },
];

/// The method of a plugin; other plugins take all entries of a Secret as texts.
pub(super) fn method_of(plugin: &str) -> Option<&'static AuthMethod> {
    METHODS.iter().find(|method| method.plugin == plugin)
}

impl AuthMethod {
    /// Settings from the entries of a Secret.
    pub(super) fn read_secret(&self, secret: &SecretObject) -> Result<Value, String> {
        let mut settings = Map::new();
        for (name, form) in self.entries {
            let text = secret.text(name).filter(|text| !text.is_empty());
            let Some(text) = text else {
                if *form == EntryForm::Required {
                    let (namespace, secret) = (&secret.meta.namespace, &secret.meta.name);
                    return Err(format!("Secret {namespace}/{secret} has no text in {name}."));
                }
                continue;
            };
            let value = match form {
                EntryForm::Required | EntryForm::Text => Value::from(text),
                EntryForm::Flag => Value::from(text == "true"),
                // A text that is no number is refused by the schema of the plugin.
                EntryForm::Number => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
            };
            settings.insert((*name).to_owned(), value);
        }
        Ok(with_key_id(settings).into())
    }
}

/// Settings from a value: as they are, with the name that replaced `access_key`.
pub(super) fn from_value(method: &AuthMethod, value: &Value) -> Value {
    match value {
        Value::Object(members) if method.plugin == "hmac-auth" => with_key_id(members.clone()).into(),
        other => other.clone(),
    }
}

fn with_key_id(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Some(key) = settings.shift_remove("access_key")
        && !settings.contains_key("key_id")
    {
        settings.insert("key_id".to_owned(), key);
    }
    settings
}
