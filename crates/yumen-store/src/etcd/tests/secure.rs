//! A cluster with TLS and client authentication.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::cluster::{Cluster, Node, Places};
use super::faults::demand_passwords;
use crate::etcd::EtcdTlsFiles;
use crate::store::Store;
use crate::test_kit::{TestDir, WAIT, put};

/// A certificate authority in files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: &TestDir, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(dir.join(&format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate with this name in two files: `name.pem` and `name-key.pem`.
    fn sign(&self, dir: &TestDir, name: &str, host: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        std::fs::write(dir.join(&format!("{name}.pem")), certificate).unwrap();
        std::fs::write(dir.join(&format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }
}

/// Arguments of a member that requires client certificates, and of `etcdctl` with one.
fn demanding_certificates(dir: &TestDir) -> (Vec<String>, Vec<String>) {
    let with = |flags: &[(&str, &str)]| -> Vec<String> {
        flags.iter().map(|(flag, name)| format!("{flag}={}", dir.join(name).display())).collect()
    };
    let mut more = with(&[
        ("--cert-file", "member.pem"),
        ("--key-file", "member-key.pem"),
        ("--trusted-ca-file", "authority.pem"),
    ]);
    more.push("--client-cert-auth".into());
    let mut ctl = vec!["etcdctl".to_owned()];
    ctl.extend(with(&[("--cacert", "authority.pem"), ("--cert", "node.pem"), ("--key", "node-key.pem")]));
    (more, ctl)
}

/// For a connection without a token, etcd uses the name in the client certificate as the user, which lacks
/// permission.
#[test]
fn a_node_with_a_certificate_and_a_user_writes_on_when_etcd_begins_to_ask_for_users() {
    let dir = TestDir::new();
    let authority = Authority::new(&dir, "authority");
    authority.sign(&dir, "member", "127.0.0.1");
    authority.sign(&dir, "node", "node.test");
    let (more, ctl) = demanding_certificates(&dir);
    let tls = EtcdTlsFiles {
        authorities: Some(dir.join("authority.pem")),
        certificate: Some((dir.join("node.pem"), dir.join("node-key.pem"))),
        server_name: None,
    };
    let cluster = Cluster::start_in(dir, Places { scheme: "https", more, ctl, ..Places::here(1) });
    cluster.wait();
    let mut settings = cluster.settings();
    (settings.client.tls, settings.client.user) = (tls, Some(("yumen".into(), "secret".into())));
    let node = cluster.node_with("one", settings);
    put(node.store(), "a", "{}").unwrap();
    demand_passwords(&cluster);
    put(node.store(), "b", "{}").unwrap();
    assert_eq!(node.store().state().len(), 2);
}

#[test]
fn members_prove_who_they_are_and_so_does_the_node() {
    let dir = TestDir::new();
    let authority = Authority::new(&dir, "authority");
    authority.sign(&dir, "member", "127.0.0.1");
    authority.sign(&dir, "node", "node.test");
    Authority::new(&dir, "stranger").sign(&dir, "spy", "node.test");
    let (more, ctl) = demanding_certificates(&dir);
    let tls = |authority: &str, own: Option<&str>| EtcdTlsFiles {
        authorities: Some(dir.join(authority)),
        certificate: own.map(|own| (dir.join(&format!("{own}.pem")), dir.join(&format!("{own}-key.pem")))),
        server_name: None,
    };
    let (good, strange_member) = (tls("authority.pem", Some("node")), tls("stranger.pem", Some("node")));
    let (anonymous, spy) = (tls("authority.pem", None), tls("authority.pem", Some("spy")));
    let other_name = EtcdTlsFiles { server_name: Some("elsewhere.test".into()), ..good.clone() };
    let missing = tls("nowhere.pem", None);
    let nodes = dir.join("nodes");
    let cluster = Cluster::start_in(dir, Places { scheme: "https", more, ctl, ..Places::here(1) });
    cluster.wait();
    let open = |name: &str, tls: EtcdTlsFiles| {
        let mut settings = cluster.settings();
        settings.client.tls = tls;
        settings.start_timeout = if name == "good" { WAIT } else { std::time::Duration::ZERO };
        Node::open(nodes.join(name), settings)
    };
    let node = open("good", good).unwrap();
    put(node.store(), "a", "{}").unwrap();
    assert_eq!(cluster.must(&["get", "/apisix/routes/a", "--print-value-only"]).trim(), "{}");
    assert_eq!(node.store().state().len(), 1);
    for (name, tls, word) in [
        ("strange-member", strange_member, "certificate"),
        ("other-name", other_name, "certificate"),
        ("nobody", anonymous, "https://127.0.0.1"),
        ("spy", spy, "https://127.0.0.1"),
        ("missing", missing, "nowhere.pem"),
    ] {
        let error = open(name, tls).err().unwrap_or_else(|| panic!("{name} is let in")).to_string();
        assert!(error.contains(word), "{name}: {error}");
    }
}
