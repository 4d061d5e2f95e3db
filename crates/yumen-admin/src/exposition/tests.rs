use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::*;

fn family(name: &'static str, kind: MetricKind, samples: Vec<MetricSeries>) -> MetricFamily {
    MetricFamily { name: Cow::Borrowed(name), help: Cow::Borrowed("Help."), kind, samples }
}

fn number(labels: &[(&'static str, &str)], number: f64) -> MetricSeries {
    MetricSeries { labels: owned(labels), value: MetricValue::Number(number) }
}

fn buckets(labels: &[(&'static str, &str)], buckets: &[(f64, u64)], sum: f64, count: u64) -> MetricSeries {
    MetricSeries {
        labels: owned(labels),
        value: MetricValue::Buckets { buckets: buckets.to_vec(), sum, count },
    }
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// Encodes, checks the rules of the format, and compares the samples (lines without `#`).
fn check(families: Vec<MetricFamily>, expected: &[&str]) {
    let text = exposition(families).unwrap();
    lint(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, expected);
}

/// The rules that scrapers apply to the text.
pub(crate) fn lint(text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("no line feed at the end".to_owned());
    }
    let mut done: HashSet<&str> = HashSet::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let mut current = ("", "");
    let mut histograms: HashMap<String, Histogram> = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').ok_or("HELP without text")?;
            if !done.insert(name) {
                return Err(format!("{name} comes twice"));
            }
            current = (name, "");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without kind")?;
            if name != current.0 || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(format!("TYPE out of place: {line}"));
            }
            current = (name, kind);
        } else {
            let (name, labels, value) = sample(line)?;
            if !seen.insert(&line[..line.rfind(' ').expect("a sample has a space")]) {
                return Err(format!("series comes twice: {line}"));
            }
            let suffix = name.strip_prefix(current.0).ok_or(format!("sample out of place: {line}"))?;
            match (current.1, suffix) {
                ("counter" | "gauge", "") => {}
                ("histogram", "_bucket" | "_sum" | "_count") => {
                    let key = labels.iter().filter(|(name, _)| name != "le").map(|l| format!("{l:?}"));
                    let key = format!("{}{}", current.0, key.collect::<String>());
                    histograms.entry(key).or_default().add(suffix, &labels, value)?;
                }
                _ => return Err(format!("sample without its TYPE: {line}")),
            }
        }
    }
    histograms.values().try_for_each(Histogram::finish)
}

#[derive(Default)]
struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<f64>,
    sum: Option<f64>,
    count: Option<f64>,
}

impl Histogram {
    fn add(&mut self, suffix: &str, labels: &[(String, String)], value: f64) -> Result<(), String> {
        match suffix {
            "_sum" => self.sum = Some(value),
            "_count" => self.count = Some(value),
            _ => {
                let (_, le) = labels.iter().find(|(name, _)| name == "le").ok_or("bucket without le")?;
                self.bounds.push(le.parse().map_err(|_| format!("bad le {le}"))?);
                self.counts.push(value);
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        let ascending = |numbers: &[f64]| numbers.is_sorted();
        if self.bounds.last() != Some(&f64::INFINITY) || !ascending(&self.bounds) || !ascending(&self.counts)
        {
            return Err(format!("buckets {:?} {:?}", self.bounds, self.counts));
        }
        match (self.sum, self.count) {
            (Some(_), Some(count)) if self.counts.last() == Some(&count) => Ok(()),
            _ => Err("histogram without sum, or count differs from the last bucket".to_owned()),
        }
    }
}

type Parsed<'a> = (&'a str, Vec<(String, String)>, f64);

/// Parses `name{label="value",...} number`.
fn sample(line: &str) -> Result<Parsed<'_>, String> {
    let bad = || format!("bad sample: {line}");
    let end = line.find(['{', ' ']).ok_or_else(bad)?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").ok_or_else(bad)?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars.next().ok_or_else(bad)? {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().ok_or_else(bad)?.1 {
                        'n' => value.push('\n'),
                        other @ ('\\' | '"') => value.push(other),
                        _ => return Err(bad()),
                    },
                    (_, other) => value.push(other),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[close + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let number = rest.strip_prefix(' ').ok_or_else(bad)?.parse().map_err(|_| bad())?;
    Ok((name, labels, number))
}

use MetricKind::{Counter, Gauge, Histogram as Buckets};

#[test]
fn families_come_ascending_with_help_and_type_first() {
    let families =
        vec![family("b_total", Counter, vec![number(&[], 2.0)]), family("a", Gauge, vec![number(&[], 0.5)])];
    let text = exposition(families).unwrap();
    let expected =
        "# HELP a Help.\n# TYPE a gauge\na 0.5\n# HELP b_total Help.\n# TYPE b_total counter\nb_total 2\n";
    assert_eq!(text, expected);
    lint(&text).unwrap();
}

#[test]
fn nothing_measured_is_an_empty_text() {
    check(vec![], &[]);
    check(vec![family("a", Gauge, vec![])], &[]);
}

#[test]
fn families_of_one_name_become_one() {
    check(
        vec![
            family("a_total", Counter, vec![number(&[("w", "0")], 1.0), number(&[("w", "1")], 2.0)]),
            family("a_total", Counter, vec![number(&[("w", "1")], 3.0), number(&[("w", "2")], 4.0)]),
            family("g", Gauge, vec![number(&[], 1.0)]),
            family("g", Gauge, vec![number(&[], 7.0)]),
        ],
        &[r#"a_total{w="0"} 1"#, r#"a_total{w="1"} 5"#, r#"a_total{w="2"} 4"#, "g 7"],
    );
}

#[test]
fn label_values_are_escaped() {
    check(
        vec![family("a", Gauge, vec![number(&[("path", "a\"b\\c\nd{e=\"f\",}é")], 1.0)])],
        &["a{path=\"a\\\"b\\\\c\\nd{e=\\\"f\\\",}é\"} 1"],
    );
}

#[test]
fn help_is_escaped() {
    let mut odd = family("a", Gauge, vec![number(&[], 1.0)]);
    odd.help = Cow::Borrowed("two\nlines");
    let text = exposition(vec![odd]).unwrap();
    assert!(text.starts_with("# HELP a two\\nlines\n"), "{text}");
}

#[test]
fn histograms_get_the_infinite_bucket_and_are_added_up() {
    let one = || vec![buckets(&[("r", "1")], &[(0.5, 1), (1.0, 3)], 2.5, 4)];
    check(
        vec![family("h", Buckets, one()), family("h", Buckets, one())],
        &[
            r#"h_bucket{r="1",le="0.5"} 2"#,
            r#"h_bucket{r="1",le="1"} 6"#,
            r#"h_bucket{r="1",le="+Inf"} 8"#,
            r#"h_sum{r="1"} 5"#,
            r#"h_count{r="1"} 8"#,
        ],
    );
}

#[test]
fn invalid_metrics_are_left_out() {
    check(
        vec![
            family("ok", Gauge, vec![number(&[], 1.0)]),
            family("bad-name", Gauge, vec![number(&[], 1.0)]),
            family("", Gauge, vec![number(&[], 1.0)]),
            family("1a", Gauge, vec![number(&[], 1.0)]),
            family("ok", Counter, vec![number(&[("kind", "other")], 1.0)]),
            family("ok", Gauge, vec![number(&[("bad:label", "x")], 1.0)]),
            family("ok", Gauge, vec![number(&[("twice", "x"), ("twice", "y")], 1.0)]),
            family("ok", Gauge, vec![buckets(&[], &[], 0.0, 0)]),
            family("h", Buckets, vec![buckets(&[], &[(1.0, 1)], 1.0, 1), buckets(&[], &[(2.0, 9)], 1.0, 9)]),
            family("h", Buckets, vec![number(&[("le", "1")], 1.0), buckets(&[("le", "1")], &[], 0.0, 0)]),
        ],
        &[r#"h_bucket{le="1"} 1"#, r#"h_bucket{le="+Inf"} 1"#, "h_sum 1", "h_count 1", "ok 1"],
    );
}

#[test]
fn the_linter_finds_what_it_is_for() {
    for wrong in [
        "a 1\n",
        "# HELP a x\na 1\n",
        "# HELP a x\n# TYPE a gauge\na 1",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na{b=\"\\x\"} 1\n",
        "# HELP a x\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
        "# HELP a x\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# HELP a x\n# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP a x\n# TYPE a gauge\n",
    ] {
        assert!(lint(wrong).is_err(), "{wrong}");
    }
}
