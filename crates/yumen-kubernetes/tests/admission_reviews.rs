//! Reviews of objects: an `AdmissionReview` in, the answer out, with objects in force.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_kubernetes::{
    AdmissionFindings, CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterTranslator,
    IngressOptions, ReviewSubject, TranslationDelta, TranslationSettings, decode, read_review,
};
use yumen_plugin::PluginRegistry;
use yumen_snapshot::compile::{LoadCertificate, Loaded, ObjectValidator, Variables};

const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificate".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificate".to_owned())
    }
}

/// A cluster with the Ingress `shop/cart` of host `shop.test` and paths `/cart` and `/v1`, and its canary.
struct ReviewCase {
    translator: ClusterTranslator,
    registry: PluginRegistry,
    /// Objects that are allowed are stored.
    stores: bool,
}

impl ReviewCase {
    fn new(flags: &[&str]) -> ReviewCase {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let ingress = IngressOptions { take_over: true, ..IngressOptions::with_flags(&flags) };
        ReviewCase::with(TranslationSettings { ingress, ..TranslationSettings::default() })
    }

    fn with(settings: TranslationSettings) -> ReviewCase {
        let mut translator = ClusterTranslator::new(settings, Arc::new(NoCertificates));
        let put = |kind, value: &Value| {
            ClusterChange::Put(decode(kind, value.to_string().as_bytes()).expect("an object"))
        };
        let class = |name: &str, controller: &str| {
            put(
                ClusterKind::IngressClass,
                &json!({ "metadata": { "name": name }, "spec": { "controller": controller } }),
            )
        };
        let service = |namespace: &str| {
            let value = json!({
                "metadata": { "name": "cart", "namespace": namespace }, "spec": { "ports": [{ "port": 80 }] },
            });
            put(ClusterKind::Service, &value)
        };
        let gateway_class = json!({
            "metadata": { "name": "yumen" }, "spec": { "controllerName": "gateway.yumen.io/controller" },
        });
        let gateway = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "web" },
            "spec": { "gatewayClassName": "yumen", "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }] },
        });
        let mut cart = ingress("shop/cart", "shop.test", &["/cart", "/v1"]);
        cart["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
        translator.apply(
            vec![
                class("yumen", "gateway.yumen.io/controller"),
                class("nginx", "k8s.io/ingress-nginx"),
                class("other", "example.com/other"),
                service("shop"),
                service("team"),
                put(ClusterKind::GatewayClass, &gateway_class),
                put(ClusterKind::Gateway, &gateway),
                put(ClusterKind::Ingress, &cart),
                put(ClusterKind::Ingress, &canary("shop/cart-canary")),
            ],
            NOW,
        );
        ReviewCase { translator, registry: PluginRegistry::new(yumen_plugins::BUILTIN), stores: false }
    }

    fn review(&mut self, operation: &str, object: &Value) -> Value {
        let (group, version) =
            object["apiVersion"].as_str().and_then(|api| api.split_once('/')).expect("a group");
        let request = json!({
            "uid": "1",
            "kind": { "group": group, "version": version, "kind": object["kind"] },
            "operation": operation,
            "object": object,
            "dryRun": true,
        });
        let review =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let question = read_review(review.to_string().as_bytes()).expect("a review");
        let missing = yumen_plugins::inactive::missing::<&str>(&[]);
        let load: LoadCertificate = Arc::new(|_: &str, _: &str| Ok(Arc::new(()) as Loaded));
        let variables: Variables = Arc::new(|_| None);
        let validator = ObjectValidator {
            registry: &self.registry,
            missing: &missing,
            load_certificate: &load,
            variables: &variables,
        };
        let findings = match &question.subject {
            ReviewSubject::Exempt => AdmissionFindings::default(),
            ReviewSubject::Undecodable(reason) => AdmissionFindings::refused(reason.clone()),
            ReviewSubject::Object(reviewed) => self.translator.review(reviewed, NOW, &|kind, value| {
                validator.validate(kind, value).map_err(|error| format!("{error:?}"))
            }),
        };
        findings.answer(&question)["response"].clone()
    }

    /// Reviews an object that is created.
    fn check(&mut self, object: &Value, expected: &str) {
        self.check_operation("CREATE", object, expected);
    }

    /// Compares the answer: `allowed`, `warned TEXT`, or the message of a refusal; a part of the text is enough.
    fn check_operation(&mut self, operation: &str, object: &Value, expected: &str) {
        let response = self.review(operation, object);
        let warnings: Vec<&str> =
            response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found = match (response["allowed"] == true, warnings.is_empty()) {
            (true, true) => "allowed".to_owned(),
            (true, false) => format!("warned {}", warnings.join("; ")),
            (false, _) => response["status"]["message"].as_str().unwrap_or_default().to_owned(),
        };
        let is_expected = if expected == "allowed" { found == expected } else { found.contains(expected) };
        assert!(is_expected, "{}: {found:?} lacks {expected:?}", object["metadata"]["name"]);
        if self.stores && response["allowed"] == true {
            let kind =
                if object["kind"] == "Ingress" { ClusterKind::Ingress } else { ClusterKind::HttpRoute };
            let object = decode(kind, object.to_string().as_bytes()).expect("an object");
            self.translator.apply(vec![ClusterChange::Put(object)], NOW);
        }
    }
}

fn ingress(name: &str, host: &str, paths: &[&str]) -> Value {
    let (namespace, name) = name.split_once('/').expect("namespace/name");
    let backend = json!({ "service": { "name": "cart", "port": { "number": 80 } } });
    let path = |path: &&str| json!({ "path": path, "pathType": "Prefix", "backend": backend });
    let paths: Vec<Value> = paths.iter().map(path).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "name": name, "namespace": namespace, "annotations": {} },
        "spec": { "ingressClassName": "nginx", "rules": [{ "host": host, "http": { "paths": paths } }] },
    })
}

fn annotated(name: &str, annotation: &str, value: &str) -> Value {
    let mut object = ingress(name, "new.test", &["/"]);
    object["metadata"]["annotations"][format!("nginx.ingress.kubernetes.io/{annotation}")] = value.into();
    object
}

fn canary(name: &str) -> Value {
    let mut object = ingress(name, "shop.test", &["/cart"]);
    object["metadata"]["annotations"] = json!({
        "nginx.ingress.kubernetes.io/canary": "true", "nginx.ingress.kubernetes.io/canary-weight": "10",
    });
    object["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "cart-next".into();
    object
}

#[test]
fn a_path_of_another_ingress_is_refused_with_the_name_of_the_owner() {
    let mut case = ReviewCase::new(&[]);
    let taken = "host \"shop.test\" and path \"/cart\" is already defined in ingress shop/cart";
    case.check(&ingress("shop/new", "shop.test", &["/new"]), "allowed");
    case.check(&ingress("shop/new", "new.test", &["/cart"]), "allowed");
    case.check(&ingress("shop/new", "shop.test", &["/new", "/cart"]), taken);
    case.check(&ingress("team/new", "shop.test", &["/cart"]), taken);
    case.check(&ingress("team/new", "SHOP.test", &["/cart"]), taken);
    let mut exact = ingress("team/new", "shop.test", &["/cart"]);
    exact["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact".into();
    case.check(&exact, taken);
    let mut other_class = ingress("team/new", "shop.test", &["/cart"]);
    other_class["spec"]["ingressClassName"] = "other".into();
    case.check(&other_class, "allowed");
    case.check(&canary("shop/second"), "is already defined in ingress shop/cart-canary");
    case.check(&canary("team/second"), "belongs to ingress shop/cart of another namespace");
}

#[test]
fn an_update_keeps_its_own_paths_and_takes_no_others() {
    let mut case = ReviewCase::new(&[]);
    case.stores = true;
    let mut cart = ingress("shop/cart", "shop.test", &["/cart", "/v2"]);
    cart["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
    case.check_operation("UPDATE", &cart, "allowed");
    // The older object must not take the path of a younger one by an edit.
    case.check(&ingress("team/pay", "shop.test", &["/pay"]), "allowed");
    let mut taking = cart.clone();
    taking["spec"]["rules"][0]["http"]["paths"][1]["path"] = "/pay".into();
    case.check_operation("UPDATE", &taking, "path \"/pay\" is already defined in ingress team/pay");
    case.check_operation("DELETE", &taking, "allowed");
    // Under another class, or as a canary, a version held no path, though it is the oldest object.
    let mut adopted = ingress("team/old", "shop.test", &["/cart"]);
    adopted["spec"]["ingressClassName"] = "other".into();
    case.check(&adopted, "allowed");
    adopted["spec"]["ingressClassName"] = "nginx".into();
    let taken = "path \"/cart\" is already defined in ingress shop/cart";
    case.check_operation("UPDATE", &adopted, taken);
    let mut promoted = canary("shop/cart-canary");
    promoted["metadata"]["annotations"] = json!({});
    case.check_operation("UPDATE", &promoted, taken);
}

#[test]
fn classes_of_others_are_not_judged_and_those_of_ingress_nginx_after_the_takeover() {
    let ingress_options = IngressOptions::with_flags(&[]);
    let mut case =
        ReviewCase::with(TranslationSettings { ingress: ingress_options, ..TranslationSettings::default() });
    case.check(&ingress("team/new", "shop.test", &["/cart"]), "allowed");
    let mut own = ingress("team/new", "shop.test", &["/cart"]);
    own["spec"]["ingressClassName"] = "yumen".into();
    case.check(&own, "is already defined in ingress shop/cart");
}

#[test]
fn annotations_are_refused_as_ingress_nginx_refuses_them() {
    let mut case = ReviewCase::new(&[]);
    let mut check = |annotation: &str, value: &str, expected: &str| {
        case.check(&annotated("team/new", annotation, value), expected);
    };
    check("proxy-read-timeout", "30", "allowed");
    check("proxy-read-timeout", "soon", "annotation nginx.ingress.kubernetes.io/proxy-read-timeout: ");
    check("configuration-snippet", "more_set_headers \"A: b\";", "snippets are not allowed");
    check("server-snippet", "location /x { alias /; }", "snippets are not allowed");
    check("auth-type", "digest", "auth-type");
    check("enable-modsecurity", "true", "web application firewall");
    // A Secret of another namespace (CVE-2021-25742 used a snippet for it).
    check("auth-tls-secret", "kube-system/token", "is in another namespace than the Ingress");
    // Injection of directives: CVE-2021-25745, CVE-2023-5043, CVE-2023-5044, CVE-2025-24514, CVE-2025-1097.
    check("permanent-redirect", "https://a.test/;}alias /etc/;", "permanent-redirect");
    check("auth-url", "http://a.test/#;\nssl_engine /tmp/x;", "auth-url");
    check("auth-tls-match-cn", "CN=a;\n}}ssl_engine x", "auth-tls-match-cn");
    check("mirror-target", "http://a.test/;}}load_module x;", "mirror-target");
    check("rewrite-target", "/a\";\nroot /etc;", "rewrite-target");
    check("session-cookie-path", "/;\n}root /etc;", "session-cookie-path");
    check(
        "mirror-target",
        "https://copy.test/x",
        "warned annotation nginx.ingress.kubernetes.io/mirror-target: the copy",
    );
    check("no-such-thing", "1", "warned nginx.ingress.kubernetes.io/no-such-thing: no annotation");
    let mut prefixed = ReviewCase::new(&["--annotations-prefix=example.com"]);
    let object = annotated("team/new", "rewrite-target", "/");
    prefixed.check(&object, "the prefix of annotations is \"example.com\" here");
}

#[test]
fn hosts_and_paths_that_cannot_be_served_are_refused() {
    let mut case = ReviewCase::new(&[]);
    let mut check = |host: &str, path: &str, path_type: &str, expected: &str| {
        let mut object = ingress("team/new", host, &[path]);
        object["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = path_type.into();
        case.check(&object, expected);
    };
    check("new.test", "/a/(.*)", "ImplementationSpecific", "allowed");
    check("new.test", "/a/(.*)", "Prefix", "patterns need pathType ImplementationSpecific");
    check("new.test", "a", "ImplementationSpecific", "does not begin with a slash");
    check("new_test/", "/", "Prefix", "is no host name");
    // CVE-2021-25748 and CVE-2022-4886: directives and files in paths.
    check("new.test", "/a;\nalias /;", "ImplementationSpecific", "spec.rules[0].http.paths[0].path: path");
    check("new.test", "/etc/passwd", "Prefix", "has \"/etc/passwd\"");
    check("new.test", "/x_by_lua_block", "ImplementationSpecific", "has \"_by_lua\"");
    check("new.test", "/var/run/secrets/kubernetes.io", "Prefix", "has \"/var/run/secrets\"");
    let mut lenient = ReviewCase::new(&["--deep-inspect=false"]);
    lenient.check(&ingress("team/new", "new.test", &["/etc/passwd"]), "allowed");
}

#[test]
fn a_catch_all_is_refused_where_the_flag_forbids_it() {
    let mut object = ingress("team/new", "new.test", &["/"]);
    object["spec"] = json!({
        "ingressClassName": "nginx", "defaultBackend": { "service": { "name": "cart", "port": { "number": 80 } } },
    });
    ReviewCase::new(&[]).check(&object, "allowed");
    ReviewCase::new(&["--disable-catch-all"]).check(&object, "an Ingress without rules is not served");
}

#[test]
fn parts_that_differ_are_warnings() {
    let mut case = ReviewCase::new(&[]);
    let mut missing = ingress("team/new", "new.test", &["/"]);
    missing["spec"]["tls"] = json!([{ "hosts": ["new.test"], "secretName": "later" }]);
    // A Secret that was not read yet refuses nothing: objects may be created in any order.
    assert_eq!(case.review("CREATE", &missing)["allowed"], true);
    let mut secret = annotated("shop/new", "auth-secret", "later");
    secret["metadata"]["annotations"]["nginx.ingress.kubernetes.io/auth-type"] = "basic".into();
    assert_eq!(case.review("CREATE", &secret)["allowed"], true);
}

#[test]
fn objects_of_other_kinds_are_refused_for_their_own_defects_alone() {
    let mut case = ReviewCase::new(&[]);
    let route = |rule: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": { "name": "new", "namespace": "shop", "generation": 1 },
            "spec": { "parentRefs": [{ "name": "web" }], "rules": [rule] },
        })
    };
    let backends = json!([{ "name": "cart", "port": 80 }]);
    case.check(&route(json!({ "backendRefs": backends })), "allowed");
    let absent = route(json!({ "backendRefs": [{ "name": "later", "port": 80 }] }));
    case.check(&absent, "warned condition ResolvedRefs would be False, BackendNotFound");
    let broken = json!({
        "matches": [{ "path": { "type": "RegularExpression", "value": "/(" } }], "backendRefs": backends,
    });
    case.check(&route(broken), "/(");
    let apisix = json!({
        "apiVersion": "apisix.apache.org/v2",
        "kind": "ApisixRoute",
        "metadata": { "name": "new", "namespace": "shop" },
        "spec": { "ingressClassName": "yumen", "http": [{
            "name": "a", "match": { "paths": ["/a"] },
            "backends": [{ "serviceName": "cart", "servicePort": 80 }],
            "plugins": [{ "name": "limit-count", "enable": true, "config": { "count": "many" } }],
        }] },
    });
    case.check(&apisix, "limit-count");
}

#[test]
fn a_review_changes_nothing() {
    let mut case = ReviewCase::new(&[]);
    let mut hostile = ingress("team/new", "shop.test", &["/cart", "/new"]);
    hostile["spec"]["ingressClassName"] = "yumen".into();
    for _ in 0..3 {
        case.check(&hostile, "is already defined");
    }
    assert_eq!(case.translator.apply(Vec::new(), NOW), TranslationDelta::default());
    assert_eq!(case.translator.retry_ports(NOW), TranslationDelta::default());
}
