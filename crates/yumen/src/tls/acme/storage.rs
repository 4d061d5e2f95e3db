//! The ACME account and certificates on disk: sealed under the node's keyring, readable by its owner alone.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use yumen_config::Kind;
use yumen_store::{Keyring, ResourceKey, SealError, TextSeal};

/// A certificate and its key, PEM.
pub(super) struct IssuedCertificate {
    pub(super) cert: String,
    pub(super) key: String,
}

impl IssuedCertificate {
    /// As it is kept.
    pub(super) fn text(&self) -> String {
        json!({ "cert": self.cert, "key": self.key }).to_string()
    }

    pub(super) fn read(text: &str) -> anyhow::Result<IssuedCertificate> {
        let kept: Value = serde_json::from_str(text)?;
        let part = |name: &str| kept[name].as_str().map(str::to_owned);
        Ok(IssuedCertificate {
            cert: part("cert").context("there is no certificate in it")?,
            key: part("key").context("no private key found")?,
        })
    }
}

/// Where they are kept.
pub(super) struct AcmeStorage {
    dir: PathBuf,
    keyring: Keyring,
}

/// A name for what belongs to a directory and these names; none are the account.
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

    /// What was kept under an id.
    pub(super) fn text(&self, id: &str) -> anyhow::Result<Option<String>> {
        let path = self.path(id);
        let sealed = match fs::read(&path) {
            // What is no text was not sealed so either.
            Ok(sealed) => String::from_utf8_lossy(&sealed).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let opened = self.keyring.open(&seal_key(id), &sealed);
        opened.map(Some).with_context(|| format!("cannot open {}", path.display()))
    }

    /// Keeps a text; a crash leaves the old one or the new one.
    pub(super) fn keep(&self, id: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(id);
        let beside = path.with_extension("new");
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(self.keyring.seal(&seal_key(id), text).as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Keeps what there is under an id beside it, in place of what was there before; nothing reads it again.
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

/// Whether what was kept is lost, and not only out of reach: reading it again would change nothing.
pub(super) fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|one| one.is::<SealError>() || one.is::<serde_json::Error>())
}

/// Sealed under its name, so that no file can stand for another.
pub(super) fn seal_key(id: &str) -> ResourceKey {
    ResourceKey::new(Kind::Ssls, id)
}
