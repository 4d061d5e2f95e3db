//! Compresses the files under `assets`, and names their release by a digest of all of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Replaced in `index.html`, so that all modules, which import each other by relative paths, are below the release.
const RELEASE_MARK: &str = "@RELEASE@";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=assets");
    let mut files = BTreeMap::new();
    read_files(Path::new("assets"), "", &mut files)?;
    let release = digest(&files);
    let mut table = format!("/// The digest of all files.\npub const RELEASE: &str = \"{release}\";\n");
    table.push_str("static ASSETS: &[(&str, UiAsset)] = &[\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    for (at, (path, content)) in files.iter().enumerate() {
        let content = match path.as_str() {
            "index.html" => String::from_utf8_lossy(content).replace(RELEASE_MARK, &release).into_bytes(),
            _ if path.ends_with(".js") && !path.starts_with("vendor/") => {
                without_comments(&String::from_utf8_lossy(content)).into_bytes()
            }
            _ => content.clone(),
        };
        let compressed = format!("{out}/{at}.gz");
        fs::write(&compressed, gzip(&content)?)?;
        let (content_type, etag) = (content_type(path)?, digest(&content));
        writeln!(
            table,
            "({path:?}, UiAsset {{ content_type: {content_type:?}, gzip: include_bytes!({compressed:?}), \
             etag: \"\\\"{etag}\\\"\" }}),"
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    fs::write(format!("{out}/assets.rs"), table)
}

fn read_files(folder: &Path, prefix: &str, out: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => read_files(&entry.path(), &format!("{name}/"), out)?,
            // Types of the vendored modules are for `tsc`, licences for readers of the repository.
            false if name.ends_with(".d.ts") || name.ends_with(".md") || name.ends_with(".json") => {}
            false => drop(out.insert(name, fs::read(entry.path())?)),
        }
    }
    Ok(())
}

/// A module without its comments and indentation, which are a third of its size. The modules keep `/**` and lines that
/// begin with `//` for comments.
fn without_comments(module: &str) -> String {
    let mut code = String::new();
    let mut rest = module;
    while let Some((before, comment)) = rest.split_once("/**") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let lines = code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn digest(content: &impl Hash) -> String {
    // Distinguishes releases of one source; nothing depends on its strength.
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

fn content_type(path: &str) -> io::Result<&'static str> {
    match path.rsplit('.').next() {
        Some("html") => Ok("text/html; charset=utf-8"),
        Some("js") => Ok("text/javascript; charset=utf-8"),
        Some("css") => Ok("text/css; charset=utf-8"),
        Some("svg") => Ok("image/svg+xml"),
        Some("txt") => Ok("text/plain; charset=utf-8"),
        _ => Err(io::Error::other(format!("assets/{path}: no content type is known"))),
    }
}
