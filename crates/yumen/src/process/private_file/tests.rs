use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn write_text(text: &str) -> impl FnOnce(&mut File) -> anyhow::Result<()> {
    move |file| Ok(file.write_all(text.as_bytes())?)
}

#[test]
fn private_file_is_replaced_atomically_with_mode_0600() {
    let directory = std::env::temp_dir().join(format!("yumen-private-file-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (path, link) = (directory.join("export.yaml"), directory.join("link"));
    let found = || {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        (mode, fs::read_to_string(&path).unwrap())
    };
    write(&path, write_text("a")).unwrap();
    assert_eq!(found(), (0o600, "a".to_owned()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    write(&path, write_text("b")).unwrap();
    assert_eq!(found(), (0o600, "b".to_owned()), "one that others could read");
    let failing = |file: &mut File| -> anyhow::Result<()> {
        file.write_all(b"half")?;
        anyhow::bail!("the other half never came")
    };
    assert!(write(&path, failing).is_err());
    assert_eq!(found().1, "b");
    symlink(&path, &link).unwrap();
    write(&link, write_text("c")).unwrap();
    assert_eq!(found(), (0o600, "c".to_owned()));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    write(Path::new("/dev/null"), write_text("d")).unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no draft is left");
    fs::remove_dir_all(&directory).unwrap();
}
