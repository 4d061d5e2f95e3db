//! Adapters of gateways: fair configuration and dynamic changes.
//! Adapters are pure: they render text and steps. Must not start, stop or contact a process.

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
    /// Name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Possible names of the program.
    fn programs(&self) -> &'static [&'static str];

    /// Installation hint for the user.
    fn how_to_get(&self) -> &'static str;

    /// Arguments that print the version.
    fn version_args(&self) -> &'static [&'static str];

    /// Oldest supported version, major and minor; `None` if none is known to fail.
    fn version_min(&self) -> Option<(u32, u32)> {
        None
    }

    /// Arguments with which the program checks its rendered configuration without serving; `None` if it cannot.
    fn check_args(&self, _plan: &GatewayPlan) -> Option<Vec<String>> {
        None
    }

    /// Renders files and command line of a fair configuration; `Err` names an unsupported feature.
    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String>;

    /// Steps after the start, before the first request.
    fn setup(&self, _plan: &GatewayPlan) -> Vec<GatewayStep> {
        Vec::new()
    }

    /// Short description of a dynamic change.
    fn changes_by(&self) -> &'static str;

    /// Steps from the endpoints of `before` to those of `after`, in the gateway's best way.
    fn change(&self, before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep>;

    /// Signal for a graceful stop.
    fn stop_signal(&self) -> StopSignal {
        StopSignal::Terminate
    }
}

/// All adapters in the order of reports.
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

/// Finds an adapter by name.
pub fn find(name: &str) -> Option<&'static dyn GatewayAdapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// Version number in a program's output: the first word that starts with digits and a dot.
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
