//! Ids of resources, derived from names: readable, valid and unique.

use std::collections::HashSet;

/// Maximum length of an id in characters.
const LENGTH_MAX: usize = 64;

/// Allocates the ids of one kind.
#[derive(Debug)]
pub(super) struct IdAllocator {
    allowed: fn(char) -> bool,
    /// Names that are valid ids: no other name is converted to one of them.
    reserved: HashSet<String>,
    given: HashSet<String>,
}

impl IdAllocator {
    /// For objects with these names.
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        IdAllocator::allowing(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'), names)
    }

    /// For consumers, whose names must not contain a dot.
    pub(super) fn of_consumers<'n>(names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        IdAllocator::allowing(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'), names)
    }

    fn allowing<'n>(allowed: fn(char) -> bool, names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        let fits = |name: &&str| slug(name, allowed) == **name;
        let reserved = names.into_iter().filter(fits).map(str::to_owned).collect();
        IdAllocator { allowed, reserved, given: HashSet::new() }
    }

    /// Whether a name is a valid id.
    pub(super) fn fits(&self, name: &str) -> bool {
        slug(name, self.allowed) == name
    }

    /// The id of the object named `name`, with a number appended if the id is taken.
    pub(super) fn allocate(&mut self, name: &str) -> String {
        let base = slug(name, self.allowed);
        let numbered = |number: usize| {
            let tail = format!("-{number}");
            format!("{}{tail}", &base[..base.len().min(LENGTH_MAX - tail.len())])
        };
        let is_free = |id: &String| !self.given.contains(id) && (*id == *name || !self.reserved.contains(id));
        let mut candidates = std::iter::once(base.clone()).chain((2..).map(numbered));
        let id = candidates.find(is_free).expect("there is always a higher number");
        self.given.insert(id.clone());
        id
    }
}

fn slug(name: &str, allowed: impl Fn(char) -> bool) -> String {
    let mut id = String::new();
    for c in name.chars() {
        match allowed(c) {
            true => id.push(c),
            // One dash replaces a run of characters that are not allowed.
            false if !id.ends_with('-') => id.push('-'),
            false => {}
        }
    }
    let id = id.trim_matches('-');
    let id = &id[..id.len().min(LENGTH_MAX)];
    if id.is_empty() { "unnamed".to_owned() } else { id.to_owned() }
}
