//! Inserts the defaults of a schema into the text of a JSON body.
//!
//! The rest of the text remains as received, because serializing a tree would change numbers such as `3.00`
//! or one with thirty digits.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Inserts the members that only the tree has; `None` if an object of the text has duplicate names.
///
/// `tree` is the parsed `text` with the defaults of the schema added.
pub(super) fn completed(text: &[u8], tree: &Value) -> Option<Vec<u8>> {
    let mut splice = TextSplice { text, at: 0, copied: 0, out: Vec::with_capacity(text.len()) };
    splice.value(Some(tree))?;
    splice.out.extend_from_slice(&text[splice.copied..]);
    Some(splice.out)
}

struct TextSplice<'t> {
    text: &'t [u8],
    at: usize,
    /// Offset up to which the text has been copied to `out`.
    copied: usize,
    out: Vec<u8>,
}

impl TextSplice<'_> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Skips a value; `tree` is the same value with defaults. The parser has bounded the nesting.
    fn value(&mut self, tree: Option<&Value>) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(tree),
            b'[' => self.array(tree),
            b'"' => self.string().map(drop),
            _ => {
                let is_end = |byte: &u8| b",]} \t\n\r".contains(byte);
                let rest = &self.text[self.at..];
                self.at += rest.iter().position(is_end).unwrap_or(rest.len());
                Some(())
            }
        }
    }

    fn object(&mut self, tree: Option<&Value>) -> Option<()> {
        let members = tree.and_then(Value::as_object);
        let mut names = HashSet::new();
        self.at += 1;
        while self.peek()? != b'}' {
            let name: String = serde_json::from_slice(self.string()?).ok()?;
            // Skips the colon.
            self.peek()?;
            self.at += 1;
            self.value(members.and_then(|members| members.get(&name)))?;
            if !names.insert(name) {
                return None;
            }
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        if let Some(members) = members {
            self.add(members, &names)?;
        }
        self.at += 1;
        Some(())
    }

    /// Inserts the missing members before the closing brace of their object.
    fn add(&mut self, members: &Map<String, Value>, names: &HashSet<String>) -> Option<()> {
        let mut is_first = names.is_empty();
        for (name, value) in members.iter().filter(|(name, _)| !names.contains(*name)) {
            self.out.extend_from_slice(&self.text[self.copied..self.at]);
            self.copied = self.at;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            serde_json::to_writer(&mut self.out, name).ok()?;
            self.out.push(b':');
            serde_json::to_writer(&mut self.out, value).ok()?;
        }
        Some(())
    }

    fn array(&mut self, tree: Option<&Value>) -> Option<()> {
        let (start, items) = (self.at, tree.and_then(Value::as_array));
        let mut index = 0;
        self.at += 1;
        while self.peek()? != b']' {
            self.value(items.and_then(|items| items.get(index)))?;
            index += 1;
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        // Lua has no distinct empty array: APISIX accepts `[]` for an object, which then gets the defaults.
        if let Some(tree) = tree.filter(|tree| tree.as_object().is_some_and(|members| !members.is_empty())) {
            self.out.extend_from_slice(&self.text[self.copied..start]);
            self.copied = self.at;
            serde_json::to_writer(&mut self.out, tree).ok()?;
        }
        Some(())
    }

    /// Skips a string and returns it with its quotes.
    fn string(&mut self) -> Option<&[u8]> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(start..self.at)
    }
}
