//! A strict reader of the text format of Prometheus, version 0.0.4: what its own linter complains about fails the test.

use std::collections::{BTreeMap, BTreeSet};

/// Values by name and labels, as written.
#[derive(Debug)]
pub(crate) struct Samples(BTreeMap<String, f64>);

impl Samples {
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Of all that have this name, whatever their labels.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let named = |key: &&String| key.split('{').next() == Some(name);
        self.0.keys().filter(named).map(|key| self.0[key]).sum()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[derive(Default)]
struct Family {
    name: String,
    kind: String,
}

/// Reads a page; panics with what is wrong with it.
#[track_caller]
pub(crate) fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line has no end");
    let (mut samples, mut seen, mut family) = (BTreeMap::new(), BTreeSet::new(), Family::default());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && seen.insert(name.to_owned()), "{name} has no help or is repeated");
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")));
            family = Family { name: name.to_owned(), kind: kind.expect("a type behind the help").to_owned() };
            check_name(&family);
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line:?}"));
            check_sample(&family, key);
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
            assert!(samples.insert(key.to_owned(), value).is_none(), "{key} is there twice");
        }
    }
    check_histograms(&samples);
    Samples(samples)
}

fn check_name(family: &Family) {
    let Family { name, kind } = family;
    assert!(name.starts_with("exec_server_"), "{name}");
    assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
    assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{name} is a {kind}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    for unit in ["milliseconds", "_ms", "_kb", "_minutes", "_count", "_sum", "_bucket"] {
        assert!(!name.ends_with(unit), "{name} ends in {unit}");
    }
}

fn check_sample(family: &Family, key: &str) {
    let (name, labels) = key.split_once('{').map_or((key, None), |(name, rest)| (name, Some(rest)));
    let rest = name.strip_prefix(&family.name).unwrap_or_else(|| panic!("{key} is not of {}", family.name));
    let suffixes: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    assert!(suffixes.contains(&rest), "{key} is no sample of a {}", family.kind);
    let Some(labels) = labels else { return };
    let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("{key} has no end of its labels"));
    let mut names = BTreeSet::new();
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{label:?} in {key}"));
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{key}");
        assert!(names.insert(name), "{key} has {name} twice");
        assert!(!value.trim_end_matches('"').contains(['"', '\\', '\n']), "{key}");
    }
}

/// Buckets grow, and the last one has everything.
fn check_histograms(samples: &BTreeMap<String, f64>) {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (key, count) in samples.iter().filter(|(key, _)| key.contains("_bucket{")) {
        let (before, bound) = key.split_once("le=\"").expect("a bound");
        let (bound, after) = bound.split_once('"').expect("an end of the bound");
        let bound = bound.replace("+Inf", "inf").parse().expect("a bound");
        series.entry(format!("{before}{after}")).or_default().push((bound, *count));
    }
    for (key, mut buckets) in series {
        buckets.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{key} shrinks: {buckets:?}");
        let (bound, all) = *buckets.last().expect("a bucket");
        assert!(bound.is_infinite(), "{key} does not end");
        let labels = key.split_once('{').expect("labels").1.trim_end_matches(['}', ',']);
        let name = key.split("_bucket").next().expect("a name");
        let count =
            if labels.is_empty() { format!("{name}_count") } else { format!("{name}_count{{{labels}}}") };
        assert_eq!(samples.get(&count), Some(&all), "{count}");
    }
}
