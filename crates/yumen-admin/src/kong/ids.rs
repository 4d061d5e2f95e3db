//! Ids of resources out of names: readable, allowed, and no two alike.

use std::collections::HashSet;

/// The most characters an id may have.
const LENGTH_MAX: usize = 64;

/// Gives ids of one kind.
#[derive(Debug, Default)]
pub(super) struct Ids {
    given: HashSet<String>,
}

impl Ids {
    /// The id of what is called `name`; with a number behind it where another has the same.
    pub(super) fn give(&mut self, name: &str) -> String {
        self.give_of(name, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    }

    /// The same for consumers, whose names may not hold a dot.
    pub(super) fn give_username(&mut self, name: &str) -> String {
        self.give_of(name, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    }

    fn give_of(&mut self, name: &str, allowed: impl Fn(char) -> bool) -> String {
        let base = slug(name, allowed);
        let numbered = |number: usize| {
            let tail = format!("-{number}");
            format!("{}{tail}", &base[..base.len().min(LENGTH_MAX - tail.len())])
        };
        let mut candidates = std::iter::once(base.clone()).chain((2..).map(numbered));
        let id = candidates.find(|id| !self.given.contains(id)).expect("there is always a higher number");
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
