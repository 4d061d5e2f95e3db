use yumen_base::Problem;

use super::merge;

#[test]
fn a_misspelt_member_in_place_of_a_required_one_is_one_error() {
    let check = |error: Problem, expected: &[&str]| {
        let warning =
            Problem::warning("routes/1", "timeout.conect", "unknown member \"conect\" has no effect")
                .hint("did you mean \"connect\"?");
        let merged = merge(vec![error.hint("refused until it is fixed")], vec![warning]);
        let lines: Vec<String> = merged.iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected);
    };
    let merged = "error: routes/1 at timeout.conect: unknown member \"conect\"\n  hint: did you mean \"connect\"? refused until it is fixed";
    check(Problem::error("routes/1", "timeout.connect", "property \"connect\" is required"), &[merged]);
    let choice =
        Problem::error("routes/1", "timeout", "value should match only one schema, but matches none");
    let allowed = Some("did you mean \"connect\"?".to_owned());
    check(Problem { allowed, ..choice }, &[merged]);
    let warning = "warning: routes/1 at timeout.conect: unknown member \"conect\" has no effect\n  hint: did you mean \"connect\"?";
    let other =
        "error: routes/1 at timeout.read: property \"read\" is required\n  hint: refused until it is fixed";
    check(Problem::error("routes/1", "timeout.read", "property \"read\" is required"), &[other, warning]);
}
