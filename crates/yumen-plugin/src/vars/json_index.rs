//! Values in a JSON body by their paths, without a tree.
//!
//! One pass records the positions of object members. A path is then followed from member to member, and only
//! its value is parsed.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

use super::VarValue;
use crate::json_scan::{JsonMember, JsonScan, string_end};

/// Most members of all objects of a body, 8 bytes each. A body with more is refused.
pub(super) const MEMBERS_MAX: usize = 128 * 1024;
/// Most values at a path, including nested ones. A path with more leaves the exchange undecided.
const FOUND_VALUES_MAX: usize = 10_000;
/// Most members of an object that are compared one by one; beyond this, names are looked up by hash.
const SEARCHED_MEMBERS_MAX: usize = 32;
/// Most cached paths.
const REMEMBERED_MAX: usize = 256;

/// The reason why an existing value could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnreadValue {
    /// The path leads to too many values.
    TooComplex,
    /// A number out of range, or an unpaired surrogate: JSON parsers disagree about them.
    Unreadable,
}

/// Members of a JSON document, and a cache of paths.
#[derive(Debug)]
pub(crate) struct JsonIndex {
    members: Vec<JsonMember>,
    remembered: RefCell<Vec<(Box<str>, Option<usize>)>>,
    /// Members of large objects by the offset of the object, built once for all paths.
    lookups: RefCell<HashMap<usize, MemberLookup>>,
    hasher: RandomState,
}

/// The last member by the hash of its name.
type MemberLookup = HashMap<u64, JsonMember>;

impl JsonIndex {
    pub(super) fn new(members: Vec<JsonMember>) -> JsonIndex {
        JsonIndex {
            members,
            remembered: RefCell::default(),
            lookups: RefCell::default(),
            // Clients choose the names: with a fixed seed they could choose colliding ones.
            hasher: RandomState::new(),
        }
    }

    /// The value at a dotted path. A number, plain or in brackets, is an array index from 0, and `*` all
    /// elements or members, which yields a list.
    pub(super) fn value(&self, body: &[u8], path: &str) -> Result<Option<VarValue<'static>>, UnreadValue> {
        let budget = Cell::new(FOUND_VALUES_MAX);
        if !path.contains('*') {
            return match self.offset(body, path) {
                Some(at) => read(body, at, &budget),
                None => Ok(None),
            };
        }
        let mut values = Vec::new();
        for at in self.offsets(body, path)? {
            values.extend(read(body, at, &budget)?);
        }
        Ok((!values.is_empty()).then_some(VarValue::List(values)))
    }

    /// Offset of the value at a path without stars.
    fn offset(&self, body: &[u8], path: &str) -> Option<usize> {
        if let Some((_, at)) = self.remembered.borrow().iter().find(|(known, _)| **known == *path) {
            return *at;
        }
        let root = after_space(body, 0);
        let at = steps(path).try_fold(root, |at, step| self.step_into(body, at, step));
        let mut remembered = self.remembered.borrow_mut();
        if remembered.len() < REMEMBERED_MAX {
            remembered.push((path.into(), at));
        }
        at
    }

    /// Offsets of the values at a path with stars.
    fn offsets(&self, body: &[u8], path: &str) -> Result<Vec<usize>, UnreadValue> {
        let mut reached = vec![after_space(body, 0)];
        for step in steps(path) {
            let mut next = Vec::new();
            for at in reached {
                match step {
                    "*" => self.inside(body, at, &mut next)?,
                    step => next.extend(self.step_into(body, at, step)),
                }
            }
            reached = next;
        }
        Ok(reached)
    }

    fn step_into(&self, body: &[u8], at: usize, step: &str) -> Option<usize> {
        match body.get(at)? {
            b'{' => self.member(body, at, step),
            b'[' => elements(body, at).nth(step.parse().ok()?),
            _ => None,
        }
    }

    /// The members of the object at an offset.
    fn members_of(&self, body: &[u8], at: usize) -> impl Iterator<Item = JsonMember> {
        // The next member in the list would belong to another object.
        let is_empty = body.get(after_space(body, at + 1)) == Some(&b'}');
        // The members are in the order of the body.
        let first = self.members.partition_point(|member| (member.start as usize) < at);
        let mut index = (!is_empty).then_some(first);
        std::iter::from_fn(move || {
            let member = *self.members.get(index?)?;
            index = member.next();
            Some(member)
        })
    }

    /// The value of the last member with this name, as most parsers resolve duplicates.
    fn member(&self, body: &[u8], at: usize, name: &str) -> Option<usize> {
        let in_order = || self.members_of(body, at).filter(|member| is_named(body, *member, name)).last();
        let named = if self.members_of(body, at).nth(SEARCHED_MEMBERS_MAX).is_none() {
            in_order()?
        } else {
            let mut lookups = self.lookups.borrow_mut();
            let lookup = lookups.entry(at).or_insert_with(|| self.lookup(body, at));
            let found = *lookup.get(&self.hasher.hash_one(name))?;
            // After a hash collision, compare names one by one.
            if is_named(body, found, name) { found } else { in_order()? }
        };
        Some(value_of(body, named))
    }

    /// The lookup table of the object at an offset. A name that cannot be decoded matches no path.
    fn lookup(&self, body: &[u8], at: usize) -> MemberLookup {
        let named = |member| Some((self.hasher.hash_one(&*name_of(body, member).ok()?), member));
        self.members_of(body, at).filter_map(named).collect()
    }

    /// Appends the values inside a container; of duplicate names only the last one.
    fn inside(&self, body: &[u8], at: usize, to: &mut Vec<usize>) -> Result<(), UnreadValue> {
        let mut add = |at: usize| {
            to.push(at);
            if to.len() > FOUND_VALUES_MAX { Err(UnreadValue::TooComplex) } else { Ok(()) }
        };
        match body.get(at) {
            Some(b'[') => elements(body, at).try_for_each(add),
            Some(b'{') => {
                // A duplicate name has its first position and its last value.
                let mut positions: HashMap<Cow<'_, str>, usize> = HashMap::new();
                let mut offsets: Vec<usize> = Vec::new();
                for member in self.members_of(body, at) {
                    let position = *positions.entry(name_of(body, member)?).or_insert(offsets.len());
                    match offsets.get_mut(position) {
                        Some(offset) => *offset = value_of(body, member),
                        None => offsets.push(value_of(body, member)),
                    }
                    if offsets.len() > FOUND_VALUES_MAX {
                        return Err(UnreadValue::TooComplex);
                    }
                }
                offsets.into_iter().try_for_each(&mut add)
            }
            _ => Ok(()),
        }
    }
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']'))
}

fn after_space(body: &[u8], at: usize) -> usize {
    let space =
        body[at.min(body.len())..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    at + space.count()
}

fn is_named(body: &[u8], member: JsonMember, name: &str) -> bool {
    if member.has_escape() {
        return name_of(body, member).is_ok_and(|decoded| decoded == name);
    }
    let after_quote = body.get(member.start as usize + 1..).unwrap_or_default();
    after_quote.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'"'))
}

fn name_of(body: &[u8], member: JsonMember) -> Result<Cow<'_, str>, UnreadValue> {
    let start = member.start as usize;
    let end = string_end(body, start).map_or(start, |(end, _)| end);
    let text = body.get(start..end).unwrap_or_default();
    if member.has_escape() {
        return serde_json::from_slice(text).map(Cow::Owned).map_err(|_| UnreadValue::Unreadable);
    }
    // The index has checked that the body is UTF-8, so nothing is replaced.
    Ok(String::from_utf8_lossy(text.get(1..text.len() - 1).unwrap_or_default()))
}

/// Offset of the value of a member.
fn value_of(body: &[u8], member: JsonMember) -> usize {
    let name_end = string_end(body, member.start as usize).map_or(body.len(), |(end, _)| end);
    let colon = after_space(body, name_end);
    after_space(body, colon + 1)
}

/// Offsets of the elements of an array.
fn elements(body: &[u8], at: usize) -> impl Iterator<Item = usize> {
    let first = after_space(body, at + 1);
    let mut next = (body.get(first) != Some(&b']')).then_some(first);
    std::iter::from_fn(move || {
        let element = next?;
        // The body was validated, so the scan only finds the end of the element.
        let mut scan = JsonScan::new(element, usize::MAX);
        scan.advance(body, body.len()).ok()?;
        let comma = after_space(body, scan.offset());
        next = (body.get(comma) == Some(&b',')).then(|| after_space(body, comma + 1));
        Some(element)
    })
}

/// The value at an offset, typed for conditions.
fn read(body: &[u8], at: usize, budget: &Cell<usize>) -> Result<Option<VarValue<'static>>, UnreadValue> {
    let mut scan = JsonScan::new(at, budget.get());
    scan.advance(body, body.len()).map_err(|_| UnreadValue::TooComplex)?;
    budget.set(budget.get().saturating_sub(scan.values()));
    let text = body.get(at..scan.offset()).unwrap_or_default();
    let value: Value = serde_json::from_slice(text).map_err(|_| UnreadValue::Unreadable)?;
    Ok(typed(&value))
}

fn typed(value: &Value) -> Option<VarValue<'static>> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => VarValue::Bool(*truth),
        Value::Number(number) => VarValue::Number(number.as_f64()?),
        Value::String(text) => VarValue::Text(Cow::Owned(text.clone().into_bytes())),
        Value::Array(items) => VarValue::List(items.iter().filter_map(typed).collect()),
        Value::Object(_) => VarValue::Text(Cow::Owned(value.to_string().into_bytes())),
    })
}
