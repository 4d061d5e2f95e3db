//! `yumen migrate`: reports about Ingresses, from manifests and values of Helm, with their exit statuses.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::Scratch;
use crate::harness::gateway::YUMEN;

const SHOP: &str = r#"
apiVersion: v1
kind: Service
metadata: { name: cart, namespace: shop }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: cart
  namespace: shop
  annotations: ANNOTATIONS
spec:
  ingressClassName: nginx
  rules:
    - host: shop.example.com
      http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: cart, port: { number: 80 } } } }] }
"#;

fn migrate(folder: &Scratch, arguments: &[&str]) -> Output {
    Command::new(YUMEN)
        .arg("migrate")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("yumen runs")
}

/// A folder with the Ingress and the annotations, a JSON object with the prefix cut.
fn folder(annotations: &[(&str, &str)]) -> Scratch {
    let scratch = Scratch::new();
    let named = annotations
        .iter()
        .map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), (*value).into()));
    let annotations = Value::Object(named.collect());
    let text = SHOP.replace("ANNOTATIONS", &annotations.to_string());
    fs::write(scratch.path().join("shop.yaml"), text).unwrap();
    scratch
}

/// Checks the verdict on the Ingress, and the exit status.
#[track_caller]
fn check(annotations: &[(&str, &str)], options: &[&str], verdict: &str, status: i32) {
    let folder = folder(annotations);
    let output = migrate(&folder, &[&["ingress-nginx", "-f", "shop.yaml", "--json"], options].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["ingresses"][0]["verdict"], verdict, "{report:#}");
    assert_eq!(output.status.code(), Some(status), "{report:#}");
}

#[test]
fn each_ingress_has_a_verdict_and_refusals_an_exit_status() {
    check(&[], &[], "same", 0);
    check(&[("rewrite-target", "/x"), ("limit-rps", "5"), ("proxy-buffering", "on")], &[], "same", 0);
    check(&[("affinity", "cookie")], &[], "differs", 0);
    check(&[("affinity", "cookie")], &["--strict"], "differs", 1);
    check(&[("enable-modsecurity", "true")], &[], "refused", 1);
    // ingress-nginx leaves these out, too.
    check(&[("proxy-read-timeout", "1h"), ("configuration-snippet", "deny all;")], &["--strict"], "same", 0);
    // Manifests of an application do not have its Secrets.
    check(&[("auth-type", "basic"), ("auth-secret", "users")], &["--strict"], "same", 0);
}

#[test]
fn values_of_helm_stand_for_the_controller() {
    let folder = folder(&[("configuration-snippet", "more_set_headers 'X-A: b';")]);
    let values = "controller:\n  allowSnippetAnnotations: true\n  config:\n    annotations-risk-level: Critical\n    \
                  keep-alive: 30\n    enable-modsecurity: true\n  extraArgs:\n    default-ssl-certificate: a/b\n";
    fs::write(folder.path().join("values.yaml"), values).unwrap();
    let output = migrate(&folder, &["ingress-nginx", "-f", "shop.yaml", "--helm", "values.yaml", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["node"]["timeouts"]["idle_ms"], 30_000, "{report:#}");
    assert_eq!(report["ingresses"][0]["verdict"], "same", "{report:#}");
    assert_eq!(report["controller"][0]["key"], "enable-modsecurity", "{report:#}");
    assert_eq!(output.status.code(), Some(1));
    let alone = migrate(&folder, &["ingress-nginx", "--helm", "values.yaml", "--json"]);
    assert_eq!(alone.status.code(), Some(1), "{}", String::from_utf8_lossy(&alone.stderr));
}

#[test]
fn manifests_without_an_ingress_are_no_migration() {
    let folder = folder(&[]);
    let text = fs::read_to_string(folder.path().join("shop.yaml")).unwrap();
    fs::write(
        folder.path().join("shop.yaml"),
        text.replace("ingressClassName: nginx", "ingressClassName: other"),
    )
    .unwrap();
    let output = migrate(&folder, &["ingress-nginx", "-f", "shop.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("no Ingress of ingress-nginx (1 of other classes)"), "{message}");
}

#[test]
fn a_replayed_log_shows_differences() {
    let folder = folder(&[("force-ssl-redirect", "true")]);
    let log = "{\"h\":\"shop.example.com\",\"s\":\"http\",\"r\":\"GET /a HTTP/1.1\",\"c\":308}\n\
               {\"h\":\"shop.example.com\",\"s\":\"http\",\"r\":\"GET /b HTTP/1.1\",\"c\":200}\nnoise\n";
    fs::write(folder.path().join("access.log"), log).unwrap();
    let format = "{\"h\":\"$host\",\"s\":\"$scheme\",\"r\":\"$request\",\"c\":$status}";
    let arguments =
        ["ingress-nginx", "-f", "shop.yaml", "--replay", "access.log", "--log-format", format, "--json"];
    let output = migrate(&folder, &arguments);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let replay = &report["replay"];
    assert_eq!(
        (&replay["same"], &replay["different"], &replay["unread"]),
        (&1.into(), &1.into(), &1.into()),
        "{report:#}"
    );
    let difference = &replay["differences"][0];
    assert_eq!(
        (&difference["url"], &difference["found"]),
        (&"http://shop.example.com/b".into(), &"308".into())
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn routes_of_the_gateway_api_have_the_rewrite_and_the_redirect() {
    let folder = folder(&[
        ("force-ssl-redirect", "true"),
        ("limit-rps", "5"),
        ("permanent-redirect", "https://e.com/x"),
    ]);
    let output = migrate(&folder, &["gateway-api", "-f", "shop.yaml", "--gateway", "edge/web"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "# limit-rps: no counterpart",
        "name: cart-to-https",
        "statusCode: 308",
        "replaceFullPath: /x",
        "sectionName: https",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}
