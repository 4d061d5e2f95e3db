//! A started program: pinned, observed in `/proc` with its descendants, and ended on drop.
//! Independent of the purpose of the program.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::targets::StopSignal;

/// Time from the stop signal to SIGKILL.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Launch parameters of a program.
#[derive(Clone, Debug)]
pub(super) struct ProcessLaunch<'a> {
    pub(super) program: &'a Path,
    pub(super) args: &'a [String],
    pub(super) env: &'a [(String, String)],
    /// Available processors; empty for all.
    pub(super) cpus: &'a [usize],
    /// File for the output.
    pub(super) log: PathBuf,
    pub(super) stop_signal: StopSignal,
    /// PID file of a program that runs in the background.
    pub(super) pid_file: Option<PathBuf>,
}

/// A running program.
#[derive(Debug)]
pub(super) struct RunningProcess {
    child: Child,
    name: String,
    log: PathBuf,
    stop_signal: StopSignal,
    pid_file: Option<PathBuf>,
}

impl RunningProcess {
    /// Starts the program on a separate thread, because a child inherits the affinity of its parent thread.
    pub(super) fn start(launch: &ProcessLaunch<'_>) -> Result<RunningProcess> {
        let log = File::create(&launch.log).with_context(|| format!("{}", launch.log.display()))?;
        let mut command = Command::new(launch.program);
        command.args(launch.args).envs(launch.env.iter().map(|(name, value)| (name, value)));
        // No program may wait for the terminal.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let spawn = || {
            pin_this_thread(launch.cpus)?;
            command.spawn().with_context(|| format!("start of {}", launch.program.display()))
        };
        // The process inherits the affinity of its thread; this thread keeps its own.
        let child = std::thread::scope(|scope| scope.spawn(spawn).join());
        let child = child.map_err(|_| anyhow::anyhow!("the starting thread panicked"))??;
        let name = launch.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (log, pid_file) = (launch.log.clone(), launch.pid_file.clone());
        Ok(RunningProcess { child, name, log, stop_signal: launch.stop_signal, pid_file })
    }

    /// Id of the first process, from the PID file if there is one.
    pub(super) fn root(&self) -> u32 {
        let written = self.pid_file.as_deref().and_then(|file| fs::read_to_string(file).ok());
        // Until the daemon has written the file, the started process is the best answer.
        written.and_then(|text| text.trim().parse().ok()).unwrap_or(self.child.id())
    }

    /// Waits until the port accepts connections.
    pub(super) fn wait_listening(&mut self, port: u16, limit: Duration) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok() {
                return Ok(());
            }
            // A program with a PID file may exit successfully once its daemon runs.
            if let Some(status) = self.child.try_wait()?
                && (self.pid_file.is_none() || !status.success())
            {
                bail!(
                    "{} ended with {status} before it listened on {address}:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} does not listen on {address} after {limit:?}:\n{}", self.name, self.log_tail())
    }

    /// Waits for the exit; kills the program and fails after `limit`. `stopped` is polled meanwhile.
    pub(super) fn wait(&mut self, limit: Duration, stopped: impl Fn() -> bool) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if stopped() || Instant::now() > end {
                self.stop();
                bail!(
                    "{} was ended: {}",
                    self.name,
                    if stopped() { "interrupted" } else { "it took too long" }
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGHUP to the first process, which reloads its configuration.
    pub(super) fn reload(&self) -> Result<()> {
        // The master of a daemon, not the process that started it.
        kill_process(pid(self.root())?, Signal::HUP).context("SIGHUP")
    }

    /// Last lines of the output.
    pub(super) fn log_tail(&self) -> String {
        const TAIL: usize = 2_000;
        // For an error message, which must not fail itself.
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned()
    }

    /// Ends the program and its descendants.
    pub(super) fn stop(&mut self) {
        let root = self.root();
        // Before the signal, see below.
        let all = descendants(root);
        let signal = match self.stop_signal {
            StopSignal::Terminate => Signal::TERM,
            StopSignal::Interrupt => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
        };
        let ended = |child: &mut Child| {
            // `try_wait` also collects the exit status, so that no zombie remains.
            matches!(child.try_wait(), Ok(Some(_)) | Err(_)) && all.iter().all(|pid| !alive(*pid))
        };
        if ended(&mut self.child) {
            return;
        }
        send(root, signal);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end {
            if ended(&mut self.child) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The list was taken before the stop signal: orphaned descendants would no longer be found below the
        // root.
        all.iter().for_each(|pid| send(*pid, Signal::KILL));
        // After SIGKILL the exit is certain; only the zombie is collected.
        let _ = self.child.wait();
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Restricts the calling thread and its children to these processors; an empty list restricts nothing.
pub(super) fn pin_this_thread(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("processors {cpus:?}"))
}

fn pid(number: u32) -> Result<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw).with_context(|| format!("process id {number}"))
}

fn send(number: u32, signal: Signal) {
    if let Ok(pid) = pid(number) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether the process runs; a zombie does not count.
fn alive(number: u32) -> bool {
    // The name of the program is in parentheses and may contain some, so the last one counts (proc_pid_stat(5)).
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// A process and its descendants.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        // Processes may end, and ids be reused, during the walk.
        if found.contains(&pid) {
            continue;
        }
        found.push(pid);
        // The kernel lists children by the thread that created them.
        for task in tasks(pid) {
            let children =
                fs::read_to_string(format!("/proc/{pid}/task/{task}/children")).unwrap_or_default();
            queue.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

fn tasks(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processor time by thread of the processes and their descendants, in nanoseconds.
pub(super) fn cpu_ns_by_thread(roots: &[u32]) -> BTreeMap<u32, u64> {
    let mut times = BTreeMap::new();
    for pid in roots.iter().flat_map(|root| descendants(*root)) {
        for task in tasks(pid) {
            // In nanoseconds, where `stat` counts clock ticks of 10 ms.
            let text = fs::read_to_string(format!("/proc/{pid}/task/{task}/schedstat")).unwrap_or_default();
            if let Some(ns) = text.split(' ').next().and_then(|ns| ns.parse().ok()) {
                times.insert(task, ns);
            }
        }
    }
    times
}

/// Resident memory of the processes and their descendants; shared pages count once.
pub(super) fn rss_bytes(roots: &[u32]) -> u64 {
    let pids: Vec<u32> = roots.iter().flat_map(|root| descendants(*root)).collect();
    // Pages that several processes share must be counted once.
    let key = if pids.len() == 1 { "Rss:" } else { "Pss:" };
    let of = |pid: &u32| {
        // A process that has ended counts as zero.
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    pids.iter().filter_map(of).sum::<u64>() * 1024
}
