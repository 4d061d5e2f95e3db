//! The listener of a question about manifests that names none.

use anyhow::{anyhow, bail};
use yumen_snapshot::{CompiledListener, ListenProtocol, Question, Snapshot};

/// The parts of a question's URL that select a listener.
struct ListenerCriteria<'q> {
    protocols: &'static [ListenProtocol],
    host: &'q str,
    /// The port of the URL, or that of its scheme; `None` for a path alone.
    port: Option<u16>,
}

impl<'q> ListenerCriteria<'q> {
    fn of(url: &'q str) -> ListenerCriteria<'q> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (protocols, default): (&[ListenProtocol], Option<u16>) = match &*scheme.to_ascii_lowercase() {
            "http" => (&[ListenProtocol::Http], Some(80)),
            "https" => (&[ListenProtocol::Https], Some(443)),
            "tcp" => (&[ListenProtocol::Tcp], None),
            "tls" => (&[ListenProtocol::Tls, ListenProtocol::Https], None),
            "udp" => (&[ListenProtocol::Udp], None),
            _ => (&[ListenProtocol::Http, ListenProtocol::Https], None),
        };
        let authority = if scheme.is_empty() { "" } else { rest.split(['/', '?', '#']).next().unwrap_or("") };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
            _ => (authority, None),
        };
        ListenerCriteria { protocols, host, port: port.or(default) }
    }
}

/// The id of the listener that fits the URL: by protocol, then by the port that clients dial, then by host name.
pub(crate) fn choose<'s>(snapshot: &'s Snapshot, question: &Question) -> anyhow::Result<&'s str> {
    let wanted = ListenerCriteria::of(&question.url);
    let all: Vec<&CompiledListener> = snapshot.listeners().map(|one| &**one).collect();
    if all.is_empty() {
        bail!("the manifests have no listener that is served: see yumen check --kubernetes");
    }
    let header = question.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = question.sni.as_deref().or(header.map(|(_, host)| host.as_str())).unwrap_or(wanted.host);
    let host = host.to_ascii_lowercase();
    let is_of_port = |one: &CompiledListener| wanted.port.is_none_or(|port| port == one.settings.port);
    let is_of_host = |one: &CompiledListener| snapshot.scope_of(one.number, host.as_bytes()).is_some();
    let fitting =
        |one: &&CompiledListener| wanted.protocols.contains(&one.settings.protocol) && is_of_port(one);
    let mut found: Vec<&CompiledListener> = all.iter().copied().filter(fitting).collect();
    if found.len() > 1 {
        found.retain(|one| is_of_host(one));
    }
    match found[..] {
        [one] => Ok(&one.id),
        [] => Err(anyhow!("no listener fits {}; choose one by --listener: {}", question.url, names(&all))),
        _ => Err(anyhow!(
            "several listeners fit {}; choose one by --listener: {}",
            question.url,
            names(&found)
        )),
    }
}

fn names(listeners: &[&CompiledListener]) -> String {
    let name = |one: &&CompiledListener| {
        format!("{} ({}, port {})", one.id, one.settings.protocol.name(), one.settings.port)
    };
    listeners.iter().map(name).collect::<Vec<_>>().join(", ")
}
