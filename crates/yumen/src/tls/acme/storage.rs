//! ACME account and certificates on disk: encrypted with the keyring, mode 0600.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use yumen_config::Kind;
use yumen_store::{Keyring, ResourceKey, SealError, TextSeal};

/// Certificate chain and key in PEM.
pub(super) struct IssuedCertificate {
    pub(super) cert: String,
    pub(super) key: String,
}

impl IssuedCertificate {
    /// Serialized form for storage.
    pub(super) fn text(&self) -> String {
        json!({ "cert": self.cert, "key": self.key }).to_string()
    }

    pub(super) fn read(text: &str) -> anyhow::Result<IssuedCertificate> {
        let stored: Value = serde_json::from_str(text)?;
        let part = |name: &str| stored[name].as_str().map(str::to_owned);
        Ok(IssuedCertificate {
            cert: part("cert").context("there is no certificate in it")?,
            key: part("key").context("no private key found")?,
        })
    }
}

/// Directory of the stored texts.
pub(super) struct AcmeStorage {
    dir: PathBuf,
    keyring: Keyring,
}

/// Id of a certificate: depends on the ACME directory and the names; without names, of the account.
pub(super) fn id_of(directory: &str, names: &[String]) -> String {
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        format!("{directory}\n{}", names.join("\n")).as_bytes(),
    );
    let tail: String = digest.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("acme-{}-{tail}", names.first().map_or("account", String::as_str))
}

impl AcmeStorage {
    pub(super) fn open(dir: &Path, keyring: Keyring) -> anyhow::Result<AcmeStorage> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(AcmeStorage { dir: dir.to_owned(), keyring })
    }

    pub(super) fn certificate(&self, id: &str) -> anyhow::Result<Option<IssuedCertificate>> {
        self.text(id)?.map(|text| IssuedCertificate::read(&text)).transpose()
    }

    pub(super) fn keep_certificate(&self, id: &str, issued: &IssuedCertificate) -> anyhow::Result<()> {
        self.keep(id, &issued.text())
    }

    /// Decrypted text of an id; `None` if there is no file.
    pub(super) fn text(&self, id: &str) -> anyhow::Result<Option<String>> {
        let path = self.path(id);
        let sealed = match fs::read(&path) {
            // Invalid UTF-8 cannot have been sealed; decryption reports it.
            Ok(sealed) => String::from_utf8_lossy(&sealed).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let opened = self.keyring.open(&seal_key(id), &sealed);
        opened.map(Some).with_context(|| format!("cannot open {}", path.display()))
    }

    /// Stores a text atomically and durably.
    pub(super) fn keep(&self, id: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(id);
        let draft = path.with_extension("new");
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(self.keyring.seal(&seal_key(id), text).as_bytes())?;
            // Sync before the rename: otherwise a crash can leave an empty file under the final name.
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Renames the file of an id to `.before`, replacing an earlier one. The renamed file is never read.
    pub(super) fn set_aside(&self, id: &str) -> anyhow::Result<()> {
        let path = self.path(id);
        match fs::rename(&path, path.with_extension("before")) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot rename {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.sealed"))
    }
}

/// Whether a stored text is damaged, so that a later read would fail as well.
pub(super) fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|one| one.is::<SealError>() || one.is::<serde_json::Error>())
}

/// Key of the encryption: binds a text to its id, so that files cannot be swapped.
pub(super) fn seal_key(id: &str) -> ResourceKey {
    ResourceKey::new(Kind::Ssls, id)
}
