//! Cases for the node configuration.

use super::{CpuAffinity, CpuMode, NodeConfig, StoreKind, reference};

fn check(yaml: &str, problems: &[&str]) {
    let found: Vec<String> = match NodeConfig::parse(yaml) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(found, problems, "{yaml}");
}

#[test]
fn errors_have_path_and_hint() {
    let table: [(&str, &[&str]); 16] = [
        (
            "workers: {count: 2000}\ntimeouts: {head_ms: 0}\n",
            &[
                "error: yumen.yaml at workers.count: property \"workers\" validation failed: property \"count\" validation failed: expected 2000 to be at most 1024",
                "error: yumen.yaml at timeouts.head_ms: property \"timeouts\" validation failed: property \"head_ms\" validation failed: expected 0 to be at least 1",
            ],
        ),
        (
            "discovery: {consul: {servers: ['127.0.0.1:8500']}, nacos: {host: ['http://']}}\n",
            &[
                "error: yumen.yaml at discovery.consul.servers[0]: not a URL of an HTTP server\n  hint: such as http://127.0.0.1:8500",
                "error: yumen.yaml at discovery.nacos.host[0]: not a URL of an HTTP server\n  hint: such as http://127.0.0.1:8500",
            ],
        ),
        (
            "listen: [{http3: true}]\n",
            &[
                "error: yumen.yaml at listen[0].http3: HTTP/3 is always encrypted, and the listener is without TLS\n  hint: set tls to true",
            ],
        ),
        (
            "stream_listen: [{address: nowhere}, {protocol: udp, proxy_protocol_from: [10.0.0.1]}]\n",
            &[
                "error: yumen.yaml at stream_listen[0].address: \"nowhere\" is not an address with a port\n  hint: such as 127.0.0.1:9080, :9080 for all IPv4 addresses, or [::]:9080",
                "error: yumen.yaml at stream_listen[1].proxy_protocol_from: PROXY headers are supported on connections, not on datagrams",
            ],
        ),
        (
            "listen: [{proxy_protocol_from: [lb]}]\n",
            &[
                "error: yumen.yaml at listen[0].proxy_protocol_from[0]: \"lb\" is neither an address nor a network\n  hint: such as 10.0.0.0/8",
            ],
        ),
        (
            "observe: {debug_key: short}\n",
            &[
                "error: yumen.yaml at observe.debug_key: 5 bytes are too few for a secret\n  hint: at least 16, such as `openssl rand -hex 32` gives",
            ],
        ),
        (
            "lisen: []\n",
            &["error: yumen.yaml at lisen: unknown field \"lisen\"\n  hint: did you mean \"listen\"?"],
        ),
        (
            "workers: {cuont: 1, count: x}\n",
            &[
                "error: yumen.yaml at workers.cuont: unknown field \"cuont\"\n  hint: did you mean \"count\"?",
                "error: yumen.yaml at workers.count: property \"workers\" validation failed: property \"count\" validation failed: wrong type: expected integer, got string",
            ],
        ),
        (
            "router: {zzzzzz: 1}\n",
            &[
                "error: yumen.yaml at router.zzzzzz: unknown field \"zzzzzz\"\n  hint: known here: path_parameters, dot_segments, encoded_slashes, trace_requests, huge_pages",
            ],
        ),
        (
            "listen:\n- address: nowhere\n",
            &[
                "error: yumen.yaml at listen[0].address: \"nowhere\" is not an address with a port\n  hint: such as 127.0.0.1:9080, :9080 for all IPv4 addresses, or [::]:9080",
            ],
        ),
        (
            "listen:\n- adress: \"0.0.0.0:1\"\n",
            &[
                "error: yumen.yaml at listen[0].adress: unknown field \"adress\"\n  hint: did you mean \"address\"?",
            ],
        ),
        (
            "workers: {nice: -21}\n",
            &[
                "error: yumen.yaml at workers.nice: property \"workers\" validation failed: property \"nice\" validation failed: expected -21 to be at least -20",
            ],
        ),
        (
            "store: {kind: memory}\n",
            &[
                "error: yumen.yaml at store.kind: property \"store\" validation failed: property \"kind\" validation failed: matches none of the enum values\n  hint: allowed: \"embedded\", \"file\", \"etcd\", \"kubernetes\"",
            ],
        ),
        (
            "trusted_addresses: [10.0.0.0/33]\n",
            &[
                "error: yumen.yaml at trusted_addresses[0]: \"10.0.0.0/33\" is neither an address nor a network\n  hint: such as 10.0.0.0/8",
            ],
        ),
        (
            "real_ip: {from: [proxy]}\n",
            &[
                "error: yumen.yaml at real_ip.from[0]: \"proxy\" is neither an address nor a network\n  hint: such as 10.0.0.0/8",
            ],
        ),
        (
            "- 1\n",
            &[
                "error: yumen.yaml: wrong type: expected object, got table\n  hint: write a mapping, such as {name: value}",
            ],
        ),
    ];
    for (yaml, problems) in table {
        check(yaml, problems);
    }
    assert!(NodeConfig::parse("a: [").expect_err("unclosed")[0].message.contains("line"));
}

#[test]
fn login_at_a_provider_is_complete_or_refused() {
    const GOOD: &str = "issuer: 'https://idp.test/r', client_id: me, redirect_uri: 'https://gw.test:9180/ui/callback', \
                        roles: [{claim: groups, values: [a], role: admin}]";
    let at = |path: &str, rest: &str| format!("error: yumen.yaml at admin.dashboard{path}: {rest}");
    let tls = "tls: {certificate: a.pem, key: b.pem}";
    for (more, openid, expected) in [
        (tls, GOOD.to_owned(), None),
        ("dashboard_hosts", GOOD.to_owned(), None),
        ("", GOOD.replace("https://gw.test:9180", "http://127.0.0.1:9180"), None),
        ("", GOOD.replace("https://gw.test:9180", "https://10.0.0.1/prefix"), None),
        (
            "",
            GOOD.to_owned(),
            Some((".openid.redirect_uri", "the host \"gw.test\" is not in admin.dashboard.hosts")),
        ),
        (
            tls,
            GOOD.replace("https://gw", "http://gw"),
            Some((
                ".openid.redirect_uri",
                "\"http://gw.test:9180/ui/callback\" is without https, so codes would cross",
            )),
        ),
        (
            tls,
            GOOD.replace("/ui/callback", "/callback"),
            Some((
                ".openid.redirect_uri",
                "the path of \"https://gw.test:9180/callback\" does not end with /ui/callback",
            )),
        ),
        (
            tls,
            GOOD.replace("https://idp", "http://idp"),
            Some((".openid.issuer", "\"http://idp.test/r\" is not an https URL without query")),
        ),
        (tls, GOOD.replace("client_id: me, ", ""), Some((".openid.client_id", "is missing"))),
        (
            tls,
            format!("{GOOD}, scopes: [profile]"),
            Some((".openid.scopes", "the scope \"openid\" is missing")),
        ),
        (
            tls,
            "client_id: me".to_owned(),
            Some((".openid.issuer", "empty, so the other settings of this login")),
        ),
        (
            "key_required: false",
            GOOD.replace("gw.test", "localhost"),
            Some((".openid", "has no effect: admin.key_required is false")),
        ),
        (
            "listen: ''",
            GOOD.replace("gw.test", "localhost"),
            Some((".openid", "has no effect: admin.listen is empty")),
        ),
    ] {
        let (more, hosts) = match more {
            "dashboard_hosts" => ("", "hosts: [gw.test], "),
            more => (more, ""),
        };
        let comma = if more.is_empty() { "" } else { ", " };
        let yaml = format!("admin: {{{more}{comma}dashboard: {{{hosts}openid: {{{openid}}}}}}}\n");
        let found = match NodeConfig::parse(&yaml) {
            Ok(_) => None,
            Err(problems) => Some(problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
        };
        match (expected, found) {
            (None, None) => {}
            (Some((path, rest)), Some(found))
                if found.len() == 1 && found[0].starts_with(&at(path, rest)) => {}
            (expected, found) => panic!("{yaml}: {found:#?}, expected {expected:?}"),
        }
    }
    assert!(
        NodeConfig::parse("admin: {dashboard: {openid: {roles: [{claim: a, values: [], role: admin}]}}}")
            .is_err()
    );
}

#[test]
fn an_admin_listener_that_others_reach_needs_keys_and_tls() {
    let tls = "error: yumen.yaml at admin.tls: \"0.0.0.0:9180\" is reachable from other machines, so TLS is required\n  hint: listen on 127.0.0.1, or set certificate and key";
    let key = "error: yumen.yaml at admin.key_required: \"0.0.0.0:9180\" is reachable from other machines, so keys are required\n  hint: listen on 127.0.0.1, or set admin.key_required to true";
    let table: [(&str, &[&str]); 9] = [
        ("admin: {listen: \"127.0.0.1:9180\", key_required: false}\n", &[]),
        ("admin: {listen: \"[::1]:9180\", key_required: false}\n", &[]),
        ("admin: {listen: \"0.0.0.0:9180\"}\n", &[tls]),
        ("admin: {listen: \"0.0.0.0:9180\", key_required: false}\n", &[key, tls]),
        ("admin: {listen: \"0.0.0.0:9180\", tls: {certificate: a.pem, key: b.pem}}\n", &[]),
        (
            "admin: {tls: {client_ca: ca.pem}}\n",
            &[
                "error: yumen.yaml at admin.tls.client_ca: client certificates need TLS, which has no certificate\n  hint: set certificate and key too",
            ],
        ),
        (
            "admin: {tls: {certificate: a.pem}}\n",
            &[
                "error: yumen.yaml at admin.tls: a certificate and a key belong together: only one of them is set",
            ],
        ),
        (
            "admin: {allow: [nobody]}\n",
            &[
                "error: yumen.yaml at admin.allow[0]: \"nobody\" is neither an address nor a network\n  hint: such as 10.0.0.0/8",
            ],
        ),
        (
            "admin: {keys: [{name: a, key: 0123456789abcdef}, {name: a, key: 0123456789abcdeg, role: viewer}]}\n",
            &["error: yumen.yaml at admin.keys[1].name: the name \"a\" is used twice"],
        ),
    ];
    for (yaml, problems) in table {
        check(yaml, problems);
    }
    assert!(NodeConfig::parse("admin: {keys: [{name: a, key: short}]}").is_err());
    assert!(NodeConfig::parse("admin: {keys: [{name: a, key: 0123456789abcdef, role: root}]}").is_err());
}

#[test]
fn secrets_do_not_show_in_logs() {
    let yaml = "admin: {keys: [{name: ada, key: 0123456789abcdef}]}\nstore: {keyring: [abcdef]}\n";
    let shown = format!("{:?}", NodeConfig::parse(yaml).expect("valid"));
    assert!(shown.contains("ada") && !shown.contains("abcdef"), "{shown}");
}

#[test]
fn nothing_written_gives_the_defaults() {
    for yaml in ["", "# nothing\n", "workers:\nlogs:\n", "workers: {}\n"] {
        assert_eq!(NodeConfig::parse(yaml), Ok(NodeConfig::default()), "{yaml}");
    }
}

#[test]
fn written_settings_are_read() {
    let yaml = "listen:\n- address: \"[::]:9443\"\n  tls: true\nworkers:\n  count: 2\n  cpu_affinity: [0, 2]\nstore: {kind: file, file: a.yaml}\nadmin: {listen: \"\"}\ntimeouts: {idle_ms: 5}\n";
    let config = NodeConfig::parse(yaml).expect("valid");
    assert_eq!((config.listen.len(), config.listen[0].tls, config.listen[0].backlog), (1, true, 65535));
    assert_eq!(config.workers.cpu_affinity, CpuAffinity::Cpus(vec![0, 2]));
    assert_eq!((config.store.kind, config.store.file.as_str()), (StoreKind::File, "a.yaml"));
    assert_eq!((config.timeouts.idle_ms, config.timeouts.head_ms), (5, 60_000));
    let auto = NodeConfig::parse("workers: {cpu_affinity: auto}").expect("valid");
    assert_eq!(auto.workers.cpu_affinity, CpuAffinity::Mode(CpuMode::Auto));
}

#[test]
fn the_reference_is_a_valid_file_of_all_defaults_and_every_field_is_documented() {
    let text = reference(&str::to_owned);
    assert_eq!(NodeConfig::parse(&text), Ok(NodeConfig::default()), "{text}");
    let mut commented = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "-") {
        assert!(commented || line.starts_with('#'), "no comment above: {line}");
        commented = line.starts_with('#');
    }
}

#[test]
fn a_translated_reference_is_valid_and_its_lines_break_between_characters() {
    let text = reference(&|_| "监听器，".repeat(30));
    assert_eq!(NodeConfig::parse(&text), Ok(NodeConfig::default()), "{text}");
    // 100 columns are "# " and 49 characters; no line begins with a comma.
    let comment: Vec<&str> = text.lines().skip(2).take_while(|line| line.starts_with("# ")).collect();
    assert_eq!(comment.iter().map(|line| line.chars().count()).collect::<Vec<_>>(), [51, 51, 24], "{text}");
    assert!(comment.iter().all(|line| !line.starts_with("# ，")), "{comment:?}");
}

#[test]
fn the_endpoint_of_otlp_is_a_base_url() {
    let config = |endpoint: &str, protocol: &str| {
        NodeConfig::parse(&format!("observe: {{otlp: {{endpoint: '{endpoint}', protocol: {protocol}}}}}\n"))
    };
    for (endpoint, base) in [
        ("", ("", "")),
        ("http://127.0.0.1:4318", ("http://127.0.0.1:4318", "")),
        ("https://otel.test/", ("https://otel.test", "")),
        ("https://otel.test/insert/opentelemetry/", ("https://otel.test", "/insert/opentelemetry")),
    ] {
        let parsed = config(endpoint, "http").expect("a valid configuration");
        assert_eq!(parsed.observe.otlp.base(), base, "{endpoint}");
    }
    for endpoint in ["otel.test:4318", "http://user@otel.test", "http://otel.test/a?b", "http:///v1"] {
        assert!(config(endpoint, "http").is_err(), "{endpoint}");
    }
    check(
        "observe: {otlp: {endpoint: 'http://127.0.0.1:4317/otlp', protocol: grpc}}\n",
        &[
            "error: yumen.yaml at observe.otlp.endpoint: \"http://127.0.0.1:4317/otlp\" has a path, and gRPC has methods of its own\n  hint: such as http://127.0.0.1:4317",
        ],
    );
}

#[test]
fn unusable_etcd_settings_are_reported() {
    let table: [(&str, &[&str]); 7] = [
        ("store: {kind: etcd, etcd: {host: [\"https://a:2379\"], user: u, password: p}}\n", &[]),
        (
            "store: {etcd: {host: []}}\n",
            &[
                "error: yumen.yaml at store.etcd.host: no member is named\n  hint: such as http://127.0.0.1:2379",
            ],
        ),
        (
            "store: {etcd: {host: [\"a:2379\"]}}\n",
            &[
                "error: yumen.yaml at store.etcd.host[0]: not a URL of an etcd member\n  hint: such as http://127.0.0.1:2379, with store.etcd.user and store.etcd.password beside",
            ],
        ),
        (
            "store: {etcd: {prefix: apisix}}\n",
            &[
                "error: yumen.yaml at store.etcd.prefix: \"apisix\" is not a key prefix\n  hint: such as /apisix",
            ],
        ),
        (
            "store: {etcd: {prefix: /}}\n",
            &["error: yumen.yaml at store.etcd.prefix: \"/\" is not a key prefix\n  hint: such as /apisix"],
        ),
        (
            "store: {etcd: {tls: {cert: a.pem}}}\n",
            &[
                "error: yumen.yaml at store.etcd.tls: a certificate and a key belong together: only one of them is set",
            ],
        ),
        (
            "store: {etcd: {user: u}}\n",
            &[
                "error: yumen.yaml at store.etcd.user: a user and a password belong together: only one of them is set",
            ],
        ),
    ];
    for (yaml, problems) in table {
        check(yaml, problems);
    }
}

#[test]
fn unusable_acme_settings_are_reported() {
    let table: [(&str, &[&str]); 5] = [
        ("acme: {directory: \"https://ca.test/dir\", certificates: [{names: [a.test, b-2.test]}]}\n", &[]),
        (
            "acme: {directory: \"https://ca.test/dir\"}\n",
            &[
                "error: yumen.yaml at acme.certificates: acme.directory is set, but acme.certificates is empty\n  hint: such as - names: [shop.example.com]",
            ],
        ),
        (
            "acme: {directory: \"http://ca.test/dir\", certificates: [{names: [a.test]}]}\n",
            &["error: yumen.yaml at acme.directory: \"http://ca.test/dir\" is not an https URL"],
        ),
        (
            "acme: {directory: \"https://ca.test/dir\", certificates: [{names: [a.test, \"*.b.test\", a_b.test]}]}\n",
            &[
                "error: yumen.yaml at acme.certificates[0].names[1]: \"*.b.test\" is a wildcard, which neither challenge can prove\n  hint: name each host",
                "error: yumen.yaml at acme.certificates[0].names[2]: \"a_b.test\" is not a host name",
            ],
        ),
        (
            "acme: {external_account: {key_id: kid}}\n",
            &[
                "error: yumen.yaml at acme.external_account: an id and a key belong together: only one of them is set",
            ],
        ),
    ];
    for (yaml, problems) in table {
        check(yaml, problems);
    }
}

#[test]
fn ineffective_or_out_of_range_settings_are_reported_by_path() {
    let cases = [
        ("tls: {session_entries: 4294967295}", "tls.session_entries: ", "to be at most 262144"),
        ("workers: {count: 1025}", "workers.count: ", "to be at most 1024"),
        ("upgrade: {drain_s: 4294967296}", "upgrade.drain_s: ", "to be at most 4294967295"),
        ("listen: [{backlog: 5000000000}]", "listen[0].backlog: ", "to be at most 4294967295"),
        ("overload: {spared_paths: [/a, healthz]}", "overload.spared_paths[1]: ", "must start with /"),
        ("overload: {spared_paths: ['']}", "overload.spared_paths[0]: ", "must start with /"),
        ("acme: {certificates: [{names: [a.example]}]}", "acme.directory: ", "acme.directory is empty"),
        ("server_header: \"a\\r\\nb: c\"", "server_header: ", "control character"),
    ];
    for (yaml, path, message) in cases {
        let problems = NodeConfig::parse(yaml).expect_err(yaml);
        let problem = problems[0].to_string();
        assert!(problem.starts_with(&format!("error: yumen.yaml at {path}")), "{yaml}: {problem}");
        assert!(problem.contains(message) && problems.len() == 1, "{yaml}: {problems:?}");
    }
}

#[test]
fn an_address_is_for_one_listener() {
    let a = "127.0.0.1:9080";
    check(
        &format!("listen: [{{address: '{a}'}}, {{address: '{a}', tls: true}}]"),
        &[
            "error: yumen.yaml at listen[1].address: the address 127.0.0.1:9080 is already used by listen[0].address",
        ],
    );
    check(
        &format!("status: {{listen: '{a}'}}"),
        &[
            "error: yumen.yaml at status.listen: the address 127.0.0.1:9080 is already used by listen[0].address",
        ],
    );
    let datagrams = |http3: bool| {
        format!(
            "listen: [{{address: '{a}', tls: true, http3: {http3}}}]\nstream_listen: [{{address: '{a}', protocol: udp}}]"
        )
    };
    check(&datagrams(false), &[]);
    check(
        &datagrams(true),
        &[
            "error: yumen.yaml at stream_listen[0].address: the address 127.0.0.1:9080 is already used by listen[0].address",
        ],
    );
    check("listen: [{address: '127.0.0.1:0'}, {address: '127.0.0.1:0'}]", &[]);
}

#[test]
fn names_of_status_and_control_are_host_names() {
    check("status: {hosts: [my_gateway, gateway.internal, \"*\"]}\n", &[]);
    let hint = "a name without a port, such as gateway.internal, or * for all names";
    let problem = |path: &str, name: &str| {
        format!("error: yumen.yaml at {path}: \"{name}\" is not a host name\n  hint: {hint}")
    };
    for (section, name) in [("status", "a:80"), ("control", "http://a"), ("status", "")] {
        let yaml = format!("{section}: {{hosts: [\"{name}\"]}}\n");
        check(&yaml, &[&problem(&format!("{section}.hosts[0]"), name)]);
    }
}

#[test]
fn a_gateway_needs_a_listener_or_a_source_that_has_them() {
    let check = |yaml: &str, expected: bool| {
        let node = NodeConfig::parse(yaml).expect("valid settings");
        assert_eq!(node.absence_of_listeners().is_some(), expected, "{yaml}");
    };
    check("", false);
    check("listen: []\n", true);
    check("listen: []\nstore: {kind: kubernetes}\n", false);
    check("listen: []\nstream_listen: [{address: ':9000'}]\n", false);
}

#[test]
fn aliases_cannot_repeat_a_text_without_end() {
    let text = format!("x: &a {}\ny: [{}]\n", "x".repeat(4000), vec!["*a"; 9000].join(","));
    let problems = NodeConfig::parse(&text).expect_err("too much text");
    assert!(problems[0].message.contains("repeat too much text"), "{problems:?}");
}

#[test]
fn encoded_slashes_separate_where_ingresses_are_served() {
    let serves = |yaml: &str| NodeConfig::parse(yaml).expect("a valid text").serves_ingresses();
    assert!(serves("store: { kind: kubernetes }"));
    assert!(!serves("store: { kind: kubernetes }\nkubernetes: { ingress: { enabled: false } }"));
    assert!(!serves(""));
}
