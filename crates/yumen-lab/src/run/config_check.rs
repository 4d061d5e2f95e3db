//! Asks an installed gateway whether it accepts its configuration, before it is started and by `doctor`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::gateway::{GatewaySite, render};
use super::run_targets;
use crate::record::{DoctorFinding, FindingLevel};
use crate::scenario::{CaseSettings, GatewayShape};
use crate::targets::{GatewayAdapter, GatewayPlan, LabCertificate, RenderedConfig};

/// Lines of a program's message that are shown.
const LINES_MAX: usize = 12;

/// Fails with the program's message if it refuses the configuration that was written to the plan's folder.
pub(super) fn check(
    adapter: &dyn GatewayAdapter,
    plan: &GatewayPlan,
    rendered: &RenderedConfig,
) -> Result<()> {
    let Some(args) = adapter.check_args(plan) else { return Ok(()) };
    let name = plan.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = Command::new(&plan.program)
        .args(&args)
        .envs(rendered.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{}", plan.program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        format!("{}\n{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    bail!("{name} refuses its configuration ({name} {}):\n{}", args.join(" "), shown(&text))
}

/// Fails if the installed version is older than the one that the adapter needs. An unknown version passes.
pub(super) fn check_version(adapter: &dyn GatewayAdapter, version: Option<&str>) -> Result<()> {
    let (Some(least), Some(found)) = (adapter.version_min(), version) else { return Ok(()) };
    let mut parts = found.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().unwrap_or(0)
    });
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    ensure!(
        (major, minor) >= least,
        "{} {found} is too old: {}.{} or newer is needed; {}",
        adapter.name(),
        least.0,
        least.1,
        adapter.how_to_get()
    );
    Ok(())
}

/// The last lines that are not empty.
fn shown(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

/// A finding per gateway: how to install it, or whether the installed one accepts a configuration.
pub(super) fn findings(
    adapters: &[&'static dyn GatewayAdapter],
    folder: &Path,
    certificate: &LabCertificate,
) -> Vec<DoctorFinding> {
    adapters.iter().map(|adapter| finding(*adapter, folder, certificate)).collect()
}

fn finding(
    adapter: &'static dyn GatewayAdapter,
    folder: &Path,
    certificate: &LabCertificate,
) -> DoctorFinding {
    let finding = |level, found: String, hint: Option<String>| DoctorFinding {
        name: format!("gateway {}", adapter.name()),
        level,
        found,
        wanted: "installed, and its configuration accepted".to_owned(),
        hint,
    };
    let Some(program) = run_targets::program(adapter) else {
        let hint = Some(adapter.how_to_get().to_owned());
        return finding(FindingLevel::Unknown, "not installed".to_owned(), hint);
    };
    let version = run_targets::version(adapter, &program);
    let accepted = check_version(adapter, version.as_deref()).and_then(|()| {
        let folder = folder.join(adapter.name());
        std::fs::create_dir_all(&folder)?;
        let shape: GatewayShape = CaseSettings::default().shape();
        let endpoints = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 9))];
        let site =
            GatewaySite { folder, program: &program, cpus: &[], endpoints, certificate, connections_max: 16 };
        let (plan, rendered) = render(adapter, &shape, &site)?;
        let is_checked = adapter.check_args(&plan).is_some();
        check(adapter, &plan, &rendered).map(|()| is_checked)
    });
    let version = version.unwrap_or_else(|| "unknown version".to_owned());
    match accepted {
        Ok(true) => finding(FindingLevel::Ok, format!("{version}, accepted"), None),
        Ok(false) => finding(FindingLevel::Ok, format!("{version}, has no check of its own"), None),
        Err(error) => {
            finding(FindingLevel::Problem, format!("{version}, refused"), Some(format!("{error:#}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::find;

    #[track_caller]
    fn check_age(adapter: &str, version: Option<&str>, is_accepted: bool) {
        let outcome = check_version(find(adapter).unwrap(), version);
        assert_eq!(outcome.is_ok(), is_accepted, "{adapter} {version:?}: {outcome:?}");
    }

    #[test]
    fn versions_older_than_the_adapter_needs_are_refused() {
        check_age("apisix", Some("3.9.1"), false);
        check_age("apisix", Some("3.13.0"), true);
        check_age("apisix", Some("4.0.0"), true);
        check_age("kong", Some("2.8.5"), false);
        check_age("kong", Some("3.9.1-rc.1"), true);
        check_age("kong", None, true);
        check_age("nginx", Some("1.2.3"), true);
    }

    #[test]
    fn message_of_the_program_is_shortened_to_its_end() {
        let text: String = (0..30).map(|line| format!("line {line}\n\n")).collect();
        let shown = shown(&text);
        assert!(shown.starts_with("line 18\n") && shown.ends_with("line 29"), "{shown}");
    }
}
