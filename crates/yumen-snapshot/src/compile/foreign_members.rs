//! Members that this gateway accepts although APISIX refuses them: an APISIX node that shares the store would not
//! load the object.
//!
//! Members that extend APISIX on purpose, such as `ssl_ciphers`, are not among them.

use yumen_base::Problem;

use super::names::ObjectName;

/// One warning per written member.
pub(super) fn warnings<'m>(
    name: &'m ObjectName,
    members: impl IntoIterator<Item = (&'static str, bool)> + 'm,
) -> impl Iterator<Item = Problem> + 'm {
    // The store of objects that were translated from others is not shared.
    let is_translated = name.id.contains('!');
    members.into_iter().filter(move |(_, is_written)| *is_written && !is_translated).map(move |(member, _)| {
        let message = format!(
            "APISIX refuses `{member}` here: a node of APISIX that shares the store does not load the object"
        );
        Problem::warning(name.to_string(), member, message).hint("remove it")
    })
}

#[cfg(test)]
mod tests;
