//! The keyring file in the data directory, created at the first start with mode 0600.
//!
//! Independent of the sealed data.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use yumen_config::node::SecretText;

use crate::directory::make_private_directory;
use crate::seal::{KEY_BYTES, Keyring};

const FILE: &str = "keyring";
const HEAD: &str = "# Keys that seal what this node stores: the first seals, all of them open.
# To turn keys, put a new line of 32 random bytes in base64 on top. Losing this file loses the store: keep a
# copy apart from the backups of the store.
";

/// Error of opening the keyring.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file cannot be read or created.
    #[error("cannot read or create the keyring {}{}: {error}", path.display(), remedy(error))]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        error: io::Error,
    },
    /// The file mode grants access to other users.
    #[error("the keyring {} may be read by others (mode {mode:o}): it must be 600", path.display())]
    TooPermissive {
        /// Path of the file.
        path: PathBuf,
        /// Mode bits of the file.
        mode: u32,
    },
    /// A line is not a key.
    #[error("{location} is not a key: expected 32 bytes in base64")]
    NoKey {
        /// Setting or line of the invalid key.
        location: String,
    },
    /// The file contains no key.
    #[error("the keyring {} has no key", .0.display())]
    Empty(PathBuf),
}

/// The remedy of an I/O error, for its message.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as the user that owns the data directory)",
        _ => "",
    }
}

/// Opens the keys of `configured`, in base64, or else of the file in `data_dir`, which is created if missing.
pub fn open_keyring(data_dir: &Path, configured: &[SecretText]) -> Result<Keyring, KeyringError> {
    let path = data_dir.join(FILE);
    if !configured.is_empty() {
        let named =
            configured.iter().enumerate().map(|(i, text)| (format!("store.keyring[{i}]"), text.0.as_str()));
        return ring(named, &path);
    }
    let failed = |error| KeyringError::Io { path: path.clone(), error };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    let mode = fs::metadata(&path).map_err(failed)?.permissions().mode() & 0o777;
    // A keyring that others can read protects nothing; starting would hide that.
    if mode & 0o077 != 0 {
        return Err(KeyringError::TooPermissive { path, mode });
    }
    let lines = text.lines().enumerate().map(|(i, line)| (i, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    ring(keys.map(|(i, line)| (format!("line {} of {}", i + 1, path.display()), line)), &path)
}

/// Keys for another `purpose`, derived from those of `configured` or else of the file in `data_dir`, newest first. Empty
/// without a keyring, and with one that cannot be read.
pub fn derive_keys(data_dir: &Path, configured: &[SecretText], purpose: &str) -> Vec<[u8; KEY_BYTES]> {
    let file = match configured.is_empty() {
        true => fs::read_to_string(data_dir.join(FILE)).unwrap_or_default(),
        false => String::new(),
    };
    let lines = file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let texts = configured.iter().map(|text| text.0.as_str()).chain(lines);
    let keys = texts.filter_map(|text| <[u8; KEY_BYTES]>::try_from(BASE64.decode(text).ok()?).ok());
    // A key of its own per purpose: the same key must not seal data of two formats.
    let derive = |key: [u8; KEY_BYTES]| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), purpose.as_bytes());
        let mut derived = [0; KEY_BYTES];
        derived.copy_from_slice(&tag.as_ref()[..KEY_BYTES]);
        derived
    };
    keys.map(derive).collect()
}

fn ring<'a>(keys: impl Iterator<Item = (String, &'a str)>, path: &Path) -> Result<Keyring, KeyringError> {
    let key = |(location, text): (String, &str)| -> Result<[u8; KEY_BYTES], KeyringError> {
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(KeyringError::NoKey { location })
    };
    let keys = keys.map(key).collect::<Result<Vec<_>, _>>()?;
    Keyring::new(&keys).ok_or_else(|| KeyringError::Empty(path.to_owned()))
}

/// Creates a keyring with one random key durably. A crash leaves the whole file or none.
fn make(path: &Path) -> io::Result<String> {
    let mut key = [0; KEY_BYTES];
    // Without randomness no key may be made: it would be predictable.
    aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no randomness"))?;
    let text = format!("{HEAD}{}\n", BASE64.encode(key));
    let directory = path.parent().unwrap_or(Path::new("."));
    make_private_directory(directory)?;
    // Unique among processes that start together.
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A link, unlike a rename, fails if another process has created the keyring meanwhile.
    let linked = fs::hard_link(&draft, path);
    let _ = fs::remove_file(&draft);
    match linked {
        // The other process uses its key already, and a second key would not open data that the first one seals.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return fs::read_to_string(path),
        linked => linked?,
    }
    File::open(directory)?.sync_all()?;
    Ok(text)
}
