use std::collections::HashSet;

use super::*;

#[test]
fn names_of_kinds_are_unique_and_found() {
    let mut singulars = HashSet::new();
    for descriptor in Kind::descriptors() {
        assert_eq!(Kind::from_name(descriptor.names.plural), Some(descriptor.kind));
        assert!(singulars.insert(descriptor.names.singular), "{}", descriptor.names.singular);
        assert_eq!(descriptor.kind.descriptor().names.plural, descriptor.names.plural);
    }
}

#[test]
fn kinds_come_after_those_they_refer_to() {
    let rank = |kind: Kind| Kind::ALL.iter().position(|one| *one == kind);
    for descriptor in Kind::descriptors() {
        assert!(descriptor.parent.is_none_or(|parent| rank(parent) < rank(descriptor.kind)));
        for (user, _) in descriptor.references.rule.iter().flat_map(|rule| rule.users) {
            assert!(
                rank(descriptor.kind) <= rank(*user),
                "{} before {}",
                descriptor.names.plural,
                user.name()
            );
        }
    }
}

#[test]
fn reference_fields_are_members_of_a_schema() {
    for descriptor in Kind::descriptors() {
        let Some(rule) = &descriptor.references.rule else { continue };
        if rule.position != ReferencePlace::Object {
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
            assert!(has(one) || has(several), "{}: {one}, {several}", descriptor.names.plural);
        }
        for member in descriptor.admin_api.secret_members.iter().chain(descriptor.admin_api.filter_fields) {
            assert!(has(member), "{}: {member}", descriptor.names.plural);
        }
        if descriptor.has_status {
            assert!(has("status"), "{}", descriptor.names.plural);
        }
        if properties.is_object() && descriptor.plugins != PluginRole::None {
            assert!(has("plugins"), "{}", descriptor.names.plural);
        }
    }
}

#[test]
fn paths_begin_with_the_collection() {
    for descriptor in Kind::descriptors() {
        let collection = descriptor.kind.collection();
        assert!(descriptor.admin_api.list_path.starts_with(collection), "{}", descriptor.admin_api.list_path);
        assert!(
            descriptor.admin_api.object_path.starts_with(descriptor.admin_api.list_path),
            "{}",
            descriptor.admin_api.object_path
        );
    }
    assert_eq!(Kind::nested("consumers", "credentials"), Some(Kind::Credentials));
    assert_eq!(Kind::nested("routes", "credentials"), None);
}
