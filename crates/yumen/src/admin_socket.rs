//! The admin socket in the data directory, by which commands reach the gateway of this machine without a key.
//!
//! The mode of the file admits the user of the gateway and root. Both can read the store anyway.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use yumen_config::NodeConfig;

/// File name in the data directory.
const NAME: &str = "admin.sock";
/// Longest path of a socket on all systems, without the final zero (unix(7): `sun_path`).
const PATH_BYTES_MAX: usize = 100;

/// Path of the socket of a node.
pub(crate) fn path(node: &NodeConfig) -> PathBuf {
    in_directory(Path::new(&node.store.data_dir))
}

/// Path of the socket in a data directory.
pub(crate) fn in_directory(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// Connects to the gateway that serves the socket.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = ShortSocketPath::of(path)?;
    UnixStream::connect(&short.path)
}

/// The socket file of this process; removed on drop, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct AdminSocketFile {
    path: PathBuf,
    inode: u64,
}

/// Binds the socket. Replaces that of the predecessor or of a crashed process, but not of another running gateway.
pub(crate) fn open(node: &NodeConfig, takes_over: bool) -> io::Result<(UnixListener, AdminSocketFile)> {
    let path = path(node);
    // A gateway with a resource file keeps nothing else there.
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    if !takes_over && connect(&path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway serves this socket"));
    }
    // Renamed once it has its mode, so that commands always find a socket that answers.
    let draft = path.with_file_name(format!("{NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let listener = UnixListener::bind(&ShortSocketPath::of(&draft)?.path)?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
    let inode = fs::metadata(&draft)?.ino();
    fs::rename(&draft, &path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, AdminSocketFile { path, inode }))
}

impl Drop for AdminSocketFile {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A path that fits into a socket address. A long one leads through an open handle of its directory.
struct ShortSocketPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl ShortSocketPath {
    fn of(path: &Path) -> io::Result<ShortSocketPath> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
            return Ok(ShortSocketPath { path: path.to_owned(), _directory: None });
        }
        let directory = File::open(parent)?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(ShortSocketPath { path, _directory: Some(directory) })
    }
}
