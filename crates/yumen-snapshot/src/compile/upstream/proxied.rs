//! Upstreams whose endpoints are reached through a forward proxy.

use yumen_config::InvalidSettings;
use yumen_config::resource::UpstreamSpec;
use yumen_plugin::OutboundProxy;

use crate::upstream::UpstreamTunnel;

/// The same upstream with the proxy as its endpoint, and the server behind it. Requires an upstream with one node.
pub(in crate::compile) fn through_proxy(
    written: &UpstreamSpec,
    proxy: &OutboundProxy,
) -> Result<(UpstreamSpec, UpstreamTunnel), InvalidSettings> {
    let unsupported = || InvalidSettings::at("", "a proxy requires an upstream with one node");
    let mut through = written.clone();
    let Some([node]) = through.nodes.as_mut().map(|nodes| &mut nodes.0[..]) else {
        return Err(unsupported());
    };
    let host = std::mem::replace(&mut node.host, proxy.host.clone());
    let port = std::mem::replace(&mut node.port, proxy.port);
    if let Some(tls) = through.tls.as_mut().filter(|tls| tls.server_name.is_none()) {
        // The certificate is that of the server, not of the proxy.
        tls.server_name = Some(host.trim_matches(['[', ']']).to_owned());
    }
    let tunnel = UpstreamTunnel {
        authority: format!("{host}:{port}").into(),
        authorization: proxy.authorization.as_deref().map(Box::from),
    };
    Ok((through, tunnel))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use yumen_config::resource::decode_value;

    use super::*;

    fn proxy() -> OutboundProxy {
        OutboundProxy { host: "proxy.test".into(), port: 3128, authorization: Some("Basic x".into()) }
    }

    #[test]
    fn proxy_is_the_endpoint_and_the_server_is_behind_it() {
        let written = json!({
            "nodes": [{ "host": "idp.test", "port": 8443, "weight": 1 }],
            "scheme": "https",
            "tls": { "verify": true },
        });
        let (through, tunnel) = through_proxy(&decode_value(written).unwrap(), &proxy()).unwrap();
        let through = serde_json::to_value(through).unwrap();
        assert_eq!(through["nodes"][0]["host"], "proxy.test");
        assert_eq!((&through["nodes"][0]["port"], &through["tls"]["verify"]), (&json!(3128), &json!(true)));
        assert_eq!(through["tls"]["server_name"], "idp.test");
        assert_eq!((&*tunnel.authority, tunnel.authorization.as_deref()), ("idp.test:8443", Some("Basic x")));
        assert!(!format!("{tunnel:?}").contains("Basic"));
    }

    #[test]
    fn several_nodes_are_refused() {
        let written = json!({ "nodes": { "a.test:80": 1, "b.test:80": 1 } });
        assert!(through_proxy(&decode_value(written).unwrap(), &proxy()).is_err());
    }
}
