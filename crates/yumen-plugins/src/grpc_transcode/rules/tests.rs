use super::{PathTemplate, TemplateSegments};

/// The variables of a template for a path; `None` without a match.
fn captures(template: &str, path: &str) -> Option<Vec<(String, String)>> {
    let template = PathTemplate::parse(template).expect("a template");
    let captures = template.matches(&TemplateSegments::of(path.as_bytes())?)?;
    Some(captures.into_iter().map(|(field, value)| (field.to_owned(), value)).collect())
}

fn check(template: &str, path: &str, expected: Option<&[(&str, &str)]>) {
    let expected = expected.map(|all| {
        all.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
    });
    assert_eq!(captures(template, path), expected, "{template} {path}");
}

#[test]
fn templates_say_which_paths_are_theirs_and_what_they_tell() {
    check("/v1/orders", "/v1/orders?x=1", Some(&[]));
    check("/v1/orders", "/v1/orders/", None);
    check("/v1/orders", "/v1/%6Frders", Some(&[]));
    check("/v1/{id}", "/v1/a%20b", Some(&[("id", "a b")]));
    check("/v1/{id}", "/v1/a%2Fb", Some(&[("id", "a/b")]));
    check("/v1/{id=*}", "/v1/a%2Fb%3a", Some(&[("id", "a/b:")]));
    check("/v1/{id}", "/v1/", None);
    check("/v1/{id}", "/v1/a/b", None);
    check("/v1/{a.b}/x/{c}", "/v1/1/x/2", Some(&[("a.b", "1"), ("c", "2")]));
    check("/v1/{name=shelves/*}/books", "/v1/shelves/7/books", Some(&[("name", "shelves/7")]));
    check("/v1/{name=shelves/*}/books", "/v1/racks/7/books", None);
    check("/v1/{name=files/**}", "/v1/files/a/b%20c", Some(&[("name", "files/a/b c")]));
    check("/v1/{name=files/**}", "/v1/files/a%2Fb%2f..%20%7E%", Some(&[("name", "files/a%2Fb%2f.. ~%")]));
    check("/v1/{name=**}", "/v1/a%3Ab", Some(&[("name", "a%3Ab")]));
    check("/v1/{name=shelves/*}", "/v1/shelves/a%2Fb%25", Some(&[("name", "shelves/a%2Fb%")]));
    check("/v1/{name=files/**}", "/v1/files", Some(&[("name", "files")]));
    check("/v1/*/x/**", "/v1/1/x/2/3", Some(&[]));
    check("/v1/{id}:cancel", "/v1/7:cancel", Some(&[("id", "7")]));
    check("/v1/{id}:cancel", "/v1/7:hold", None);
    check("/v1/{id}:cancel", "/v1/:cancel", None);
    check("/v1/orders:all", "/v1/orders:all", Some(&[]));
}

#[test]
fn dots_match_no_variable() {
    for path in ["/v1/../secret", "/v1/%2e%2E/secret", "/v1/."] {
        check("/**", path, None);
    }
    check("/{all=**}", "/v1/..a", Some(&[("all", "v1/..a")]));
}

#[test]
fn invalid_templates_are_refused() {
    for (template, why) in [
        ("v1", "does not begin with a slash"),
        ("/v1/{id", "has an open brace"),
        ("/v1/{id}x", "has characters other than a slash after a variable"),
        ("/v1/**/x", "has `**` before its end"),
    ] {
        assert_eq!(PathTemplate::parse(template).unwrap_err(), format!("its path \"{template}\" {why}"));
    }
}

#[test]
fn narrower_templates_go_first() {
    let mut paths = ["/v1/{a=**}", "/v1/{id}", "/v1/{id}:go", "/v1/me", "/v1/{id}/x"]
        .map(|template| (PathTemplate::parse(template).unwrap(), template));
    paths.sort_by(|a, b| a.0.order(&b.0));
    let order = paths.map(|(_, template)| template);
    assert_eq!(order, ["/v1/me", "/v1/{id}:go", "/v1/{id}", "/v1/{id}/x", "/v1/{a=**}"]);
}
