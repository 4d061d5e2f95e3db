//! Places of problems in the text of a document.
//!
//! Reads the text a second time, so it runs only where there are problems.

use std::collections::HashMap;
use std::sync::Arc;

use yumen_base::{FilePlace, LineSpan, Problem};

use super::collect::ItemSource;
use super::variable_marks::next_variable;
use super::{DocumentUse, Lookup};
use crate::resource::Kind;
use crate::schema::IN_QUOTES;
use crate::text_spans::{FoundSpan, SpannedValue, TextSpans};

/// The items of a document and their positions in its text.
#[derive(Debug)]
pub struct DocumentPlaces {
    file: Arc<str>,
    spans: TextSpans,
    /// The list and the position of each object, by its name in problems.
    items: HashMap<String, ItemSource>,
    /// Whether a quoted variable becomes a number or a boolean if it reads as one.
    types_variables: bool,
}

impl DocumentPlaces {
    /// Indexes the document of a node, as [`parse`](super::parse) reads it. `file` is the name for places.
    pub fn of(file: &str, text: &str, lookup: Lookup<'_>) -> DocumentPlaces {
        DocumentPlaces::read(file, text, DocumentUse::Active(lookup))
    }

    /// Indexes a document as [`parse_literally`](super::parse_literally) reads it.
    pub fn of_submitted(file: &str, text: &str) -> DocumentPlaces {
        DocumentPlaces::read(file, text, DocumentUse::Submitted)
    }

    fn read(file: &str, text: &str, meant: DocumentUse<'_>) -> DocumentPlaces {
        let items = super::sources(text, meant);
        let types_variables = matches!(meant, DocumentUse::Active(_))
            && super::is_json(text.strip_prefix('\u{feff}').unwrap_or(text));
        DocumentPlaces { file: file.into(), spans: TextSpans::of(text), items, types_variables }
    }

    /// Adds the place to each problem of an object in the text.
    pub fn locate<'p>(&self, problems: impl IntoIterator<Item = &'p mut Problem>) {
        for problem in problems {
            match &mut problem.place {
                // A fault of syntax has its place, in a text without a name.
                Some(place) => place.file = self.file.clone(),
                None => self.add_place(problem),
            }
        }
    }

    fn add_place(&self, problem: &mut Problem) {
        let Some(found) = self.find(problem) else { return };
        problem.place = Some(FilePlace { file: self.file.clone(), span: shown(&found, problem) });
        let written = found.value.scalar().filter(|_| self.types_variables && found.is_exact);
        if let Some(remedy) = written.and_then(|written| remedy_of_typed_variable(written, &problem.path)) {
            let notations = [&mut problem.hint, &mut problem.allowed].into_iter().flatten();
            // The text is in quotes, but its value has become a number.
            notations
                .filter(|notation| *notation == IN_QUOTES)
                .for_each(|notation| *notation = remedy.clone());
        }
    }

    /// The part of the text that a problem is about.
    fn find(&self, problem: &Problem) -> Option<FoundSpan<'_>> {
        let root = self.spans.root()?;
        let (item, path) = match problem.object.as_str() {
            "file" if problem.path.is_empty() => return None,
            "file" => (root, problem.path.as_str()),
            object => (self.item(root, object)?, problem.path.as_str()),
        };
        Some(self.spans.find(item, path))
    }

    fn item<'t>(&self, root: &'t SpannedValue, object: &str) -> Option<&'t SpannedValue> {
        let ItemSource { list, position } = self.items.get(object).copied().or_else(|| by_index(object))?;
        // Several lists of one kind count as one.
        let lists = root.members().filter(|(name, ..)| Kind::from_name(name) == Some(list));
        lists.flat_map(|(.., value)| value.items()).nth(position.checked_sub(1)?)
    }
}

/// Adds the places to problems whose paths begin at the root of the text, such as those of node settings.
pub fn locate_members(file: &str, text: &str, problems: &mut [Problem]) {
    let spans = TextSpans::of(text);
    let file: Arc<str> = file.into();
    for problem in problems {
        match (&mut problem.place, spans.root()) {
            (Some(place), _) => place.file = file.clone(),
            (None, Some(root)) if !problem.path.is_empty() => {
                let span = shown(&spans.find(root, &problem.path), problem);
                problem.place = Some(FilePlace { file: file.clone(), span });
            }
            _ => {}
        }
    }
}

/// The remedy where a variable of JSON is a number or a boolean in place of a text.
fn remedy_of_typed_variable(written: &str, path: &str) -> Option<String> {
    let (start, length) = next_variable(written)?;
    let is_whole = start == 0 && length == written.len();
    let inner = &written[start + "${{".len()..start + length - "}}".len()];
    let name = inner.split(":=").next().unwrap_or(inner).trim();
    // Settings of plugins alone have references.
    Some(match is_whole && path.starts_with("plugins.") {
        true => format!(
            "a variable of JSON that reads as a number is one; write \"$env://{name}\", which is text"
        ),
        false => "a variable of JSON that reads as a number is one; in YAML, quotes keep it text".to_owned(),
    })
}

/// The item of a problem that names it by its index, such as `routes[0]`.
fn by_index(object: &str) -> Option<ItemSource> {
    let (kind, index) = object.strip_suffix(']')?.rsplit_once('[')?;
    Some(ItemSource { list: Kind::from_name(kind)?, position: index.parse::<usize>().ok()? + 1 })
}

/// The characters to mark: the key if its name is the fault or its value has several lines, otherwise the value.
fn shown(found: &FoundSpan<'_>, problem: &Problem) -> LineSpan {
    const OF_NAMES: [&str; 5] =
        ["additional properties forbidden", "written more than once", "unknown", "missing", "is ignored"];
    let is_of_name = !found.is_exact || OF_NAMES.iter().any(|part| problem.message.contains(part));
    match found.key {
        Some(key) if is_of_name || found.value.scalar().is_none() => key,
        // An item is marked by its first member.
        None => found.value.members().next().map_or(found.value.span(), |(_, key, _)| key),
        Some(_) => found.value.span(),
    }
}

#[cfg(test)]
mod tests;
