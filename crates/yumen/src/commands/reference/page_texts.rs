//! Texts of the reference pages in Chinese. The catalog has the format of gettext: `msgid` is the text in the code,
//! `msgstr` its translation. A text is in the catalog once, however many settings have it.

use std::collections::BTreeMap;

/// Text of a page in its language, by the English text. Placeholders in braces remain.
pub(super) type Translate<'a> = &'a dyn Fn(&str) -> String;

/// Translations by English text.
pub(super) struct TranslationCatalog {
    texts: BTreeMap<String, String>,
}

impl TranslationCatalog {
    pub(super) fn chinese() -> Self {
        Self::parse(include_str!("zh.po")).expect("the tests parse the catalog")
    }

    /// Parses `msgid`, `msgstr` and their continuation lines; comments and the header are left out.
    ///
    /// # Errors
    ///
    /// The number of a line that is none of these, or of a text that has a translation already or lacks one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<CatalogEntry> = Vec::new();
        let mut is_original = false;
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (keyword, quoted) =
                line.split_at(line.find('"').ok_or_else(|| format!("line {number}: no text"))?);
            let part: String =
                serde_json::from_str(quoted).map_err(|error| format!("line {number}: {error}"))?;
            match (keyword, entries.last_mut()) {
                ("msgid ", _) => {
                    entries.push(CatalogEntry { number, original: part, translated: None });
                    is_original = true;
                }
                ("msgstr ", Some(entry)) if is_original => {
                    entry.translated = Some(part);
                    is_original = false;
                }
                ("", Some(entry)) => match entry.translated.as_mut() {
                    Some(translated) => translated.push_str(&part),
                    None => entry.original.push_str(&part),
                },
                _ => return Err(format!("line {number}: neither msgid nor msgstr nor their continuation")),
            }
        }
        let mut texts = BTreeMap::new();
        // The header has no original.
        for entry in entries.into_iter().filter(|entry| !entry.original.is_empty()) {
            let translated = entry.translated.filter(|text| !text.is_empty());
            let translated = translated.ok_or_else(|| format!("line {}: no translation", entry.number))?;
            if texts.insert(entry.original, translated).is_some() {
                return Err(format!("line {}: the second translation of this text", entry.number));
            }
        }
        Ok(Self { texts })
    }

    pub(super) fn get(&self, text: &str) -> Option<&str> {
        self.texts.get(text).map(String::as_str)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(original, translated)| (original.as_str(), translated.as_str()))
    }
}

/// One text of the catalog, at the line of its original.
struct CatalogEntry {
    number: usize,
    original: String,
    translated: Option<String>,
}

/// Appends a sentence, with a space unless a full stop of Chinese precedes it.
pub(super) fn push_sentence(text: &mut String, sentence: &str) {
    if !(text.is_empty() || sentence.is_empty() || text.ends_with('。')) {
        text.push(' ');
    }
    text.push_str(sentence);
}
