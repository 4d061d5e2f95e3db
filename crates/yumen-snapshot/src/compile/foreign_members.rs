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
    members.into_iter().filter(|(_, is_written)| *is_written).map(move |(member, _)| {
        let message = format!(
            "APISIX refuses `{member}` here: a node of APISIX that shares the store does not load the object"
        );
        Problem::warning(name.to_string(), member, message).hint("remove it")
    })
}

#[cfg(test)]
mod tests;
