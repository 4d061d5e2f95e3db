//! Lines and columns of the values in a YAML or JSON text, by path.
//!
//! Serde's readers keep no positions. This index is built only once there is a problem to show. It is best effort: a
//! text that the scanner refuses is indexed up to that point.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, Span};
use yumen_base::LineSpan;

/// Deeper values have no positions; the readers of documents allow 128 levels.
const LEVELS_MAX: usize = 200;

/// Positions of all values of a text.
#[derive(Debug, Default)]
pub struct TextSpans {
    root: Option<SpannedValue>,
    /// Values with an anchor, for aliases and merge keys.
    anchors: HashMap<usize, SpannedValue>,
}

/// A value with its position.
#[derive(Debug, Clone)]
pub struct SpannedValue {
    span: LineSpan,
    content: SpannedContent,
}

#[derive(Debug, Clone)]
enum SpannedContent {
    Scalar(String),
    /// The number of the anchor.
    Alias(usize),
    Items(Vec<SpannedValue>),
    Members(Vec<SpannedMember>),
}

#[derive(Debug, Clone)]
struct SpannedMember {
    name: String,
    key: LineSpan,
    value: SpannedValue,
}

/// The part of a text that a path leads to.
#[derive(Debug, Clone, Copy)]
pub struct FoundSpan<'t> {
    /// The value, or the deepest existing one on the way.
    pub value: &'t SpannedValue,
    /// Its key, unless the value is an item or the whole text.
    pub key: Option<LineSpan>,
    /// Whether the whole path exists.
    pub is_exact: bool,
}

impl TextSpans {
    /// Indexes a text. The parser of YAML reads JSON as well.
    pub fn of(text: &str) -> TextSpans {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // JSON may be indented by tabs, which YAML refuses; columns count characters, so they stay.
        let spaced;
        let text = if text.trim_start().starts_with('{') {
            spaced = text.replace('\t', " ");
            &spaced
        } else {
            text
        };
        let mut builder = SpanTreeBuilder::default();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            if !builder.take(event, span) {
                break;
            }
        }
        builder.finish()
    }

    /// The value that contains all others.
    pub fn root(&self) -> Option<&SpannedValue> {
        self.root.as_ref()
    }

    /// Follows a dotted path such as `plugins.limit-count.rules[0]` from `start`. A member name may contain dots; the
    /// longest name that fits counts, and the last of several members of one name.
    pub fn find<'t>(&'t self, start: &'t SpannedValue, path: &str) -> FoundSpan<'t> {
        let mut found = FoundSpan { value: start, key: None, is_exact: true };
        let mut rest = path;
        while !rest.is_empty() {
            let Some((next, after)) = self.step(found.value, rest) else {
                return FoundSpan { is_exact: false, ..found };
            };
            (found, rest) = (next, after);
        }
        found
    }

    fn step<'t, 'p>(&'t self, from: &'t SpannedValue, path: &'p str) -> Option<(FoundSpan<'t>, &'p str)> {
        match &self.resolved(from)?.content {
            SpannedContent::Items(items) => {
                let (index, after) = path.strip_prefix('[')?.split_once(']')?;
                let value = items.get(index.parse::<usize>().ok()?)?;
                Some((FoundSpan { value, key: None, is_exact: true }, after))
            }
            SpannedContent::Members(members) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                // Of equal lengths `max_by_key` returns the last, which is the one that readers keep.
                let named = members.iter().filter(|member| rest_after(path, &member.name).is_some());
                let member = named.max_by_key(|member| member.name.len());
                if let Some(SpannedMember { name, key, value }) = member {
                    let found = FoundSpan { value, key: Some(*key), is_exact: true };
                    return Some((found, rest_after(path, name)?));
                }
                let merged = members.iter().filter(|member| member.name == "<<");
                merged.flat_map(|member| self.sources(&member.value)).find_map(|one| self.step(one, path))
            }
            SpannedContent::Scalar(_) | SpannedContent::Alias(_) => None,
        }
    }

    /// The mappings of a merge key: one, or a list.
    fn sources<'t>(&'t self, value: &'t SpannedValue) -> Vec<&'t SpannedValue> {
        match &value.content {
            SpannedContent::Items(items) => items.iter().collect(),
            _ => vec![value],
        }
    }

    /// The value behind an alias. An anchor cannot be an alias itself.
    fn resolved<'t>(&'t self, value: &'t SpannedValue) -> Option<&'t SpannedValue> {
        match value.content {
            SpannedContent::Alias(anchor) => self.anchors.get(&anchor),
            _ => Some(value),
        }
    }
}

/// The rest of a path behind a member name.
fn rest_after<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

impl SpannedValue {
    /// Position of the value; of a mapping or list, that of its first character.
    pub fn span(&self) -> LineSpan {
        self.span
    }

    /// The text of a scalar.
    pub fn scalar(&self) -> Option<&str> {
        match &self.content {
            SpannedContent::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> &[SpannedValue] {
        match &self.content {
            SpannedContent::Items(items) => items,
            _ => &[],
        }
    }

    /// Names, keys and values of an object, in order.
    pub fn members(&self) -> impl Iterator<Item = (&str, LineSpan, &SpannedValue)> {
        let members = match &self.content {
            SpannedContent::Members(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().map(|one| (&*one.name, one.key, &one.value))
    }
}

/// A container whose end has not been read.
enum OpenValue {
    Items { span: LineSpan, anchor: usize, items: Vec<SpannedValue> },
    Members { span: LineSpan, anchor: usize, members: Vec<SpannedMember>, key: Option<(String, LineSpan)> },
}

#[derive(Default)]
struct SpanTreeBuilder {
    open: Vec<OpenValue>,
    spans: TextSpans,
}

impl SpanTreeBuilder {
    /// Adds an event; `false` if the rest of the text is not of interest.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let at = line_span(span);
        match event {
            Event::Scalar(text, _, anchor, _) => self
                .add(SpannedValue { span: at, content: SpannedContent::Scalar(text.into_owned()) }, anchor),
            Event::Alias(anchor) => {
                self.add(SpannedValue { span: at, content: SpannedContent::Alias(anchor) }, 0)
            }
            Event::SequenceStart(anchor, _) => {
                self.open.push(OpenValue::Items { span: first_character(at), anchor, items: Vec::new() })
            }
            Event::MappingStart(anchor, _) => self.open.push(OpenValue::Members {
                span: first_character(at),
                anchor,
                members: Vec::new(),
                key: None,
            }),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            // A document has one part; further ones are an error of the reader.
            Event::DocumentEnd => return false,
            _ => {}
        }
        self.open.len() < LEVELS_MAX
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(OpenValue::Items { span, anchor, items }) => {
                self.add(SpannedValue { span, content: SpannedContent::Items(items) }, anchor)
            }
            Some(OpenValue::Members { span, anchor, mut members, key }) => {
                // The text ended behind a key.
                members.extend(key.map(|(name, key)| SpannedMember {
                    name,
                    key,
                    value: SpannedValue { span: key, content: SpannedContent::Scalar(String::new()) },
                }));
                self.add(SpannedValue { span, content: SpannedContent::Members(members) }, anchor)
            }
            None => {}
        }
    }

    fn add(&mut self, value: SpannedValue, anchor: usize) {
        // The scanner numbers anchors from 1.
        if anchor > 0 {
            self.spans.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            Some(OpenValue::Items { items, .. }) => items.push(value),
            Some(OpenValue::Members { members, key, .. }) => match key.take() {
                Some((name, key)) => members.push(SpannedMember { name, key, value }),
                None => {
                    let name = value.scalar().unwrap_or_default().to_owned();
                    *key = Some((name, value.span));
                }
            },
            None => self.spans.root = Some(value),
        }
    }

    fn finish(mut self) -> TextSpans {
        while !self.open.is_empty() {
            self.close();
        }
        self.spans
    }
}

fn line_span(span: Span) -> LineSpan {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let Span { start, end } = span;
    let is_one_line = |start: &Marker, end: &Marker| start.line() == end.line();
    let width = match is_one_line(&start, &end) {
        true => number(end.col().saturating_sub(start.col()).max(1)),
        // To the end of its first line.
        false => u32::MAX,
    };
    LineSpan { line: number(start.line()), column: number(start.col() + 1), width }
}

fn first_character(span: LineSpan) -> LineSpan {
    LineSpan { width: 1, ..span }
}

#[cfg(test)]
mod tests;
