//! Session persistence of rules.

use serde_json::{Map, Value};

use super::field_edits::{FRAMING_FIELDS, is_token};
use super::rule::RuleDefect;
use super::timing::milliseconds;
use crate::model::{ObjectKey, SessionPersistence};

/// Fields with a meaning of their own in requests or responses, beside those that frame a message.
const NO_SESSION_FIELDS: [&str; 9] = [
    "content-encoding",
    "content-type",
    "cookie",
    "date",
    "expect",
    "host",
    "server",
    "set-cookie",
    "trailer",
];

/// The member `session` of a route.
pub(super) fn session_value(
    written: &SessionPersistence,
    route: &ObjectKey,
    rule: usize,
) -> Result<Value, RuleDefect> {
    let is_header = match written.kind.as_deref() {
        None | Some("Cookie") => false,
        Some("Header") => true,
        Some(kind) => {
            let message = format!("sessionPersistence.type {kind:?} is not supported");
            return Err(RuleDefect::unsupported(message));
        }
    };
    let name = written.session_name.clone().unwrap_or_else(|| default_name(route, rule));
    if !is_token(&name) || name.len() > 128 {
        let message = format!("sessionPersistence.sessionName {name:?} is no name of a cookie or header");
        return Err(RuleDefect::unsupported(message));
    }
    if is_header
        && NO_SESSION_FIELDS.iter().chain(&FRAMING_FIELDS).any(|field| name.eq_ignore_ascii_case(field))
    {
        let message =
            format!("sessionPersistence.sessionName {name:?} is a header that cannot carry a session");
        return Err(RuleDefect::unsupported(message));
    }
    let mut members = Map::new();
    members.insert("kind".to_owned(), if is_header { "header" } else { "cookie" }.into());
    members.insert("name".to_owned(), name.into());
    let timeout = milliseconds("sessionPersistence.absoluteTimeout", written.absolute_timeout.as_deref())?;
    let max_age = timeout.filter(|ms| *ms > 0).map(|ms| ms.div_ceil(1000));
    if let Some(seconds) = max_age {
        members.insert("max_age_s".to_owned(), seconds.into());
    }
    let lifetime = written.cookie_config.as_ref().and_then(|cookie| cookie.lifetime_type.as_deref());
    match lifetime {
        Some("Permanent") if is_header || max_age.is_none() => {
            let message = "a Permanent session needs a cookie and absoluteTimeout";
            return Err(RuleDefect::unsupported(message));
        }
        Some("Permanent") => {
            members.insert("is_permanent".to_owned(), true.into());
        }
        None | Some("Session") => {}
        Some(other) => {
            let message = format!("cookieConfig.lifetimeType {other:?} is not supported");
            return Err(RuleDefect::unsupported(message));
        }
    }
    Ok(members.into())
}

/// A name that sessions of other rules do not have (FNV-1a of the rule), equal in all replicas.
fn default_name(route: &ObjectKey, rule: usize) -> String {
    let hash = format!("{route}/{rule}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("yumen-session-{hash:016x}")
}
