//! A pull scanner for JSON (RFC 8259) without a tree: it validates the grammar in bounded steps and records
//! the positions of object members.

#[cfg(test)]
mod tests;

mod token;

pub(crate) use token::string_end;
use token::{literal_end, number_end, skip_space};

/// Deepest nesting of arrays and objects, the same as in serde_json.
pub const JSON_DEPTH_MAX: usize = 127;

/// The reason why a scan failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFault {
    /// The text is not JSON.
    Syntax {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// Arrays and objects are nested deeper than [`JSON_DEPTH_MAX`].
    TooDeep,
    /// The document has more values than the scan allows.
    TooManyValues,
}

/// State of a scan after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanProgress {
    /// The document continues.
    More,
    /// The value is complete.
    Done,
}

/// The next token that the grammar allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

/// A member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonMember {
    /// Offset of the opening quote of the name.
    pub(crate) start: u32,
    /// Index of the next member of the same object in document order, and the flag [`JsonMember::ESCAPED`].
    link: u32,
}

impl JsonMember {
    /// Flag in `link`: the name contains an escape.
    const ESCAPED: u32 = 1 << 31;

    /// Whether the name contains an escape.
    pub(crate) fn has_escape(self) -> bool {
        self.link & JsonMember::ESCAPED != 0
    }

    /// Index of the next member of the same object.
    pub(crate) fn next(self) -> Option<usize> {
        let index = self.link & !JsonMember::ESCAPED;
        // 0 marks the end: no member precedes the first one.
        (index != 0).then_some(index as usize)
    }
}

/// A scan of one JSON value that can be interrupted between tokens.
#[derive(Debug)]
pub struct JsonScan {
    at: usize,
    expected: Expected,
    /// Open containers, the innermost in the lowest bit; 1 for objects.
    containers: u128,
    depth: usize,
    values: usize,
    values_max: usize,
    members: Option<Vec<JsonMember>>,
    /// For each open container the index of its last member plus 1; 0 without members.
    last_members: Vec<u32>,
}

impl JsonScan {
    /// A scan from offset `at` that allows `values_max` values inside the value, not counting keys.
    pub fn new(at: usize, values_max: usize) -> JsonScan {
        JsonScan {
            at,
            expected: Expected::Value,
            containers: 0,
            depth: 0,
            values: 0,
            values_max,
            members: None,
            last_members: Vec::new(),
        }
    }

    /// A scan that records at most `members_max` members.
    pub(crate) fn noting_members(members_max: usize) -> JsonScan {
        JsonScan { members: Some(Vec::new()), values_max: members_max, ..JsonScan::new(0, 0) }
    }

    /// Offset after the last token.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Number of values scanned.
    pub(crate) fn values(&self) -> usize {
        self.values
    }

    /// The recorded members in document order.
    pub(crate) fn into_members(self) -> Vec<JsonMember> {
        self.members.unwrap_or_default()
    }

    /// Scans at least `bytes` further to the end of a token, or to the end of the value.
    pub fn advance(&mut self, text: &[u8], bytes: usize) -> Result<ScanProgress, JsonFault> {
        let until = self.at.saturating_add(bytes);
        loop {
            if self.expected == Expected::Nothing {
                return Ok(ScanProgress::Done);
            }
            self.at = skip_space(text, self.at);
            // At the end of the text, `token` reports the missing rest.
            if self.at >= until && self.at < text.len() {
                return Ok(ScanProgress::More);
            }
            self.token(text)?;
        }
    }

    /// Scans the complete value; only white space may follow.
    pub fn whole(&mut self, text: &[u8]) -> Result<(), JsonFault> {
        self.advance(text, text.len())?;
        self.ends(text)
    }

    /// Checks that only white space follows the value.
    pub fn ends(&mut self, text: &[u8]) -> Result<(), JsonFault> {
        self.at = skip_space(text, self.at);
        if self.at == text.len() { Ok(()) } else { Err(self.syntax()) }
    }

    fn syntax(&self) -> JsonFault {
        JsonFault::Syntax { at: self.at }
    }

    #[inline]
    fn token(&mut self, text: &[u8]) -> Result<(), JsonFault> {
        let Some(&byte) = text.get(self.at) else { return Err(self.syntax()) };
        match (self.expected, byte) {
            (Expected::ValueOrEnd, b']') => self.close(),
            (Expected::KeyOrEnd, b'}') => self.close(),
            (Expected::Value | Expected::ValueOrEnd, _) => self.value(text, byte)?,
            (Expected::Key | Expected::KeyOrEnd, b'"') => self.key(text)?,
            (Expected::CommaOrEnd, b',') => self.comma(),
            (Expected::CommaOrEnd, b'}') if self.is_in_object() => self.close(),
            (Expected::CommaOrEnd, b']') if !self.is_in_object() => self.close(),
            _ => return Err(self.syntax()),
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, text: &[u8], first: u8) -> Result<(), JsonFault> {
        // A scan that records members is bounded by their number.
        if self.members.is_none() {
            self.count()?;
        }
        let end = match first {
            b'{' => return self.open(Expected::KeyOrEnd),
            b'[' => return self.open(Expected::ValueOrEnd),
            b'"' => string_end(text, self.at).map(|(end, _)| end),
            b'-' | b'0'..=b'9' => number_end(text, self.at),
            _ => literal_end(text, self.at),
        };
        self.at = end.ok_or(self.syntax())?;
        self.after_value();
        // Fast path: most values are directly followed by a comma.
        if text.get(self.at) == Some(&b',') && self.depth > 0 {
            self.comma();
        }
        Ok(())
    }

    #[inline]
    fn comma(&mut self) {
        self.at += 1;
        self.expected = if self.is_in_object() { Expected::Key } else { Expected::Value };
    }

    fn key(&mut self, text: &[u8]) -> Result<(), JsonFault> {
        let (end, has_escape) = string_end(text, self.at).ok_or(self.syntax())?;
        self.note_member(has_escape)?;
        self.at = skip_space(text, end);
        if text.get(self.at) != Some(&b':') {
            return Err(self.syntax());
        }
        self.at += 1;
        self.expected = Expected::Value;
        Ok(())
    }

    fn note_member(&mut self, has_escape: bool) -> Result<(), JsonFault> {
        let Some(members) = &mut self.members else { return Ok(()) };
        let index = members.len();
        if index == self.values_max {
            return Err(JsonFault::TooManyValues);
        }
        // An entry takes eight bytes, so offsets have 32 bits.
        let Ok(start) = u32::try_from(self.at) else { return Err(JsonFault::TooManyValues) };
        if let Some(last) = self.last_members.last_mut() {
            if let Some(before) = (*last as usize).checked_sub(1).and_then(|at| members.get_mut(at)) {
                before.link |= index as u32;
            }
            // One more than the index: 0 is an object without members.
            *last = index as u32 + 1;
        }
        members.push(JsonMember { start, link: if has_escape { JsonMember::ESCAPED } else { 0 } });
        Ok(())
    }

    fn count(&mut self) -> Result<(), JsonFault> {
        // The outermost value is not one of those inside it, hence `>`.
        if self.values > self.values_max {
            return Err(JsonFault::TooManyValues);
        }
        self.values += 1;
        Ok(())
    }

    fn open(&mut self, expected: Expected) -> Result<(), JsonFault> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(JsonFault::TooDeep);
        }
        // A bit for each level, which suffices for `JSON_DEPTH_MAX`.
        self.containers = self.containers << 1 | u128::from(expected == Expected::KeyOrEnd);
        self.depth += 1;
        if self.members.is_some() {
            self.last_members.push(0);
        }
        self.at += 1;
        self.expected = expected;
        Ok(())
    }

    fn close(&mut self) {
        self.containers >>= 1;
        self.depth -= 1;
        self.last_members.pop();
        self.at += 1;
        self.after_value();
    }

    fn after_value(&mut self) {
        self.expected = if self.depth == 0 { Expected::Nothing } else { Expected::CommaOrEnd };
    }

    fn is_in_object(&self) -> bool {
        self.containers & 1 != 0
    }
}
