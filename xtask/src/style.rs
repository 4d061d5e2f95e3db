//! Names, state and prose: figures that a size limit does not show. `xtask/style.txt` lists the exceptions, which only
//! shrink. Tests and simulations are left out.

use std::collections::BTreeMap;

use syn::{Attribute, Field, FnArg, ImplItem, Item, Pat, Signature, TraitItem, Type};

use crate::Finding;
use crate::ratchet::RatchetList;
use crate::sources::{Sources, is_test};

const FIELDS_MAX: usize = 15;
const BOOLS_MAX: usize = 2;
pub(crate) const LIST: &str = "xtask/style.txt";

/// Words of the prose guide's first rules: free relatives, and persons in place of machines.
const WORDS: &[&str] = &[
    "what", "who", "whom", "whoever", "nobody", "somebody", "anybody", "tell", "tells", "told", "say",
    "says", "said",
];

/// Findings against [`LIST`].
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let text = sources.text(LIST).unwrap_or_default();
    RatchetList { path: LIST, text }.compare(measure(sources), describe)
}

/// The exceptions of the repository, by subject.
pub(crate) fn measure(sources: &Sources) -> BTreeMap<String, usize> {
    let mut figures = StyleFigures::default();
    for (path, text) in sources.rust().filter(|(path, _)| !is_exempt(path)) {
        // A file that does not parse does not compile either, and the compiler's message is the better one.
        if let Ok(file) = syn::parse_file(text) {
            figures.add_items(path, &file.items);
        }
        figures.add_words(path, text);
    }
    figures.finish()
}

fn is_exempt(path: &str) -> bool {
    is_test(path) || path.contains("/simulation/") || path.ends_with("/simulation.rs")
}

fn describe(subject: &str, number: usize) -> String {
    let advice = match subject.split(' ').next() {
        Some("fields") => "split it by owner, phase or lifetime",
        Some("bools") => "use an enum where the flags depend on each other",
        Some("tuple-parameter") => "name the parts",
        Some("one-word") => "add a qualifier that an engineer of the field would search for",
        Some("shared-name") => "give each type a name of its own",
        _ => "see docs/contributing/prose.md",
    };
    format!("{subject}: {number}; {advice}")
}

#[derive(Default)]
struct StyleFigures {
    found: BTreeMap<String, usize>,
    /// Definitions by type name.
    types: BTreeMap<String, usize>,
}

impl StyleFigures {
    fn add_items(&mut self, path: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Struct(item) if !is_test_only(&item.attrs) => {
                    let name = item.ident.to_string();
                    self.add_fields(&name, item.fields.iter());
                    self.add_type(name);
                }
                Item::Enum(item) if !is_test_only(&item.attrs) => self.add_type(item.ident.to_string()),
                Item::Union(item) if !is_test_only(&item.attrs) => self.add_type(item.ident.to_string()),
                Item::Trait(item) if !is_test_only(&item.attrs) => {
                    self.add_type(item.ident.to_string());
                    for member in &item.items {
                        if let TraitItem::Fn(function) = member {
                            self.add_signature(path, &function.attrs, &function.sig);
                        }
                    }
                }
                Item::Fn(item) => self.add_signature(path, &item.attrs, &item.sig),
                Item::Impl(item) if !is_test_only(&item.attrs) => {
                    for member in &item.items {
                        if let ImplItem::Fn(function) = member {
                            self.add_signature(path, &function.attrs, &function.sig);
                        }
                    }
                }
                Item::Mod(item) if !is_test_only(&item.attrs) => {
                    if let Some((_, items)) = &item.content {
                        self.add_items(path, items);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_fields<'a>(&mut self, name: &str, fields: impl Iterator<Item = &'a Field>) {
        let named: Vec<&Field> = fields.filter(|field| field.ident.is_some()).collect();
        let bools = named.iter().filter(|field| is_bool(&field.ty)).count();
        if named.len() > FIELDS_MAX {
            self.found.insert(format!("fields {name}"), named.len());
        }
        if bools > BOOLS_MAX {
            self.found.insert(format!("bools {name}"), bools);
        }
    }

    fn add_type(&mut self, name: String) {
        *self.types.entry(name).or_default() += 1;
    }

    fn add_signature(&mut self, path: &str, attributes: &[Attribute], signature: &Signature) {
        let is_test = is_test_only(attributes) || attributes.iter().any(|one| one.path().is_ident("test"));
        let has_tuple = signature.inputs.iter().any(|input| match input {
            FnArg::Typed(typed) => is_tuple(&typed.ty) && !matches!(*typed.pat, Pat::Wild(_)),
            FnArg::Receiver(_) => false,
        });
        if has_tuple && !is_test {
            *self.found.entry(format!("tuple-parameter {path} {}", signature.ident)).or_default() += 1;
        }
    }

    /// Counts [`WORDS`] in comments, per crate.
    fn add_words(&mut self, path: &str, text: &str) {
        let owner = path.split("/src/").next().unwrap_or(path);
        let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        let words = comments.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        let count = words.filter(|word| WORDS.contains(&word.to_ascii_lowercase().as_str())).count();
        if count > 0 {
            *self.found.entry(format!("words {owner}")).or_default() += count;
        }
    }

    fn finish(self) -> BTreeMap<String, usize> {
        let StyleFigures { mut found, types } = self;
        for (name, count) in types {
            if name.chars().filter(char::is_ascii_uppercase).count() == 1 {
                found.insert(format!("one-word {name}"), count);
            }
            if count > 1 {
                found.insert(format!("shared-name {name}"), count);
            }
        }
        found
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    let names_test = |attribute: &&Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    };
    attributes.iter().any(|attribute| names_test(&attribute))
}

/// `bool` and `Cell<bool>`.
fn is_bool(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    match &last.arguments {
        syn::PathArguments::None => last.ident == "bool",
        syn::PathArguments::AngleBracketed(inner) => {
            last.ident == "Cell"
                && inner.args.iter().any(|arg| matches!(arg, syn::GenericArgument::Type(ty) if is_bool(ty)))
        }
        syn::PathArguments::Parenthesized(_) => false,
    }
}

/// A tuple of two or more, also behind a reference. Closures and arrays of tuples are no parameters of this kind.
fn is_tuple(ty: &Type) -> bool {
    match ty {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}
