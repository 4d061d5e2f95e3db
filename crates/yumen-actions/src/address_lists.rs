//! Address lists: clients that are admitted or refused by address.

use yumen_base::IpSet;
use yumen_config::InvalidSettings;
use yumen_config::resource::AccessSpec;
use yumen_plugin::Exchange;

/// Compiled address lists.
#[derive(Debug)]
pub(crate) struct AddressLists {
    /// `None` admits every address.
    allow: Option<IpSet>,
    deny: IpSet,
}

impl AddressLists {
    /// The lists; `None` if none is written.
    pub(crate) fn build(written: &AccessSpec) -> Result<Option<AddressLists>, InvalidSettings> {
        if written.allow.is_none() && written.deny.is_none() {
            return Ok(None);
        }
        let set = |list: &[String], member: &str| {
            IpSet::parse(list.iter().map(String::as_str))
                .map_err(|_| InvalidSettings::at(member, "an entry is neither an address nor a network"))
        };
        Ok(Some(AddressLists {
            allow: written.allow.as_deref().map(|list| set(list, "allow")).transpose()?,
            deny: set(written.deny.as_deref().unwrap_or_default(), "deny")?,
        }))
    }

    /// Whether the client of an exchange is admitted.
    pub(crate) fn admit(&self, ex: &Exchange<'_>) -> bool {
        !self.deny.contains(ex.client.ip)
            && self.allow.as_ref().is_none_or(|allow| allow.contains(ex.client.ip))
    }
}
