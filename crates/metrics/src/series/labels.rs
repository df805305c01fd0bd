//! What a series is known by.

use std::fmt;

use super::NAME;

/// Labels, in the order of their names, each name once, none empty: in PromQL
/// an empty label is one that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// `None` if a name stands there twice.
    pub fn new(mut pairs: Vec<(String, String)>) -> Option<Labels> {
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.sort();
        let is_twice = pairs.windows(2).any(|two| two[0].0 == two[1].0);
        (!is_twice).then_some(Labels(pairs))
    }

    /// The value of a label; empty if it has none.
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.map_or("", |index| &self.0[index].1)
    }

    /// The name of the metric; empty if it has none.
    pub fn name(&self) -> &str {
        self.get(NAME)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// With only those labels for which `keep` says so.
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Labels {
        Labels(self.0.iter().filter(|(name, _)| keep(name)).cloned().collect())
    }

    /// Without the name of the metric: what was computed is another metric.
    pub fn unnamed(&self) -> Labels {
        self.filtered(|name| name != NAME)
    }

    /// With the labels of a target. Where the series has a label of such a
    /// name, that one is called `exported_…`: nobody may pass for another.
    pub fn under(&self, target: &[(String, String)]) -> Labels {
        let mut pairs = self.0.clone();
        for (name, _) in target {
            let Ok(index) = pairs.binary_search_by(|(known, _)| known.cmp(name)) else { continue };
            let (mut exported, value) = pairs.remove(index);
            while !self.get(&exported).is_empty() || pairs.iter().any(|pair| pair.0 == exported) {
                exported.insert_str(0, "exported_");
            }
            pairs.push((exported, value));
            pairs.sort();
        }
        pairs.extend(target.iter().cloned());
        pairs.sort();
        Labels(pairs)
    }
}

/// As PromQL writes it: `up{instance="a:1"}`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let mut gap = "{";
        for (name, value) in self.iter().filter(|(name, _)| *name != NAME) {
            write!(f, "{gap}{name}={value:?}")?;
            gap = ",";
        }
        f.write_str(match (gap, self.name()) {
            ("{", "") => "{}",
            ("{", _) => "",
            _ => "}",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Labels::new(pairs.iter().map(own).collect()).expect("no name twice")
    }

    #[test]
    fn they_are_read_as_promql_writes_them() {
        assert_eq!(labels(&[]).to_string(), "{}");
        assert_eq!(labels(&[(NAME, "up")]).to_string(), "up");
        assert_eq!(
            labels(&[("b", "2"), (NAME, "up"), ("a", "1")]).to_string(),
            r#"up{a="1",b="2"}"#
        );
    }

    #[test]
    fn an_empty_label_is_none() {
        assert_eq!(labels(&[("a", "")]), Labels::default());
        assert_eq!(Labels::new(vec![("a".into(), "1".into()), ("a".into(), "2".into())]), None);
    }

    #[test]
    fn a_series_cannot_pass_for_another_target() {
        let target = [("instance".to_string(), "a:1".to_string())];
        let series = labels(&[(NAME, "m"), ("instance", "lies"), ("exported_instance", "too")]);
        let expected =
            r#"m{exported_exported_instance="lies",exported_instance="too",instance="a:1"}"#;
        assert_eq!(series.under(&target).to_string(), expected);
    }
}
