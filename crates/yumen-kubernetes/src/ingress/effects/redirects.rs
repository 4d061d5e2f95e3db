//! Redirects, and the rewrite of paths.

use serde_json::{Map, Value, json};

use super::super::location_path::{IngressPathForm, serves_root};
use super::super::locations::{HostLocation, LocationTarget};
use super::{HostContext, LocationDraft};
use crate::ingress_nginx::{FixedRedirect, IngressRewriteTarget, LocationForm, SslRedirectRule};

/// Statuses of redirects that have an action.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>) {
    let settings = draft.settings;
    let is_tls = draft.context.tls.is_configured;
    let wanted = match settings.redirects.ssl {
        SslRedirectRule::Off => false,
        SslRedirectRule::WithTls => is_tls,
        SslRedirectRule::Always => true,
    };
    if wanted {
        let value = ssl_redirect(draft);
        draft.actions.insert("redirect".to_owned(), value);
    }
    add_rewrite(draft);
}

/// The redirect to https, which leaves out the paths of challenges.
fn ssl_redirect(draft: &LocationDraft<'_, '_, '_>) -> Value {
    let defaults = &draft.context.defaults.redirects;
    let redirects = &draft.settings.redirects;
    let mut when = Map::from_iter([("scheme".to_owned(), "http".into())]);
    if !defaults.exempt.is_empty() {
        when.insert("exempt_paths".to_owned(), defaults.exempt.iter().map(|path| &**path).collect());
    }
    let mut value = json!({ "stage": "first", "status": defaults.status, "scheme": "https", "when": when });
    if redirects.form == LocationForm::WithPort {
        value["port"] = draft.view.settings().ingress.https_port.into();
    }
    if !redirects.keeps_trailing_slash {
        value["path"] = "trim_slash".into();
    }
    value
}

fn add_rewrite(draft: &mut LocationDraft<'_, '_, '_>) {
    let rewrite = &draft.settings.rewrite;
    // The rest of a host has the rewrite too, as its location has all settings of its Ingress.
    match &rewrite.target {
        None => {}
        Some(IngressRewriteTarget::Path(target)) if **target == *draft.location.path => {}
        Some(IngressRewriteTarget::Path(target)) => {
            let edit = json!({ "pattern": &*draft.location.path, "ignore_case": true, "to": &**target });
            draft.set_action("rewrite", "path", json!({ "regex": edit }));
            if let Some(prefix) = rewrite.forwarded_prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
                draft.push_action("request_fields", "set", json!(["X-Forwarded-Prefix", &**prefix]));
            }
        }
        Some(IngressRewriteTarget::Redirect(url)) => {
            let redirect = location_redirect(url, &draft.location.path);
            match redirect {
                Some(value) => drop(draft.actions.insert("redirect".to_owned(), value)),
                None => draft.warn("rewrite-target", format!("{url:?} is no URL of a redirect")),
            }
        }
    }
}

/// The redirect of `rewrite-target` with a URL, whose path may have groups of the location's pattern.
fn location_redirect(url: &str, pattern: &str) -> Option<Value> {
    let common = json!({ "status": 302 });
    if !has_group(url) {
        let mut value = common;
        value["url"] = url.into();
        return Some(value);
    }
    let (scheme, after) = url.split_once("://")?;
    let at = after.find('/').unwrap_or(after.len());
    let (authority, path) = after.split_at(at);
    if has_group(authority) || !matches!(scheme, "http" | "https") {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
        None => (authority, None),
    };
    let mut value = common;
    value["scheme"] = scheme.into();
    value["host"] = host.into();
    if let Some(port) = port {
        value["port"] = port.into();
    }
    value["path"] = json!({ "regex": { "pattern": pattern, "ignore_case": true, "to": path } });
    Some(value)
}

fn has_group(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
}

/// The action of a redirect of every request, which replaces all others.
pub(in super::super) fn fixed_redirect(redirect: &FixedRedirect) -> Map<String, Value> {
    text_redirect(redirect.status, &redirect.location)
}

/// The action of a redirect to a URL with variables.
pub(super) fn text_redirect(status: u16, url: &str) -> Map<String, Value> {
    let (name, value) = match REDIRECTS.contains(&status) {
        true => ("redirect", json!({ "stage": "first", "status": status, "url": url, "keep_query": false })),
        false => ("respond", json!({ "status": status, "fields": [["Location", url]] })),
    };
    Map::from_iter([(name.to_owned(), value)])
}

/// The route that redirects `/` of the host to `app-root`, also if the Ingress has other paths only, as NGINX does.
pub(in super::super) fn app_root_route(
    context: &HostContext<'_, '_>,
    location: &HostLocation<'_>,
    all: &[HostLocation<'_>],
) -> Option<(String, Value)> {
    let owner = location.owner?;
    let target = owner.settings.redirects.app_root.as_ref()?;
    let has_service = |one: &&HostLocation<'_>| matches!(one.target, LocationTarget::Service(_));
    let has_app_root =
        |one: &&HostLocation<'_>| one.owner.is_some_and(|owner| owner.settings.redirects.app_root.is_some());
    let is_root = |one: &&HostLocation<'_>| serves_root(&one.path, context.has_patterns);
    let root = all.iter().filter(has_service).find(is_root);
    // Another team decides about its root.
    let is_foreign =
        root.and_then(|root| root.owner).is_some_and(|root| root.key.namespace != owner.key.namespace);
    let of_others = || all.iter().filter(has_service).find(has_app_root).filter(|_| !is_foreign);
    let bearer = root.filter(has_app_root).or_else(of_others)?;
    let serves = bearer.id == location.id;
    serves.then(|| {
        let redirect = json!({
            "stage": "first", "status": 302, "path": { "full": &**target }, "keep_query": false,
        });
        let value = json!({
            "uri": "/*",
            "match": { "paths": { "exact": ["/"] } },
            "actions": { "redirect": redirect },
        });
        (format!("{}!root", location.id), value)
    })
}

/// The route that redirects a path without the slash at the end of its location, as NGINX does. Pattern mode has none.
pub(in super::super) fn slash_redirect(
    context: &HostContext<'_, '_>,
    location: &HostLocation<'_>,
    all: &[HostLocation<'_>],
) -> Option<(String, Value)> {
    let bare = location.path.strip_suffix('/').filter(|bare| !bare.is_empty() && !context.has_patterns)?;
    let is_taken = |other: &HostLocation<'_>| {
        let others = other.path.strip_suffix('/').unwrap_or(&other.path);
        // The first of several locations with one path redirects.
        &*other.path == bare || others == bare && other.id < location.id && other.path.ends_with('/')
    };
    if all.iter().any(is_taken) {
        return None;
    }
    let form = location.owner.map(|owner| owner.settings.redirects.form).unwrap_or_default();
    let mut redirect = json!({ "stage": "first", "status": 301, "path": { "full": location.path } });
    if form == LocationForm::Relative {
        redirect["relative"] = true.into();
    }
    let value = json!({
        "uri": "/*",
        "match": { "paths": { (IngressPathForm::EXACT): [bare] } },
        "actions": { "redirect": redirect },
    });
    Some((format!("{}!slash", location.id), value))
}
