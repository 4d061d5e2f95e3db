//! Conversion of schemas to tables, and the completeness of the Chinese texts.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::json;

use super::page_texts::TranslationCatalog;
use super::plugin_examples::{EXAMPLES, example_of};
use super::plugin_page::{self, SettingsTable};

#[test]
fn every_plugin_has_an_example_that_uses_it() {
    assert!(EXAMPLES.is_sorted_by_key(|(name, _)| *name));
    let without: Vec<&str> = yumen_plugins::BUILTIN
        .iter()
        .map(|kind| kind.name)
        .filter(|name| example_of(name).is_none())
        .collect();
    assert!(
        without.is_empty(),
        "add a file for each of {without:?} to plugin_examples, and its line to the list"
    );
    for (name, example) in EXAMPLES {
        assert!(yumen_plugins::BUILTIN.iter().any(|kind| kind.name == *name), "{name}");
        assert!(example.contains(&format!("{name}:")) || example.contains(&format!("id: {name}")), "{name}");
        assert_eq!(example_of(name), Some(*example));
    }
}

#[test]
fn dependent_settings_appear_once_and_numbers_are_listed() {
    let host = json!({"type": "string", "description": "A host."});
    let schema = json!({
        "properties": {
            "policy": {"enum": ["near", "far"], "default": "near", "description": "Where."},
            "level": {"enum": [1, 2.5]},
        },
        "if": {"properties": {"policy": {"enum": ["far"]}}},
        "then": {"properties": {"host": host, "port": {"type": "integer"}}, "required": ["host"]},
        "else": {"if": {"properties": {"policy": {"enum": ["farther"]}}}, "then": {"properties": {"host": host}}},
        "dependencies": {"level": {"oneOf": [{"properties": {"level": {"enum": [1]}, "one": {"type": "boolean"}}}]}},
    });
    let mut out = String::new();
    SettingsTable { translate: &str::to_owned, out: &mut out }.add_schema(&schema);
    let rows: Vec<&str> = out.lines().skip(2).collect();
    assert_eq!(
        rows,
        [
            "| `policy` | `near`, `far` | `\"near\"` | Where. |",
            "| `level` | `1`, `2.5` |  |  |",
            "| `host` | string | required | A host. Only with `policy` `far`, `farther`. |",
            "| `port` | integer |  | Only with `policy` `far`. |",
            "| `one` | boolean |  | Only with `level` `1`. |",
        ]
    );
}

/// Texts that the pages with a Chinese version ask for, in their order.
fn texts_of_pages() -> Vec<String> {
    let texts: RefCell<Vec<String>> = RefCell::default();
    let record = |text: &str| {
        let mut texts = texts.borrow_mut();
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
        text.to_owned()
    };
    plugin_page::render(&record);
    super::metrics(&record);
    yumen_config::node::reference(&record);
    texts.into_inner()
}

fn entry(original: &str, translated: &str) -> String {
    format!("msgid {}\nmsgstr {}\n", json!(original), json!(translated))
}

#[test]
fn every_text_has_a_chinese_translation_and_no_translation_is_stale() {
    let catalog = TranslationCatalog::chinese();
    let texts = texts_of_pages();
    let missing: Vec<String> = texts
        .iter()
        .filter(|text| !text.is_empty() && catalog.get(text).is_none())
        .map(|text| entry(text, ""))
        .collect();
    let used: BTreeSet<&str> = texts.iter().map(String::as_str).collect();
    let stale: Vec<String> = catalog
        .iter()
        .filter(|(original, _)| !used.contains(original))
        .map(|(original, translated)| entry(original, translated))
        .collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "crates/yumen/src/commands/reference/zh.po: add these entries with a translation (beside a stale one \
         with almost the same text, if there is one), then run make docs:\n\n{}\nremove these:\n\n{}",
        missing.join("\n"),
        stale.join("\n")
    );
}

/// Sorted parts of a text that a translation keeps: code, links, placeholders and numbers.
fn kept_parts(text: &str) -> BTreeSet<String> {
    let code = text.split('`').skip(1).step_by(2).map(str::to_owned);
    let prose: String = text.split('`').step_by(2).collect();
    // Titles of sections are translated too.
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()).map(str::to_owned);
    let placeholders = prose.split('{').skip(1).filter_map(|rest| rest.split('}').next()).map(str::to_owned);
    let numbers = prose.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
    code.chain(links).chain(placeholders).chain(numbers.map(str::to_owned)).collect()
}

#[test]
fn translations_keep_code_numbers_and_links() {
    for (original, translated) in TranslationCatalog::chinese().iter() {
        assert_eq!(kept_parts(translated), kept_parts(original), "{original}\n{translated}");
        assert_eq!(translated.ends_with('。'), original.ends_with('.'), "{original}\n{translated}");
    }
    assert_ne!(kept_parts("At most 5 `a`."), kept_parts("最多 5。"));
    assert_ne!(kept_parts("At most 5."), kept_parts("最多 6。"));
}

/// Whether a character is a Chinese one, apart from punctuation.
fn is_chinese(letter: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&letter)
}

/// A place where Chinese and other letters meet without a space, or Chinese has the punctuation of English.
fn typography_fault(text: &str) -> Option<String> {
    let mut parts = text.split("](");
    let mut letters: Vec<char> = parts.next().unwrap_or_default().chars().collect();
    // Targets of links are no prose.
    parts.for_each(|part| letters.extend(part.split_once(')').map_or("", |(_, rest)| rest).chars()));
    let is_latin = |letter: char| letter.is_ascii_alphanumeric() || letter == '`';
    let is_fault = |left: char, right: char| {
        (is_chinese(left) && (is_latin(right) || ",;:.!?()".contains(right)))
            || (is_chinese(right) && (is_latin(left) || ",;:!?)".contains(left)))
    };
    letters.windows(2).find(|pair| is_fault(pair[0], pair[1])).map(String::from_iter)
}

#[test]
fn translations_have_chinese_typography() {
    for (original, translated) in TranslationCatalog::chinese().iter() {
        assert_eq!(typography_fault(translated), None, "{original}\n{translated}");
    }
    assert_eq!(typography_fault("参见[指南](a.md#甲)。"), None);
    assert_eq!(typography_fault("最多5"), Some("多5".to_owned()));
    assert_eq!(typography_fault("最多,"), Some("多,".to_owned()));
}

#[test]
fn catalogs_have_each_text_once_and_translated() {
    let check = |text: &str, expected: Result<usize, &str>| {
        let parsed = TranslationCatalog::parse(text).map(|catalog| catalog.iter().count());
        match (parsed, expected) {
            (Ok(count), Ok(wanted)) => assert_eq!(count, wanted, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (parsed, _) => panic!("{text}: {parsed:?}"),
        }
    };
    check(
        "msgid \"\"\nmsgstr \"Language: zh_CN\\n\"\n\n# key-auth\nmsgid \"a \"\n\"b\"\nmsgstr \"甲\"\n\"乙\"\n",
        Ok(1),
    );
    check("msgid \"a\"\nmsgstr \"\"\n", Err("line 1: no translation"));
    check("msgid \"a\"\n", Err("line 1: no translation"));
    check("msgid \"a\"\nmsgstr \"甲\"\nmsgid \"a\"\nmsgstr \"乙\"\n", Err("line 3: the second"));
    check("msgstr \"甲\"\n", Err("line 1: neither"));
    check("msgid \"a\"\nmsgstr \"甲\"\nmsgstr \"乙\"\n", Err("line 3: neither"));
    check("msgid a\n", Err("line 1: no text"));
    check("msgid \"a\nb\"\n", Err("line 1"));
}
