//! Members that kinds of the Gateway API have. Others are misspelt: the API server refuses or drops them.

use serde_json::Value;
use yumen_kubernetes::ClusterKind;

/// The members of one object inside `spec`; `[]` stands for the items of a list.
struct KnownMembers {
    kinds: &'static [ClusterKind],
    path: &'static str,
    members: &'static [&'static str],
}

const fn row(
    kinds: &'static [ClusterKind],
    path: &'static str,
    members: &'static [&'static str],
) -> KnownMembers {
    KnownMembers { kinds, path, members }
}

const ROUTES: &[ClusterKind] = &[
    ClusterKind::HttpRoute,
    ClusterKind::GrpcRoute,
    ClusterKind::TlsRoute,
    ClusterKind::TcpRoute,
    ClusterKind::UdpRoute,
];
const GATEWAYS: &[ClusterKind] = &[ClusterKind::Gateway, ClusterKind::ListenerSet];
const STREAMS: &[ClusterKind] = &[ClusterKind::TlsRoute, ClusterKind::TcpRoute, ClusterKind::UdpRoute];

static KNOWN: [KnownMembers; 15] = [
    row(&[ClusterKind::GatewayClass], "", &["controllerName", "parametersRef", "description"]),
    row(
        &[ClusterKind::Gateway],
        "",
        &[
            "gatewayClassName",
            "listeners",
            "addresses",
            "infrastructure",
            "allowedListeners",
            "tls",
            "defaultScope",
        ],
    ),
    row(&[ClusterKind::ListenerSet], "", &["parentRef", "listeners"]),
    row(GATEWAYS, "listeners[]", &["name", "hostname", "port", "protocol", "tls", "allowedRoutes"]),
    row(GATEWAYS, "listeners[].tls", &["mode", "certificateRefs", "options"]),
    row(GATEWAYS, "listeners[].allowedRoutes", &["namespaces", "kinds"]),
    row(ROUTES, "", &["parentRefs", "hostnames", "rules", "useDefaultGateways"]),
    row(ROUTES, "parentRefs[]", &["group", "kind", "namespace", "name", "sectionName", "port"]),
    row(
        &[ClusterKind::HttpRoute],
        "rules[]",
        &["name", "matches", "filters", "backendRefs", "timeouts", "retry", "sessionPersistence"],
    ),
    row(&[ClusterKind::HttpRoute], "rules[].matches[]", &["path", "headers", "queryParams", "method"]),
    row(&[ClusterKind::HttpRoute], "rules[].timeouts", &["request", "backendRequest"]),
    row(
        &[ClusterKind::GrpcRoute],
        "rules[]",
        &["name", "matches", "filters", "backendRefs", "sessionPersistence"],
    ),
    row(&[ClusterKind::GrpcRoute], "rules[].matches[]", &["method", "headers"]),
    row(STREAMS, "rules[]", &["name", "backendRefs"]),
    row(
        ROUTES,
        "rules[].backendRefs[]",
        &["group", "kind", "namespace", "name", "port", "weight", "filters"],
    ),
];

/// Paths and messages of the members that the API does not have.
pub(super) fn unknown_members(kind: ClusterKind, object: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for row in KNOWN.iter().filter(|row| row.kinds.contains(&kind)) {
        let parts: Vec<&str> = row.path.split('.').filter(|part| !part.is_empty()).collect();
        visit(&object["spec"], "spec".to_owned(), &parts, row.members, &mut found);
    }
    found
}

fn visit(value: &Value, at: String, parts: &[&str], members: &[&str], found: &mut Vec<(String, String)>) {
    let Some((part, rest)) = parts.split_first() else {
        let unknown =
            value.as_object().into_iter().flatten().filter(|(name, _)| !members.contains(&name.as_str()));
        found.extend(unknown.map(|(name, _)| {
            let message = format!("is no member of the API and has no effect; known: {}", members.join(", "));
            (format!("{at}.{name}"), message)
        }));
        return;
    };
    let name = part.trim_end_matches("[]");
    let inner = &value[name];
    match inner.as_array().filter(|_| part.ends_with("[]")) {
        Some(items) => {
            for (position, item) in items.iter().enumerate() {
                visit(item, format!("{at}.{name}[{position}]"), rest, members, found);
            }
        }
        None => visit(inner, format!("{at}.{name}"), rest, members, found),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: ClusterKind, spec: Value, expected: &[&str]) {
        let found = unknown_members(kind, &json!({ "spec": spec }));
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, expected);
    }

    #[test]
    fn misspelt_members_are_found() {
        check(
            ClusterKind::Gateway,
            json!({ "listenres": [], "listeners": [{ "name": "a" }, { "hostnaem": "b" }] }),
            &["spec.listenres", "spec.listeners[1].hostnaem"],
        );
        check(
            ClusterKind::HttpRoute,
            json!({ "rules": [{ "matches": [{ "pathh": 1 }], "backendRefs": [{ "name": "a", "weihgt": 1 }] }] }),
            &["spec.rules[0].matches[0].pathh", "spec.rules[0].backendRefs[0].weihgt"],
        );
        check(ClusterKind::Service, json!({ "anything": 1 }), &[]);
        check(ClusterKind::Gateway, Value::Null, &[]);
    }
}
