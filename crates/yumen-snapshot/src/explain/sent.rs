//! The fields in which the gateway itself describes the client and its request to an endpoint.

use std::collections::BTreeMap;

use yumen_plugin::{Exchange, forwarding};

use super::text;

/// These fields with their values. Fields of the client count as those of a trusted peer here.
pub(super) fn fields(ex: &Exchange<'_>, host: Option<&str>) -> BTreeMap<String, String> {
    let mut lines = Vec::new();
    forwarding::write(ex, ex.client.ip.to_string().as_bytes(), &mut lines);
    let lines = text(&lines);
    let written = lines.lines().filter_map(|line| line.split_once(": "));
    let own = written.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.chain(host.map(|host| ("Host".to_owned(), host.to_owned()))).collect()
}
