//! Defaults of a schema, written into the text of a JSON body.
//!
//! The rest of the text stays as it was received: a number such as `3.00` or one of thirty digits is not what a tree
//! would write.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The text with the members that only the tree has; `None` where an object of the text holds a name twice.
///
/// `text` is JSON that was parsed into the tree, which has been completed since.
pub(super) fn completed(text: &[u8], tree: &Value) -> Option<Vec<u8>> {
    let mut splice = TextSplice { text, at: 0, copied: 0, out: Vec::with_capacity(text.len()) };
    splice.value(Some(tree))?;
    splice.out.extend_from_slice(&text[splice.copied..]);
    Some(splice.out)
}

struct TextSplice<'t> {
    text: &'t [u8],
    at: usize,
    /// The offset up to which the text has been written.
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

    /// Passes over a value; `tree` is the same value, completed. Nesting was bounded by the parser.
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
            // The colon.
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

    /// Writes members that the text does not have, before the brace that ends their object.
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
        // An empty array may stand for an object, which defaults then fill.
        if let Some(tree) = tree.filter(|tree| tree.as_object().is_some_and(|members| !members.is_empty())) {
            self.out.extend_from_slice(&self.text[self.copied..start]);
            self.copied = self.at;
            serde_json::to_writer(&mut self.out, tree).ok()?;
        }
        Some(())
    }

    /// Passes over a string; returns it with its quotes.
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
