use std::net::SocketAddr;
use std::path::Path;

use super::*;
use crate::scenario::{GatewayResponder, GatewaySettings};

fn plan(name: &str) -> GatewayPlan {
    let endpoint = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    GatewayPlan {
        folder: format!("/lab/{name}").into(),
        program: format!("/usr/bin/{name}").into(),
        ports: GatewayPorts { http: 8001, https: 8002, admin: 8003, status: 8004 },
        endpoints: vec![endpoint(9001), endpoint(9002)],
        gateway: GatewaySettings { workers: 2, ..GatewaySettings::default() },
        connections_max: 100,
        certificate: None,
        dynamic_endpoints_max: None,
    }
}

fn with_tls(plan: GatewayPlan) -> GatewayPlan {
    let certificate = LabCertificate {
        chain: "/lab/cert.pem".into(),
        key: "/lab/key.pem".into(),
        both: "/lab/both.pem".into(),
        chain_text: "CERTIFICATE".to_owned(),
        key_text: "KEY".to_owned(),
    };
    GatewayPlan { certificate: Some(certificate), ..plan }
}

/// Plans rendered by every adapter, by name.
fn plans(name: &str) -> Vec<(&'static str, GatewayPlan)> {
    let plain = plan(name);
    let plugins = GatewaySettings { key_consumers: 2, limit_count: true, routes: 2, ..plain.gateway.clone() };
    let mock = GatewaySettings { responder: GatewayResponder::Gateway, workers: 1, ..plain.gateway.clone() };
    vec![
        ("plain", plain.clone()),
        ("tls-dynamic", with_tls(GatewayPlan { dynamic_endpoints_max: Some(3), ..plain.clone() })),
        ("plugins", GatewayPlan { gateway: plugins, ..plain.clone() }),
        ("mock", GatewayPlan { gateway: mock, ..plain }),
    ]
}

fn shown(adapter: &dyn GatewayAdapter, plan: &GatewayPlan) -> String {
    let rendered = match adapter.render(plan) {
        Ok(rendered) => rendered,
        Err(reason) => return format!("cannot: {reason}\n"),
    };
    let mut text = format!("$ {} {}\n", adapter.programs()[0], rendered.args.join(" "));
    text += &rendered.env.iter().map(|(name, value)| format!("env {name}={value}\n")).collect::<String>();
    text += &rendered.notes.iter().map(|note| format!("note: {note}\n")).collect::<String>();
    text += &rendered.pid_file.iter().map(|file| format!("pid file: {file}\n")).collect::<String>();
    for (file, content) in &rendered.files {
        text += &format!("--- {file}\n{content}");
    }
    for step in adapter.setup(plan) {
        text += &format!("setup: {step:?}\n");
    }
    if plan.is_dynamic() {
        let more = GatewayPlan {
            endpoints: [&plan.endpoints[..], &[([127, 0, 0, 1], 9003).into()]].concat(),
            ..plan.clone()
        };
        for step in adapter.change(plan, &more) {
            text += &format!("up: {step:?}\n");
        }
        for step in adapter.change(&more, plan) {
            text += &format!("down: {step:?}\n");
        }
    }
    text
}

/// Compares with `tests/goldens/targets`; writes the files if UPDATE_GOLDENS is set.
#[test]
fn every_adapter_renders_as_its_golden_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/targets");
    let mut wrong = Vec::new();
    for adapter in all() {
        for (name, plan) in plans(adapter.name()) {
            let file = folder.join(format!("{}-{name}.txt", adapter.name()));
            let text = shown(*adapter, &plan);
            if std::env::var_os("UPDATE_GOLDENS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&file, &text).unwrap();
            }
            let golden = std::fs::read_to_string(&file).unwrap_or_default();
            if golden != text {
                wrong.push(format!("{}:\n{text}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "set UPDATE_GOLDENS=1 where this is meant:\n{}", wrong.join("\n"));
}

#[test]
fn no_configuration_writes_an_access_log() {
    for (adapter, off) in [
        ("nginx", "access_log off"),
        ("kong", "proxy_access_log = off"),
        ("apisix", "enable_access_log: false"),
    ] {
        let rendered = find(adapter).unwrap().render(&plan(adapter)).unwrap();
        assert!(rendered.files.values().any(|text| text.contains(off)), "{adapter}");
    }
    for (adapter, on) in
        [("haproxy", "  log "), ("envoy", "access_log"), ("traefik", "accessLog"), ("caddy", "\"logs\": {}")]
    {
        let rendered = find(adapter).unwrap().render(&plan(adapter)).unwrap();
        assert!(rendered.files.values().all(|text| !text.contains(on)), "{adapter}");
    }
}

#[test]
fn versions_are_found_in_what_programs_print() {
    let check = |output: &str, version: &str| assert_eq!(version_in(output).as_deref(), Some(version));
    check("nginx version: nginx/1.22.1\n", "1.22.1");
    check("HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/\n", "2.6.12-1+deb12u1");
    check(
        "\nenvoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n",
        "1.40.0",
    );
    check("v2.11.9 h1:abc=\n", "2.11.9");
    check("yumen 0.1.0\n", "0.1.0");
    check("3.9.3\n", "3.9.3");
    assert_eq!(version_in("no such thing"), None);
}

#[test]
fn adapters_are_found_by_name() {
    assert!(find("nginx").is_some());
    assert!(find("nginxx").is_none());
    assert!(all().iter().all(|adapter| !adapter.how_to_get().is_empty()));
}
