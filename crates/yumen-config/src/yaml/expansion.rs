//! The bound on texts that aliases of YAML repeat.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::duplicate_keys::{expanded_bytes_max, take_bytes};

/// Returns the text if the aliases of its documents repeat no more than a reader may hold. Readers of values that are not
/// [`DuplicateCheckedValue`](crate::duplicate_keys::DuplicateCheckedValue) call it first.
///
/// # Errors
/// The aliases repeat too much. Faults of syntax are left to the reader of the values.
pub fn bounded(text: &str) -> Result<&str, serde_yaml_ng::Error> {
    let mut bytes_left = expanded_bytes_max(text.len());
    // Without aliases a text has no more bytes than it has.
    if !text.contains('*') {
        return Ok(text);
    }
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let counter = ExpansionCounter { bytes_left: &mut bytes_left };
        if let Err(error) = document.deserialize_any(counter) {
            // The reader of documents repeats a fault of syntax without end.
            return if bytes_left == 0 { Err(error) } else { Ok(text) };
        }
    }
    Ok(text)
}

/// Counts the bytes of names and texts of a value, and keeps none.
struct ExpansionCounter<'b> {
    bytes_left: &'b mut usize,
}

impl ExpansionCounter<'_> {
    fn inner(&mut self) -> ExpansionCounter<'_> {
        ExpansionCounter { bytes_left: self.bytes_left }
    }
}

impl<'de> DeserializeSeed<'de> for ExpansionCounter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ExpansionCounter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(self.inner())?.is_some() {
            map.next_value_seed(self.inner())?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.inner())?.is_some() {}
        Ok(())
    }

    /// A value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(mut self, data: A) -> Result<(), A::Error> {
        let ((), value) = data.variant_seed(self.inner())?;
        value.newtype_variant_seed(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        take_bytes(self.bytes_left, text.len())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
