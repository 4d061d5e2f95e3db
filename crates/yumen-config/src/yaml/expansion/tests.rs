use super::bounded;

#[test]
fn aliases_that_repeat_too_much_are_refused_in_every_document() {
    let long = "x".repeat(200_000);
    let bomb = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 20_000].join(","));
    for text in [
        bomb.clone(),
        format!("a: 1\n---\n{bomb}"),
        format!("a: !tag\n  b: &a {long}\n  c: [{}]\n", vec!["*a"; 20_000].join(",")),
    ] {
        let error = bounded(&text).expect_err("too much text").to_string();
        assert!(error.contains("repeat too much text"), "{error}");
    }
    let few = format!("a: &a {long}\nb: [{}]\n", ["*a"; 5].join(","));
    assert!(bounded(&few).is_ok());
}

#[test]
fn other_texts_are_left_to_their_readers() {
    for text in ["", "a: *b\n", "a: [*", "1: &x 2\n3: *x\n? [a]\n: *x\n", "a: 1\n---\nb: '*'\n...\n", "\t*"] {
        assert_eq!(bounded(text).expect("within the bound"), text);
    }
}
