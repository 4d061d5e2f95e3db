//! The binary accepts every YAML example of the documents, and the reference pages equal its output.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use yumen_config::NodeConfig;
use yumen_config::resource::Kind;

const DOCUMENTS: [&str; 5] = [
    "docs/guide.md",
    "docs/reference/actions.md",
    "docs/reference/plugins.md",
    "README.md",
    "README.zh-CN.md",
];

/// Variables that examples of plugins refer to.
const EXAMPLE_VARIABLES: [&str; 17] = [
    "ALICE_KEY",
    "BOB_KEY",
    "BOB_PASSWORD",
    "CLICKHOUSE_PASSWORD",
    "CLS_SECRET_ID",
    "CLS_SECRET_KEY",
    "CSRF_KEY",
    "GOOGLE_PRIVATE_KEY",
    "JWT_SECRET",
    "KAFKA_PASSWORD",
    "LDAP_PASSWORD",
    "LOGGLY_TOKEN",
    "LOGS_AUTHORIZATION",
    "SEARCH_PASSWORD",
    "SLS_KEY_ID",
    "SLS_KEY_SECRET",
    "SPLUNK_TOKEN",
];

/// The type of file that an example is.
#[derive(Debug, PartialEq)]
enum Sort {
    Resources,
    Node,
}

fn read(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn examples(text: &str) -> Vec<&str> {
    let after = text.split("```yaml\n").skip(1);
    after.map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

fn sort_of(example: &str) -> Option<Sort> {
    let key = example.lines().find(|line| !line.starts_with('#'))?.split(':').next()?;
    if Kind::from_name(key).is_some() {
        return Some(Sort::Resources);
    }
    let node = serde_json::to_value(NodeConfig::default()).expect("settings are plain data");
    node.get(key).map(|_| Sort::Node)
}

fn check(example: &str) -> Output {
    let pair = rcgen::generate_simple_self_signed(vec!["shop.example.com".into()]).expect("a certificate");
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("docs-{}.yaml", MADE.fetch_add(1, Ordering::Relaxed));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, example).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_yumen"))
        .arg("check")
        .arg(&file)
        .env("SHOP_CERT", pair.cert.pem())
        .env("SHOP_KEY", pair.signing_key.serialize_pem())
        // Each value is different, since keys of consumers must be.
        .envs(EXAMPLE_VARIABLES.map(|name| (name, format!("{name}-of-some-length"))))
        .output()
        .expect("the binary runs")
}

#[test]
fn every_example_is_accepted_without_a_problem() {
    let (mut resources, mut nodes) = (0, 0);
    for document in DOCUMENTS {
        for example in examples(&read(document)) {
            match sort_of(example) {
                Some(Sort::Resources) => {
                    resources += 1;
                    let output = check(example);
                    let stdout = String::from_utf8_lossy(&output.stdout);
                    assert!(stdout.ends_with(", 0 errors, 0 warnings\n"), "{document}:\n{example}\n{stdout}");
                    assert!(output.status.success(), "{document}:\n{example}\n{stdout}");
                }
                Some(Sort::Node) => {
                    nodes += 1;
                    NodeConfig::parse(example)
                        .unwrap_or_else(|problems| panic!("{document}:\n{example}\n{problems:?}"));
                }
                None => panic!("{document}: neither resources nor yumen.yaml:\n{example}"),
            }
        }
    }
    assert!(resources >= 13 && nodes >= 2, "{resources} of resources, {nodes} of nodes");
}

#[test]
fn manifests_of_the_kubernetes_guides_are_accepted_without_a_problem() {
    check_manifests("kubernetes", "20-kubernetes.md");
    check_manifests("ingress", "21-ingress.md");
}

/// Checks each manifest of a folder of guides, beside those of the installation and the backends.
fn check_manifests(folder: &str, guide: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pair = rcgen::generate_simple_self_signed(vec!["shop.example.com".into()]).expect("a certificate");
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "shop-tls", "namespace": "shop" },
        "stringData": { "tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem() },
    });
    let secret_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs-secret.json");
    fs::write(&secret_file, secret.to_string()).expect("a file");
    let guide = read(&format!("docs/guides/{guide}"));
    let mut count = 0;
    for entry in fs::read_dir(root.join("docs/guides").join(folder)).expect("the manifests") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(
            guide.contains(&format!("-f docs/guides/{folder}/{name}")),
            "{name}: the guide has no use for it"
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_yumen"));
        command.args(["check", "--kubernetes", "-f", "deploy/kubernetes"]).arg("-f").arg(&secret_file);
        if name != "backends.yaml" {
            command.arg("-f").arg(format!("docs/guides/{folder}/backends.yaml"));
        }
        if name == "canary.yaml" && folder == "ingress" {
            // A canary belongs to an Ingress.
            command.args(["-f", "docs/guides/ingress/ingress.yaml"]);
        }
        let output = command.arg("-f").arg(&path).current_dir(&root).output().expect("the binary runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.ends_with(", 0 errors, 0 warnings\n"), "{name}:\n{stdout}");
        count += 1;
    }
    assert!(count >= 4, "{count} manifests");
}

#[test]
fn invalid_successor_is_not_accepted() {
    let output = check("routes:\n  - id: a\n    uri: /a\n    plugins: { key-oath: {} }\n");
    assert!(!output.status.success());
    assert_eq!(sort_of("    plugins:\n"), None);
}

#[test]
fn the_reference_is_what_the_code_says() {
    let pages = [
        ("plugins", "en", "docs/reference/plugins.md"),
        ("metrics", "en", "docs/reference/metrics.md"),
        ("config", "en", "docs/reference/yumen.yaml"),
        ("ingress-nginx", "en", "docs/reference/ingress-nginx.md"),
        ("plugins", "zh", "docs/zh/reference/plugins.md"),
        ("metrics", "zh", "docs/zh/reference/metrics.md"),
        ("config", "zh", "docs/zh/reference/yumen.yaml"),
    ];
    for (part, language, file) in pages {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yumen"));
        let generated = command.args(["reference", part, "--language", language]).output();
        let generated = String::from_utf8(generated.expect("the binary runs").stdout).expect("text");
        let committed = read(file);
        let stale =
            generated.lines().zip(committed.lines()).find(|(generated, committed)| generated != committed);
        assert!(generated == committed, "{file} is stale: run make docs; {stale:?}");
    }
}

/// Words of a PromQL expression that are names of metric families of this gateway.
fn metrics_of(expression: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = expression.split(|letter| !is_part(letter));
    words.filter(|word| word.starts_with("yumen_") || word.starts_with("apisix_")).collect()
}

/// All texts of members of a name, at any depth.
fn members_of<'a>(value: &'a serde_json::Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(members) => {
            for (key, member) in members {
                match member.as_str().filter(|_| key == name) {
                    Some(text) => found.push(text),
                    None => members_of(member, name, found),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| members_of(item, name, found)),
        _ => {}
    }
}

/// Whether the reference has the family of a series; histograms have series with a suffix.
fn is_exported(reference: &str, series: &str) -> bool {
    let has = |name: &str, kind: &str| reference.contains(&format!("| `{name}` | {kind}"));
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| series.strip_suffix(suffix));
    family.is_some_and(|family| has(family, "histogram")) || (has(series, "") && !has(series, "histogram"))
}

#[test]
fn boards_and_alerts_name_exported_metrics() {
    let reference = read("docs/reference/metrics.md");
    for (file, members, count_min) in [
        ("deploy/grafana/yumen.json", ["expr", "query"].as_slice(), 60),
        ("deploy/prometheus/yumen.rules.yaml", ["expr"].as_slice(), 20),
    ] {
        // JSON is YAML.
        let document: serde_json::Value = serde_yaml_ng::from_str(&read(file)).expect(file);
        let mut expressions = Vec::new();
        members.iter().for_each(|member| members_of(&document, member, &mut expressions));
        let names: Vec<&str> = expressions.iter().flat_map(|text| metrics_of(text)).collect();
        let missing: Vec<&&str> = names.iter().filter(|name| !is_exported(&reference, name)).collect();
        assert!(missing.is_empty(), "{file}: {missing:?} are not in docs/reference/metrics.md");
        assert!(names.len() >= count_min, "{file}: {} names", names.len());
    }
    assert!(!is_exported(&reference, "yumen_requests"), "a part of a name is no name");
    assert!(
        !is_exported(&reference, "yumen_request_duration_seconds"),
        "a histogram has no series of its own name"
    );
}

#[test]
fn both_readmes_show_the_same() {
    let blocks = |text: &str| -> Vec<String> {
        // The placeholder of the clone URL is in the language of each README.
        let same = text.replace("<本仓库地址>", "<this repository>");
        same.split("```").skip(1).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(blocks(&read("README.zh-CN.md")), blocks(&read("README.md")));
}
