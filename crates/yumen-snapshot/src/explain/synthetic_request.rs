//! Turns a question into the request that it describes: head, client, and a worker without effects.
//!
//! The head passes through the parser that serves, so that both refuse the same heads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use yumen_config::InvalidSettings;
use yumen_config::resource::Question;
use yumen_http::uri::PathPolicy;
use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::PluginHost;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::real_ip::RealIpFinder;
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, Now, TlsInfo};

use super::ListenerPorts;
use super::arrival_listener::{check_protocol, listener_of};
use crate::Snapshot;
use crate::scope::{CompiledListener, ListenProtocol};

/// The parts of a URL.
struct ExplainUrl<'q> {
    is_tls: bool,
    authority: Option<&'q str>,
    target: String,
}

impl<'q> ExplainUrl<'q> {
    fn parse(url: &'q str) -> Result<ExplainUrl<'q>, InvalidSettings> {
        let refuse = |message: &str| Err(InvalidSettings::at("url", format!("{url:?} {message}")));
        let (is_tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                return refuse("has a scheme other than http, https, tcp, tls and udp");
            }
            _ if url.starts_with('/') => (false, ""),
            _ => return refuse("is neither http://host/path, https://host/path nor /path"),
        };
        if rest.is_empty() && !url.starts_with('/') {
            return refuse("has no host");
        }
        // The target URI has no fragment (RFC 9110 §7.1).
        let whole = if url.starts_with('/') { url } else { rest };
        let whole = whole.split('#').next().unwrap_or(whole);
        let start = whole.find(['/', '?']).unwrap_or(whole.len());
        let (authority, target) = whole.split_at(start);
        if authority.contains('@') {
            return refuse("has a user name, which no client sends");
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(ExplainUrl { is_tls, authority: (!url.starts_with('/')).then_some(authority), target })
    }

    /// Sets the scheme of a path alone to that of the listener, and refuses a URL of another scheme.
    fn arrive_at(&mut self, listener: &CompiledListener) -> Result<(), InvalidSettings> {
        let protocol = listener.settings.protocol;
        if self.authority.is_none() {
            self.is_tls = protocol == ListenProtocol::Https;
        }
        match self.is_tls {
            true => check_protocol(listener, &[ListenProtocol::Https], "https"),
            false => check_protocol(listener, &[ListenProtocol::Http], "http"),
        }
    }

    /// The port at which the request arrives: that of the URL, otherwise that of the listener.
    fn port(&self, listeners: ListenerPorts) -> ArrivalPort {
        let written = self.authority.and_then(|authority| authority.rsplit_once(':'));
        let (listener, default) = if self.is_tls { (listeners.https, 443) } else { (listeners.http, 80) };
        match written.and_then(|(_, port)| port.parse().ok()).or(listener) {
            Some(port) => ArrivalPort::Known(port),
            None => ArrivalPort::Assumed(default),
        }
    }
}

/// The port at which a request arrives.
#[derive(Debug, Clone, Copy)]
enum ArrivalPort {
    Known(u16),
    /// Neither the URL nor a listener gives one.
    Assumed(u16),
}

/// A worker that never waits and always draws the same number.
pub(super) struct DryRunHost(pub(super) Now);

impl PluginHost for DryRunHost {
    fn sleep(&self, _delay: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        // Any number would do; this one spreads over high and low bits.
        0x9E37_79B9_7F4A_7C15
    }

    fn fill_random(&self, out: &mut [u8]) {
        // Nothing that a dry run seals leaves it.
        out.fill(0);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        self.0
    }
}

/// The values that an exchange borrows.
pub(super) struct SyntheticRequest {
    head: RequestHead,
    client: ClientInfo,
    host: DryRunHost,
    port: ArrivalPort,
    real_ip: Option<RealIpFinder>,
}

impl SyntheticRequest {
    pub(super) fn new(
        question: &Question,
        now: Now,
        listeners: ListenerPorts,
        snapshot: &Snapshot,
    ) -> Result<SyntheticRequest, InvalidSettings> {
        let listener = listener_of(snapshot, question)?;
        let paths = snapshot.router.rules.paths;
        let mut url = ExplainUrl::parse(&question.url)?;
        if let Some(listener) = listener {
            url.arrive_at(listener)?;
        }
        let head = head(question, &url, paths)?;
        let ip = question.client_ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let name = server_name(question, &head);
        // A listener of the configuration decides by its protocol; otherwise a server name stands for TLS.
        let is_tls = url.is_tls || listener.is_none() && question.sni.is_some();
        let tls = is_tls.then(|| TlsInfo {
            sni: (!name.is_empty()).then(|| name.into()),
            // There is no handshake; conditions on these variables see common values.
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            ..TlsInfo::default()
        });
        let port = match listener {
            Some(listener) => ArrivalPort::Known(listener.settings.port),
            None => url.port(listeners),
        };
        let (ArrivalPort::Known(number) | ArrivalPort::Assumed(number)) = port;
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), number);
        let client = ClientInfo {
            peer: SocketAddr::new(ip, 0),
            local,
            tls,
            connection_id: 0,
            listener: listener.map(|listener| listener.number).unwrap_or_default(),
            mapped_port: 0,
        };
        let real_ip = listener.and_then(|listener| listener.settings.real_ip.clone());
        Ok(SyntheticRequest { head, client, host: DryRunHost(now), port, real_ip })
    }

    pub(super) fn exchange<'s>(&'s self, consumers: &'s ConsumerIndex) -> Exchange<'s> {
        let mut ex = Exchange::new(self.head.clone(), &self.client, self.host.0, &self.host, consumers);
        if let Some(real_ip) = &self.real_ip {
            real_ip.apply(&mut ex);
        }
        ex
    }

    /// The port that was assumed because neither the URL nor a listener has one.
    pub(super) fn assumed_port(&self) -> Option<u16> {
        match self.port {
            ArrivalPort::Known(_) => None,
            ArrivalPort::Assumed(port) => Some(port),
        }
    }

    /// The server name of the handshake, if there is TLS.
    pub(super) fn sni(&self) -> Option<&str> {
        self.client.tls.as_ref().map(|tls| tls.sni.as_deref().unwrap_or(""))
    }
}

/// The server name of a handshake: the host, unless it is an address (RFC 6066 §3).
fn server_name(question: &Question, head: &RequestHead) -> String {
    if let Some(name) = &question.sni {
        return name.clone();
    }
    let host = String::from_utf8_lossy(head.host()).into_owned();
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_address { String::new() } else { host }
}

fn head(
    question: &Question,
    url: &ExplainUrl<'_>,
    paths: PathPolicy,
) -> Result<RequestHead, InvalidSettings> {
    // A request has exactly one `Host` field (RFC 9112 §3.2).
    let has_host = question.headers.keys().any(|name| name.eq_ignore_ascii_case("host"));
    let mut text = format!("{} {} HTTP/1.1\r\n", question.method, url.target);
    if !has_host {
        text.push_str(&format!("Host: {}\r\n", url.authority.unwrap_or_default()));
    }
    for (name, value) in &question.headers {
        // A line break would add fields or end the head.
        if name.is_empty() || [name, value].iter().any(|text| text.contains(['\r', '\n', '\0'])) {
            let path = format!("headers.{}", name.escape_debug());
            return Err(InvalidSettings::at(path, "a header field is one line, NAME: VALUE"));
        }
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut head = RequestHead::default();
    let limits = HeadLimits { paths, ..HeadLimits::default() };
    match parse::request(text.as_bytes(), 0, &limits, &mut head) {
        Ok(parse::ParsedHead::Head(_)) => Ok(head),
        Ok(parse::ParsedHead::Partial) => Err(InvalidSettings::new("the request has no end")),
        Err(error) => Err(InvalidSettings::new(format!("refused before routing: {error}"))),
    }
}
