//! Places of problems in the text of a document.
//!
//! Reads the text a second time, so it runs only where there are problems.

use std::collections::HashMap;
use std::sync::Arc;

use yumen_base::{FilePlace, LineSpan, Problem};

use super::collect::ItemSource;
use super::{DocumentUse, Lookup};
use crate::resource::Kind;
use crate::text_spans::{FoundSpan, SpannedValue, TextSpans};

/// The items of a document and their positions in its text.
#[derive(Debug)]
pub struct DocumentPlaces {
    file: Arc<str>,
    spans: TextSpans,
    /// The list and the position of each object, by its name in problems.
    items: HashMap<String, ItemSource>,
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
        DocumentPlaces { file: file.into(), spans: TextSpans::of(text), items }
    }

    /// Adds the place to each problem of an object in the text.
    pub fn locate<'p>(&self, problems: impl IntoIterator<Item = &'p mut Problem>) {
        for problem in problems {
            match &mut problem.place {
                // A fault of syntax has its place, in a text without a name.
                Some(place) => place.file = self.file.clone(),
                None => problem.place = self.place(problem),
            }
        }
    }

    fn place(&self, problem: &Problem) -> Option<FilePlace> {
        let root = self.spans.root()?;
        let (item, path) = match problem.object.as_str() {
            "file" if problem.path.is_empty() => return None,
            "file" => (root, problem.path.as_str()),
            object => (self.item(root, object)?, problem.path.as_str()),
        };
        let found = self.spans.find(item, path);
        Some(FilePlace { file: self.file.clone(), span: shown(&found, problem) })
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
