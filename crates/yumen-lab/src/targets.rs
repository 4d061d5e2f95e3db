//! The gateways a scenario can be run on: what each is called, how its fair configuration looks, how it is
//! changed while running. Adapters are pure: they render text and steps. Must not start, stop or ask anything.

mod apinto;
mod apisix;
mod caddy;
mod envoy;
mod haproxy;
mod kong;
mod nginx;
mod plan;
mod resources;
mod traefik;
mod yumen;

#[cfg(test)]
mod tests;

pub use plan::{
    GatewayPlan, GatewayPorts, GatewayStep, LabCertificate, RenderedConfig, StopSignal, key, mock_body,
};

/// One gateway.
pub trait GatewayAdapter: Send + Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Names its program may have.
    fn programs(&self) -> &'static [&'static str];

    /// How a user gets it.
    fn how_to_get(&self) -> &'static str;

    /// Arguments that make the program tell its version.
    fn version_args(&self) -> &'static [&'static str];

    /// Files and command line of a fair configuration; `Err` says what this gateway cannot do.
    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String>;

    /// What is done once it listens, before the first request.
    fn setup(&self, _plan: &GatewayPlan) -> Vec<GatewayStep> {
        Vec::new()
    }

    /// How a dynamic change is applied, in a few words.
    fn changes_by(&self) -> &'static str;

    /// Brings the endpoints from those of `before` to those of `after`, the way this gateway does it best.
    fn change(&self, before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep>;

    /// The signal that ends it in an orderly way.
    fn stop_signal(&self) -> StopSignal {
        StopSignal::Terminate
    }
}

/// All adapters in the order reports list them.
pub fn all() -> &'static [&'static dyn GatewayAdapter] {
    &[
        &yumen::YumenAdapter,
        &nginx::NginxAdapter,
        &haproxy::HaProxyAdapter,
        &envoy::EnvoyAdapter,
        &apisix::ApisixAdapter,
        &kong::KongAdapter,
        &apinto::ApintoAdapter,
        &traefik::TraefikAdapter,
        &caddy::CaddyAdapter,
    ]
}

/// The adapter of this name.
pub fn find(name: &str) -> Option<&'static dyn GatewayAdapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// The version number in what a program printed: the first word that starts with digits and a dot.
pub fn version_in(output: &str) -> Option<String> {
    let words = output.split(|c: char| c.is_whitespace() || "/,:()\"".contains(c));
    let versions = words.map(|word| word.trim_start_matches('v')).filter(|word| {
        let mut parts = word.split('.');
        let first =
            parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        first && parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    });
    versions.map(str::to_owned).next()
}
