//! The text on standard output once the gateway serves: its listeners, new keys, and a first request to try.

use std::net::Ipv4Addr;
use std::path::Path;

use yumen_base::{Problem, ProblemLevel, quantity};
use yumen_config::NodeConfig;
use yumen_config::node::StoreKind;
use yumen_proxy::{ListenerProtocol, ListenerSettings};

use crate::config::given::{GivenAnnouncement, GivenResources};
use crate::diagnostics::{SourceText, has_colors, render};
use crate::operators::OperatorServers;
use crate::serving::listeners::BoundListeners;

/// The line about the origin of the configuration, and the path of the first request.
fn store_line(node: &NodeConfig) -> (String, &'static str) {
    match node.store.kind {
        StoreKind::File => (format!("  routes   {} (edit it: changes apply at once)", node.store.file), "/"),
        StoreKind::Embedded => (format!("  store    {}", node.store.data_dir), "/hello"),
        StoreKind::Kubernetes => ("  store    Kubernetes".to_owned(), "/"),
        StoreKind::Etcd => {
            let etcd = &node.store.etcd;
            (format!("  store    etcd {} {}", etcd.host.join(" "), etcd.prefix), "/")
        }
    }
}

/// Prints and logs the addresses of all listeners, then calls the function of the given resources.
pub(super) fn announce(
    listeners: &BoundListeners,
    operators: &OperatorServers,
    open_files: u64,
    workers: usize,
    node: &NodeConfig,
    given: Option<GivenResources>,
    problems: &[Problem],
) {
    let (given, on_ready) = given.map(|given| (given.announcement, given.on_ready)).unzip();
    let given: Option<&GivenAnnouncement> = given.as_ref();
    log_addresses(listeners);
    tracing::info!(open_files, workers, "ready");
    let mut lines = Vec::new();
    for listener in &listeners.settings {
        let address = listener.address;
        lines.push(match listener.protocol {
            ListenerProtocol::Stream(protocol) => format!("  stream   {} {address}", protocol.name()),
            ListenerProtocol::Https { .. } => format!("  https    https://{address}"),
            ListenerProtocol::Http => format!("  http     http://{address}"),
        });
    }
    lines.extend(listeners.datagrams.iter().map(|(address, _)| format!("  stream   udp {address}")));
    if let Some(admin) = operators.admin {
        let scheme = if node.admin.tls.is_on() { "https" } else { "http" };
        if given.is_some_and(|given| given.has_dashboard) {
            lines.push(format!("  ui       {scheme}://{admin}/ui/"));
        }
        lines.push(format!("  admin    {scheme}://{admin}/apisix/admin"));
    }
    if let Some(status) = operators.status {
        lines.push(format!("  status   http://{status}/status   http://{status}/metrics"));
    }
    if let Some(control) = operators.control {
        lines.push(format!("  control  http://{control}/v1/schema"));
    }
    let (line, path) = match given {
        Some(given) => (format!("  routes   {}", given.origin), given.path),
        None => store_line(node),
    };
    lines.push(line);
    if let Some(keys) = &operators.new_keys {
        lines.push(format!(
            "\nKeys of the admin listener, shown this once:\n  admin    {}\n  viewer   {}",
            keys.admin, keys.viewer
        ));
    }
    let is_broken = is_unusable(problems);
    let state = state(node, is_broken);
    if !is_broken {
        lines.extend(listeners.settings.first().and_then(|first| first_request(first, path)));
    }
    lines.extend(given.map(|given| given.advice.clone()).filter(|advice| !advice.is_empty()));
    let text = format!(
        "{}yumen {} {state}\n{}\n",
        of_file(node, problems),
        env!("CARGO_PKG_VERSION"),
        lines.join("\n")
    );
    // A terminal that has gone is no reason not to serve.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    if let Some(on_ready) = on_ready.flatten() {
        on_ready(&listeners.http_addresses());
    }
}

fn log_addresses(listeners: &BoundListeners) {
    for listener in &listeners.settings {
        let (tls, http3) = (listener.protocol.terminates_tls(), listener.protocol.serves_http3());
        tracing::info!(address = %listener.address, tls, http3, "listening");
    }
    for (address, _) in &listeners.datagrams {
        tracing::info!(%address, "listening for UDP");
    }
}

/// Whether the file has a fault as a whole, so that none of its objects is active.
fn is_unusable(problems: &[Problem]) -> bool {
    problems.iter().any(|one| one.object == "file" && one.level == ProblemLevel::Error && !one.last_good)
}

fn state(node: &NodeConfig, is_broken: bool) -> String {
    match is_broken {
        true => format!("waits for a valid configuration: fix {}", node.store.file),
        false => "is ready".to_owned(),
    }
}

/// A command that sends a request to the listener.
fn first_request(listener: &ListenerSettings, path: &str) -> Option<String> {
    let (scheme, insecure) = match listener.protocol {
        ListenerProtocol::Http => ("http", ""),
        ListenerProtocol::Https { .. } => ("https", "-k "),
        ListenerProtocol::Stream(_) => return None,
    };
    let mut address = listener.address;
    if address.ip().is_unspecified() {
        // Not every system connects to itself by the unspecified address.
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Some(format!("\nTry:\n  curl -i {insecure}{scheme}://{address}{path}"))
}

/// Problems shown at the start; the log and `yumen problems` have all of them.
const SHOWN_MAX: usize = 20;

/// The problems of the resource file, as `yumen check` prints them.
fn of_file(node: &NodeConfig, problems: &[Problem]) -> String {
    if node.store.kind != StoreKind::File || problems.is_empty() {
        return String::new();
    }
    // The file may have changed since; then the log alone has the problems.
    let Ok(source) = SourceText::read(Path::new(&node.store.file)) else { return String::new() };
    let shown = &problems[..problems.len().min(SHOWN_MAX)];
    let rendered = render(shown, Some(&source), has_colors(&std::io::stdout()));
    match problems.len() - shown.len() {
        0 => rendered,
        more => format!("{rendered}… and {}\n\n", quantity(more, "further problem")),
    }
}
