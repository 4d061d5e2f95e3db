//! The fields by which the gateway itself tells an endpoint who asked and how.

use std::collections::BTreeMap;

use yumen_plugin::{Exchange, forwarding};

use super::text;

/// These fields and their values. What a client says of them counts as said by a trusted peer here.
pub(super) fn fields(ex: &Exchange<'_>, host: Option<&str>) -> BTreeMap<String, String> {
    let mut lines = Vec::new();
    forwarding::write(ex, ex.client.ip.to_string().as_bytes(), &mut lines);
    let lines = text(&lines);
    let written = lines.lines().filter_map(|line| line.split_once(": "));
    let own = written.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.chain(host.map(|host| ("Host".to_owned(), host.to_owned()))).collect()
}
