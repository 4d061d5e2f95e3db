//! Generates a commented `yumen.yaml` with every default from the types, so that the reference cannot drift.

use std::fmt::Write;

use serde_json::Value;

use super::NodeConfig;
use crate::schema;

const WIDTH: usize = 100;

/// The whole file: every field with its description, default and allowed values. `translate` is given each text,
/// with placeholders in braces, and returns it in the language of the file.
pub fn reference(translate: &dyn Fn(&str) -> String) -> String {
    let schema = schema::of::<NodeConfig>();
    let defaults = serde_json::to_value(NodeConfig::default()).unwrap_or_default();
    let title = translate("yumen.yaml: every setting of a node with its default.");
    let mut page = ReferencePage { translate, out: format!("# {title}\n") };
    page.add_section(&schema, &defaults, 0);
    page.out
}

struct ReferencePage<'a> {
    translate: &'a dyn Fn(&str) -> String,
    out: String,
}

impl ReferencePage<'_> {
    fn add_section(&mut self, schema: &Value, defaults: &Value, indent: usize) {
        let (Some(properties), Some(members)) = (schema["properties"].as_object(), defaults.as_object())
        else {
            return;
        };
        for (name, property) in properties {
            if indent == 0 {
                self.out.push('\n');
            }
            self.add_comment(property, indent);
            let pad = " ".repeat(indent);
            match members.get(name) {
                Some(inner @ Value::Object(_)) => {
                    self.add_line(format_args!("{pad}{name}:"));
                    self.add_section(property, inner, indent + 2);
                }
                Some(Value::Array(items)) if items.iter().any(Value::is_object) => {
                    self.add_line(format_args!("{pad}{name}:"));
                    items.iter().for_each(|item| self.add_list_item(&property["items"], item, indent + 2));
                }
                Some(value) => self.add_line(format_args!("{pad}{name}: {value}")),
                None => {}
            }
        }
    }

    /// An object in a list. The dash has a line of its own, so that the first field can have a comment above it
    /// too.
    fn add_list_item(&mut self, schema: &Value, item: &Value, indent: usize) {
        self.add_line(format_args!("{}-", " ".repeat(indent)));
        self.add_section(schema, item, indent + 2);
    }

    fn add_line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{text}").expect("writing to a String cannot fail");
    }

    fn add_comment(&mut self, property: &Value, indent: usize) {
        // Doc comments have the line breaks of the source; the reference has its own width.
        let description = property["description"].as_str().unwrap_or("").replace('\n', " ");
        let mut text = if description.is_empty() { description } else { (self.translate)(&description) };
        let allowed = self.allowed(property);
        if !allowed.is_empty() {
            text = (self.translate)("{meaning} ({allowed})")
                .replace("{allowed}", &allowed)
                .replace("{meaning}", &text);
        }
        let pad = " ".repeat(indent);
        let mut current = String::new();
        for part in comment_parts(&text) {
            let separator = if part.follows_space && !current.is_empty() { " " } else { "" };
            let columns = indent + 2 + columns_of(&current) + separator.len() + columns_of(part.text);
            if columns > WIDTH && !current.is_empty() {
                self.add_line(format_args!("{pad}# {current}"));
                current.clear();
            } else {
                current.push_str(separator);
            }
            current.push_str(part.text);
        }
        if !current.is_empty() {
            self.add_line(format_args!("{pad}# {current}"));
        }
    }

    fn allowed(&self, property: &Value) -> String {
        if let Some(values) = property["enum"].as_array() {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            return values.join(" | ");
        }
        // Almost every count has the minimum 0, which needs no mention.
        let min = property.get("minimum").filter(|min| **min != 0 || property.get("maximum").is_some());
        let text = match (min, property.get("maximum")) {
            (Some(_), Some(_)) => "{min} to {max}",
            (Some(_), None) => "from {min}",
            (None, Some(_)) => "up to {max}",
            (None, None) => return String::new(),
        };
        (self.translate)(text)
            .replace("{min}", &property["minimum"].to_string())
            .replace("{max}", &property["maximum"].to_string())
    }
}

/// A part of a text that stays on one line.
struct CommentPart<'a> {
    text: &'a str,
    follows_space: bool,
}

fn comment_parts(text: &str) -> Vec<CommentPart<'_>> {
    let mut parts = Vec::new();
    for word in text.split_whitespace() {
        let (mut start, mut follows_space) = (0, true);
        let mut letters = word.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            let end = at + letter.len_utf8();
            if letters.peek().is_none_or(|(_, next)| may_break(letter, *next)) {
                parts.push(CommentPart { text: &word[start..end], follows_space });
                (start, follows_space) = (end, false);
            }
        }
    }
    parts
}

/// Chinese text breaks between any two characters, but not before a closing mark or after an opening one.
fn may_break(left: char, right: char) -> bool {
    (is_wide(left) || is_wide(right)) && !"，。；：、）".contains(right) && left != '（'
}

/// Whether a terminal shows a character in two columns.
fn is_wide(letter: char) -> bool {
    letter >= '\u{2e80}'
}

fn columns_of(text: &str) -> usize {
    text.chars().map(|letter| if is_wide(letter) { 2 } else { 1 }).sum()
}
