//! Targets of a run: installed gateways, gateways given by URL, and missing ones with installation hints.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::record::{MeasuredTarget, SkippedTarget, TargetRole};
use crate::targets::{self, GatewayAdapter, version_in};

/// Name of the baseline.
pub(super) const DIRECT: &str = "direct";

/// A target that takes part.
#[derive(Clone)]
pub(super) struct RunTarget {
    pub(super) name: String,
    pub(super) kind: RunTargetKind,
}

/// Access to a target.
#[derive(Clone)]
pub(super) enum RunTargetKind {
    /// The upstream without a gateway.
    Direct,
    /// A gateway started by the lab.
    Adapter { adapter: &'static dyn GatewayAdapter, program: PathBuf, version: Option<String> },
    /// A running gateway configured by the user.
    Url { url: String, pids: Vec<u32> },
}

impl RunTarget {
    /// Record of the target before its start.
    pub(super) fn target(&self) -> MeasuredTarget {
        let mut target = MeasuredTarget {
            name: self.name.clone(),
            adapter: self.name.clone(),
            role: TargetRole::Gateway,
            version: None,
            program: None,
            configuration: Default::default(),
            command: Vec::new(),
            changes_by: None,
            notes: Vec::new(),
        };
        match &self.kind {
            RunTargetKind::Direct => target.role = TargetRole::Baseline,
            RunTargetKind::Adapter { adapter, program, version } => {
                target.version.clone_from(version);
                target.program = Some(program.display().to_string());
                target.changes_by = Some(adapter.changes_by().to_owned());
            }
            RunTargetKind::Url { url, .. } => {
                target.adapter = "url".to_owned();
                target.notes.push(format!("runs already at {url}; its configuration is not known here"));
            }
        }
        target
    }
}

/// The baseline.
pub(super) fn direct() -> RunTarget {
    RunTarget { name: DIRECT.to_owned(), kind: RunTargetKind::Direct }
}

/// Parses `NAME=URL` arguments, with the processes given for them.
pub(super) fn by_url(named: &[String], pids: &[String]) -> Result<Vec<RunTarget>> {
    let pair = |text: &String| -> Result<(String, String)> {
        let (name, value) = text.split_once('=').with_context(|| format!("{text}: wanted NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let pids: Vec<(String, String)> = pids.iter().map(pair).collect::<Result<_>>()?;
    let mut entrants = Vec::new();
    for text in named {
        let (name, url) = pair(text)?;
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            // The generator speaks nothing else.
            bail!("--url {text}: wanted http:// or https://");
        }
        let of = pids.iter().filter(|(of, _)| *of == name);
        let pids = of
            .map(|(_, pid)| pid.parse::<u32>().with_context(|| format!("--pid {name}={pid}")))
            .collect::<Result<Vec<u32>>>();
        let url = url.trim_end_matches('/').to_owned();
        entrants.push(RunTarget { name, kind: RunTargetKind::Url { url, pids: pids? } });
    }
    Ok(entrants)
}

/// Installed gateways of the given names, and the reasons for skipping others.
pub(super) fn installed(names: &[String]) -> Result<(Vec<RunTarget>, Vec<SkippedTarget>)> {
    let (mut entrants, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        let adapter = adapter(name)?;
        match program(adapter) {
            Some(program) => {
                let version = version(adapter, &program);
                entrants.push(RunTarget {
                    name: name.clone(),
                    kind: RunTargetKind::Adapter { adapter, program, version },
                });
            }
            None => skipped.push(SkippedTarget {
                name: name.clone(),
                reason: "not installed".to_owned(),
                hint: adapter.how_to_get().to_owned(),
            }),
        }
    }
    Ok((entrants, skipped))
}

/// Finds the adapter of a name, which must exist.
pub(super) fn adapter(name: &str) -> Result<&'static dyn GatewayAdapter> {
    let known = || targets::all().iter().map(|adapter| adapter.name()).collect::<Vec<_>>().join(", ");
    targets::find(name).with_context(|| {
        format!("target \"{name}\": no such adapter; there are {}; --url takes anything else", known())
    })
}

/// Finds the program by `YUMEN_BENCH_<NAME>`, next to this program, in PATH, or in the directory of the
/// install scripts.
pub(super) fn program(adapter: &dyn GatewayAdapter) -> Option<PathBuf> {
    let variable = format!("YUMEN_BENCH_{}", adapter.name().to_uppercase());
    if let Some(named) = std::env::var_os(variable) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let folders = folders();
    let found =
        |program: &&str| folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    adapter.programs().iter().find_map(found)
}

fn folders() -> Vec<PathBuf> {
    let exe_dir = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    // Debian installs servers in directories that are not in the PATH of ordinary users.
    let system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let own = home.iter().flat_map(|home| [home.join(".cache/yumen-lab/bin"), home.join("go/bin")]);
    exe_dir.into_iter().chain(std::env::split_paths(&path)).chain(system).chain(own).collect()
}

/// Version reported by the program.
pub(super) fn version(adapter: &dyn GatewayAdapter, program: &Path) -> Option<String> {
    let output = Command::new(program).args(adapter.version_args()).stdin(Stdio::null()).output().ok()?;
    let text =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    version_in(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_named_and_may_have_processes() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let entrants =
            by_url(&texts(&["mine=http://127.0.0.1:8080/"]), &texts(&["mine=12", "mine=13"])).unwrap();
        let RunTargetKind::Url { url, pids } = &entrants[0].kind else { panic!("a URL") };
        assert_eq!((url.as_str(), &pids[..]), ("http://127.0.0.1:8080", &[12, 13][..]));
        assert!(by_url(&texts(&["http://127.0.0.1"]), &[]).is_err());
        assert!(by_url(&texts(&["mine=ftp://x"]), &[]).is_err());
    }

    #[test]
    fn an_unknown_target_is_an_error_that_lists_those_there_are() {
        let message = format!("{:#}", installed(&["nginxx".to_owned()]).map(|_| ()).unwrap_err());
        assert!(message.contains("nginxx") && message.contains("haproxy"), "{message}");
    }
}
