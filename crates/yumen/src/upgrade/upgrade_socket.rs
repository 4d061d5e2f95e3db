//! The upgrade socket: one line of JSON as request, one line per step as response.
//!
//! Accepts the user of the gateway and root, which could replace the process anyway.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::UpgradeError;
use super::{Predecessor, UpgradeOptions};

/// Request of `yumen upgrade`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpgradeRequest {
    pub(crate) binary: Option<PathBuf>,
    pub(crate) force: bool,
    pub(crate) end_drain: bool,
}

/// One line of the response.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpgradeProgress {
    /// Step in progress.
    Step(String),
    /// Pid of the process that serves now.
    Done(u32),
    /// Reason why the predecessor continues to serve.
    Failed(String),
    /// Reason why no process continues to serve: the gateway ends.
    Ending(String),
}

const REQUEST_BYTES_MAX: u64 = 16 * 1024;
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// Serves the socket at `path` for the life of the process. Replaces the predecessor's socket, but not that
/// of another running gateway.
pub(crate) fn open_upgrade_socket(
    path: &Path,
    takes_over: bool,
    predecessor: Arc<Predecessor>,
) -> io::Result<()> {
    // Only a running gateway accepts connections on this path.
    if !takes_over && UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway serves this socket"));
    }
    // bind(2) fails on a socket file that a crashed process has left.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let run = move || {
        for connection in listener.incoming().flatten() {
            let (predecessor, requester) = (predecessor.clone(), predecessor.register_requester());
            let thread = std::thread::Builder::new().name("yumen-upgrade".into());
            // If no thread can be started, the requester sees the connection close.
            let _ = thread.spawn(move || {
                serve(&connection, &predecessor);
                drop(requester);
            });
        }
    };
    std::thread::Builder::new().name("yumen-upgrade".into()).spawn(run).map(drop)
}

fn serve(connection: &UnixStream, predecessor: &Arc<Predecessor>) {
    let request = authorize(connection).and_then(|()| read(connection).map_err(|error| error.to_string()));
    let response = match request {
        Err(reason) => UpgradeProgress::Failed(reason),
        Ok(UpgradeRequest { binary, force, end_drain }) => {
            // The upgrade continues if the requester has disconnected.
            let mut report = |step: &str| drop(write(connection, &UpgradeProgress::Step(step.to_owned())));
            match predecessor.hand_over(&UpgradeOptions { binary, force, end_drain }, &mut report) {
                Ok(pid) => UpgradeProgress::Done(pid),
                Err(error @ UpgradeError::Ending) => UpgradeProgress::Ending(error.to_string()),
                Err(error) => UpgradeProgress::Failed(error.to_string()),
            }
        }
    };
    let _ = write(connection, &response);
}

fn authorize(connection: &UnixStream) -> Result<(), String> {
    let peer = rustix::net::sockopt::socket_peercred(connection).map_err(|error| error.to_string())?;
    match peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        true => Ok(()),
        false => {
            Err(format!("user {} may not upgrade this gateway: its own user and root may", peer.uid.as_raw()))
        }
    }
}

fn read(connection: &UnixStream) -> io::Result<UpgradeRequest> {
    connection.set_read_timeout(Some(REQUEST_WITHIN))?;
    connection.set_write_timeout(Some(REQUEST_WITHIN))?;
    let mut line = String::new();
    BufReader::new(connection.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn write(mut connection: &UnixStream, line: &UpgradeProgress) -> io::Result<()> {
    connection.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())
}
