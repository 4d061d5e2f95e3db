//! Ids of resources out of names: readable, allowed, and no two alike.

use std::collections::HashSet;

/// The most characters an id may have.
const LENGTH_MAX: usize = 64;

/// Gives ids of one kind.
#[derive(Debug)]
pub(super) struct IdAllocator {
    allowed: fn(char) -> bool,
    /// Names that are ids as they are: no other name is turned into one of them.
    kept: HashSet<String>,
    given: HashSet<String>,
}

impl IdAllocator {
    /// For what is called so.
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        IdAllocator::allowing(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'), names)
    }

    /// The same for consumers, whose names may not hold a dot.
    pub(super) fn of_consumers<'n>(names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        IdAllocator::allowing(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'), names)
    }

    fn allowing<'n>(allowed: fn(char) -> bool, names: impl IntoIterator<Item = &'n str>) -> IdAllocator {
        let fits = |name: &&str| slug(name, allowed) == **name;
        let kept = names.into_iter().filter(fits).map(str::to_owned).collect();
        IdAllocator { allowed, kept, given: HashSet::new() }
    }

    /// Whether a name is an id as it is.
    pub(super) fn fits(&self, name: &str) -> bool {
        slug(name, self.allowed) == name
    }

    /// The id of what is called `name`; with a number behind it where another has the same.
    pub(super) fn give(&mut self, name: &str) -> String {
        let base = slug(name, self.allowed);
        let numbered = |number: usize| {
            let tail = format!("-{number}");
            format!("{}{tail}", &base[..base.len().min(LENGTH_MAX - tail.len())])
        };
        let is_free = |id: &String| !self.given.contains(id) && (*id == *name || !self.kept.contains(id));
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
            // One dash stands for any run of what is not allowed.
            false if !id.ends_with('-') => id.push('-'),
            false => {}
        }
    }
    let id = id.trim_matches('-');
    let id = &id[..id.len().min(LENGTH_MAX)];
    if id.is_empty() { "unnamed".to_owned() } else { id.to_owned() }
}
