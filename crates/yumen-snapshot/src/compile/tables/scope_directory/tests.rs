use std::sync::Arc;

use super::*;

fn staged(id: &str) -> StagedScope {
    let terms = ScopeTerms::default();
    StagedScope { age: (0, id.into()), listeners: Box::default(), hosts: Box::default(), terms }
}

fn put(directory: &mut ScopeDirectory, id: &str) -> u32 {
    let slot = directory.slot_for(id);
    directory.put(&id.into(), staged(id));
    assert_eq!(directory.slot_for(id), slot, "the slot that was announced for {id}");
    slot.0
}

fn compile(directory: &mut ScopeDirectory) -> CompiledScopes {
    directory.compile(|_| (Router::default(), StreamRouter::default(), Certificates::default()))
}

/// The ids by slot.
fn ids(scopes: &CompiledScopes) -> Vec<String> {
    scopes.iter().map(|one| one.map_or("-".to_owned(), |scope| scope.id.to_string())).collect()
}

#[test]
fn a_freed_slot_is_used_again_by_the_next_new_scope() {
    let mut directory = ScopeDirectory::default();
    assert_eq!([put(&mut directory, "a"), put(&mut directory, "b"), put(&mut directory, "a")], [0, 1, 0]);
    assert_eq!(ids(&compile(&mut directory)), ["a", "b"]);
    assert!(directory.remove("a").is_some() && directory.remove("a").is_none());
    assert_eq!(ids(&compile(&mut directory)), ["-", "b"]);
    assert_eq!([put(&mut directory, "c"), put(&mut directory, "d")], [0, 2]);
    assert_eq!(ids(&compile(&mut directory)), ["c", "b", "d"]);
}

#[test]
fn only_touched_scopes_are_compiled_again() {
    let mut directory = ScopeDirectory::default();
    ["a", "b", "c"].into_iter().for_each(|id| _ = put(&mut directory, id));
    let before = compile(&mut directory);
    directory.touch_all([Arc::from("b"), Arc::from("unknown")].into());
    let after = compile(&mut directory);
    let same = |slot: usize| Arc::ptr_eq(before.get(slot).unwrap(), after.get(slot).unwrap());
    assert_eq!([0, 1, 2].map(same), [true, false, true]);
}
