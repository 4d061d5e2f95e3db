//! The upgrade socket: one line of JSON as request, one line per step as response.
//!
//! Accepts the user of the gateway and root, which could replace the process anyway.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Predecessor, UpgradeOptions};

/// Request of `yumen upgrade`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UpgradeRequest {
    pub(super) binary: Option<std::path::PathBuf>,
    pub(super) force: bool,
}

/// One line of the response.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UpgradeProgress {
    /// Step in progress.
    Step(String),
    /// Pid of the process that serves now.
    Done(u32),
    /// Reason why the predecessor continues to serve.
    Failed(String),
}

const ASKED_BYTES_MAX: u64 = 16 * 1024;
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// Serves the socket at `place` for the life of the process. Replaces the predecessor's socket, but not that
/// of another running gateway.
pub(crate) fn open_door(place: &Path, takes_over: bool, predecessor: Arc<Predecessor>) -> io::Result<()> {
    // Only a running gateway accepts connections on this path.
    if !takes_over && UnixStream::connect(place).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway answers there"));
    }
    // bind(2) fails on a socket file that a crashed process has left.
    match fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(place)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o600))?;
    let run = move || {
        for caller in listener.incoming().flatten() {
            let (predecessor, call) = (predecessor.clone(), predecessor.begin_call());
            let thread = std::thread::Builder::new().name("yumen-upgrade".into());
            // If no thread can be started, the requester sees the connection close.
            let _ = thread.spawn(move || {
                answer(&caller, &predecessor);
                drop(call);
            });
        }
    };
    std::thread::Builder::new().name("yumen-upgrade".into()).spawn(run).map(drop)
}

fn answer(caller: &UnixStream, predecessor: &Arc<Predecessor>) {
    let answer = match is_let_in(caller).and_then(|()| read(caller).map_err(|error| error.to_string())) {
        Err(reason) => UpgradeProgress::Failed(reason),
        Ok(UpgradeRequest { binary, force }) => {
            // The upgrade continues if the requester has disconnected.
            let mut tell = |step: &str| drop(say(caller, &UpgradeProgress::Step(step.to_owned())));
            match predecessor.hand_over(&UpgradeOptions { binary, force }, &mut tell) {
                Ok(pid) => UpgradeProgress::Done(pid),
                Err(reason) => UpgradeProgress::Failed(reason),
            }
        }
    };
    let _ = say(caller, &answer);
}

fn is_let_in(caller: &UnixStream) -> Result<(), String> {
    let who = rustix::net::sockopt::socket_peercred(caller).map_err(|error| error.to_string())?;
    match who.uid.is_root() || who.uid == rustix::process::geteuid() {
        true => Ok(()),
        false => {
            Err(format!("user {} may not upgrade this gateway: its own user and root may", who.uid.as_raw()))
        }
    }
}

fn read(caller: &UnixStream) -> io::Result<UpgradeRequest> {
    caller.set_read_timeout(Some(ASKED_WITHIN))?;
    caller.set_write_timeout(Some(ASKED_WITHIN))?;
    let mut line = String::new();
    BufReader::new(caller.take(ASKED_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn say(mut caller: &UnixStream, answer: &UpgradeProgress) -> io::Result<()> {
    caller.write_all(format!("{}\n", serde_json::to_string(answer)?).as_bytes())
}
