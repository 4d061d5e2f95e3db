//! Session persistence by cookie: the member `session` of routes.

use serde_json::{Map, Value, json};

use crate::ingress_nginx::{IngressSession, SameSiteRule, SessionSpread};

/// The member `session` of a location. `path`: that of the location; patterns have no path of their own.
pub(super) fn session_value(session: &IngressSession, path: &str, is_pattern: bool) -> Value {
    let mut cookie = Map::new();
    let own = session.path.as_deref();
    let path = own.unwrap_or(if is_pattern { "/" } else { path });
    let is_valid = path.starts_with('/') && !path.contains([';', ' ', '\t']);
    cookie.insert("path".to_owned(), if is_valid { path } else { "/" }.into());
    if let Some(domain) = session.domain.as_ref().filter(|domain| !domain.is_empty()) {
        cookie.insert("domain".to_owned(), (&**domain).into());
    }
    if session.secure == Some(true) {
        cookie.insert("secure".to_owned(), true.into());
    }
    let same_site = session.same_site.map(|rule| match rule {
        SameSiteRule::None => "none",
        SameSiteRule::ConditionalNone => "none_if_supported",
        SameSiteRule::Lax => "lax",
        SameSiteRule::Strict => "strict",
    });
    cookie.extend(same_site.map(|same_site| ("same_site".to_owned(), same_site.into())));
    let positive =
        |seconds: Option<i64>| seconds.and_then(|one| u64::try_from(one).ok()).filter(|one| *one > 0);
    if let Some(expires_s) = positive(session.expires_s) {
        cookie.insert("expires_s".to_owned(), expires_s.into());
    }
    let mut value = json!({
        "kind": "cookie",
        "name": &*session.name,
        "mode": if session.spread == SessionSpread::Balanced { "hash" } else { "endpoint" },
        "cookie": cookie,
        "change_on_failure": session.changes_on_failure,
    });
    if let Some(max_age_s) = positive(session.max_age_s) {
        value["max_age_s"] = max_age_s.into();
        value["is_permanent"] = true.into();
    }
    value
}
