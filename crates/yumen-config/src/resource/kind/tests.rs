use std::collections::HashSet;

use super::*;

#[test]
fn names_of_kinds_are_unique_and_found() {
    let mut singulars = HashSet::new();
    for descriptor in Kind::descriptors() {
        assert_eq!(Kind::from_name(descriptor.name), Some(descriptor.kind));
        assert!(singulars.insert(descriptor.singular), "{}", descriptor.singular);
        assert_eq!(descriptor.kind.descriptor().name, descriptor.name);
    }
}

#[test]
fn kinds_come_after_those_they_refer_to() {
    let rank = |kind: Kind| Kind::ALL.iter().position(|one| *one == kind);
    for descriptor in Kind::descriptors() {
        assert!(descriptor.parent.is_none_or(|parent| rank(parent) < rank(descriptor.kind)));
        for (user, _) in descriptor.referenced.iter().flat_map(|rule| rule.users) {
            assert!(rank(descriptor.kind) <= rank(*user), "{} before {}", descriptor.name, user.name());
        }
    }
}

#[test]
fn reference_fields_are_members_of_a_schema() {
    for descriptor in Kind::descriptors() {
        let Some(rule) = &descriptor.referenced else { continue };
        if rule.place != ReferencePlace::Object {
            continue;
        }
        let has_field = |kind: Kind| !(kind.descriptor().schema)()["properties"][rule.field].is_null();
        assert!(rule.users.iter().any(|(kind, _)| has_field(*kind)), "{}", rule.field);
    }
}

#[test]
fn members_of_descriptors_are_members_of_the_schema() {
    for descriptor in Kind::descriptors() {
        let properties = &(descriptor.schema)()["properties"];
        let has = |member: &str| !properties[member].is_null();
        if let Some((one, several)) = descriptor.host_fields {
            assert!(has(one) || has(several), "{}: {one}, {several}", descriptor.name);
        }
        for member in descriptor.secret_members.iter().chain(descriptor.filter_fields) {
            assert!(has(member), "{}: {member}", descriptor.name);
        }
        if descriptor.has_status {
            assert!(has("status"), "{}", descriptor.name);
        }
        if properties.is_object() && descriptor.plugins != PluginRole::None {
            assert!(has("plugins"), "{}", descriptor.name);
        }
    }
}

#[test]
fn paths_begin_with_the_collection() {
    for descriptor in Kind::descriptors() {
        let collection = descriptor.kind.collection();
        assert!(descriptor.list_path.starts_with(collection), "{}", descriptor.list_path);
        assert!(descriptor.object_path.starts_with(descriptor.list_path), "{}", descriptor.object_path);
    }
    assert_eq!(Kind::nested("consumers", "credentials"), Some(Kind::Credentials));
    assert_eq!(Kind::nested("routes", "credentials"), None);
}
