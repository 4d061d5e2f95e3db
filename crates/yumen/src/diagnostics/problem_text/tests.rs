use yumen_base::FilePlace;

use super::*;

/// Renders an error at a span of the text.
fn check(text: &str, span: (u32, u32, u32), colors: bool, expected: &str) {
    let source = SourceText { name: "routes.yaml".into(), text: text.into() };
    let (line, column, width) = span;
    let place = FilePlace { file: "routes.yaml".into(), span: LineSpan { line, column, width } };
    let message = "property \"n\" validation failed: wrong type: expected integer, got string";
    let problem = Problem { place: Some(place), ..Problem::error("routes/1", "n", message).hint("write 2") };
    assert_eq!(render(&[problem], Some(&source), colors), expected);
}

#[test]
fn the_mark_is_below_the_value() {
    check(
        "a: 1\nn: \"2\"\n",
        (2, 4, 3),
        false,
        "routes.yaml:2:4: error: routes/1 at n: wrong type: expected integer, found string\n \
         2 | n: \"2\"\n   |    ^^^\nhelp: write 2\n\n",
    );
}

#[test]
fn colors_surround_the_parts() {
    check(
        "n: x",
        (1, 4, 1),
        true,
        "\x1b[1mroutes.yaml:1:4\x1b[0m: \x1b[1;31merror\x1b[0m: routes/1 at n: wrong type: expected integer, found \
         string\n \x1b[1;34m1\x1b[0m \x1b[1;34m|\x1b[0m n: x\n   \x1b[1;34m|\x1b[0m    \x1b[1;31m^\x1b[0m\n\x1b[1;36mhelp\
         \x1b[0m: write 2\n\n",
    );
}

#[test]
fn controls_and_tabs_keep_the_columns() {
    check(
        "\tn:\u{1b} x",
        (1, 6, u32::MAX),
        false,
        "routes.yaml:1:6: error: routes/1 at n: wrong type: expected integer, found string\n \
         1 |  n:\u{fffd} x\n   |      ^\nhelp: write 2\n\n",
    );
}

#[test]
fn a_long_line_is_cut_around_the_mark() {
    let text = format!("{}n{}", "a".repeat(500), "b".repeat(500));
    let shown = format!("…{}n{}…", "a".repeat(60), "b".repeat(59));
    let expected = format!(
        "routes.yaml:1:501: error: routes/1 at n: wrong type: expected integer, found string\n 1 | {shown}\n   | {}^\n\
         help: write 2\n\n",
        " ".repeat(61)
    );
    check(&text, (1, 501, 1), false, &expected);
}
