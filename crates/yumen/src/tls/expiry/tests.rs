use super::*;

fn seen(ends: &[(i64, &str)], life_days: i64) -> Seen {
    let end = |(at_unix_s, id): &(i64, &str)| End {
        at_unix_s: *at_unix_s,
        life_s: life_days * DAY_S,
        id: (*id).to_owned(),
        name: format!("{id}.test"),
    };
    Seen { certificates: ends.len(), first: ends.iter().map(end).collect() }
}

#[test]
fn what_ends_soon_is_a_warning_and_what_has_ended_an_error() {
    let now = 1_000 * DAY_S;
    let ends = [(now - 3 * DAY_S, "gone"), (now + 2 * DAY_S + 60, "soon"), (now + 20 * DAY_S, "later")];
    let told: Vec<String> = problems(&seen(&ends, 365), 14, now).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "error: ssls/gone at cert: the certificate for gone.test expired 3 days ago: clients refuse it\n  hint: renew it",
            "warning: ssls/soon at cert: the certificate for soon.test expires in 2 days\n  hint: renew it: clients refuse it afterwards",
        ]
    );
    assert_eq!(problems(&seen(&ends, 365), 0, now).len(), 1);
    assert_eq!(problems(&seen(&ends, 365), 30, now).len(), 3);
    // one that lives for six days has 36 hours of worry
    assert_eq!(problems(&seen(&ends, 6), 14, now).len(), 1);
}
