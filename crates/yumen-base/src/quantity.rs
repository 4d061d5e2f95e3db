//! Numbers with nouns, for messages.

/// `1 object`, `2 objects`. The plural of `noun` ends in `s`.
pub fn quantity(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular() {
        let of = |count| super::quantity(count, "problem");
        assert_eq!([of(0), of(1), of(2)], ["0 problems", "1 problem", "2 problems"]);
    }
}
