//! What the world was like all the time, for the figures: few enough points to be kept.

use anyhow::Result;
use lab::drains::{Ablation, Series};

use super::ablations;
use super::report::{Curve, Curves};
use super::sample::{Sample, WEB, carry_out, with_series, without};

/// Points that a curve keeps, at the most.
const POINTS_MAX: usize = 400;
/// The sticky service and the stores whose curves are drawn.
pub const STICKY: &str = "messaging";
pub const STORES: [&str; 3] = ["ads-store", "leaf-store", "class-store"];

impl Curve {
    /// Some lines of a series: those whose names begin so.
    pub fn of(series: &Series, prefixes: &[&str]) -> Curve {
        let every = series.secs.len().div_ceil(POINTS_MAX).max(1);
        let last = series.secs.len().saturating_sub(1);
        let thin = |line: &[f64]| -> Vec<f64> {
            let kept = line.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
            kept.map(|(_, value)| (value * 1e4).round() / 1e4).collect()
        };
        let is_kept = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let lines = series.lines.iter().filter(|(name, _)| is_kept(name));
        let minutes: Vec<f64> = series.secs.iter().map(|secs| secs / 60.0).collect();
        Curve {
            minutes: thin(&minutes),
            lines: lines.map(|(name, line)| (name.clone(), thin(line))).collect(),
        }
    }

    /// The same up to a minute.
    pub fn until(series: &Series, minutes: f64, prefixes: &[&str]) -> Curve {
        let count = series.secs.partition_point(|secs| *secs <= minutes * 60.0);
        let mut first = Series { secs: series.secs[..count].to_vec(), ..Series::default() };
        for (name, line) in &series.lines {
            first.lines.insert(name.clone(), line[..count].to_vec());
        }
        Curve::of(&first, prefixes)
    }

    pub fn line(&self, name: &str) -> &[f64] {
        self.lines.get(name).map_or(&[], Vec::as_slice)
    }
}

/// One drain and one restore, watched.
pub fn watch(sample: &Sample, seed: u64) -> Result<Curves> {
    let drained = sample.drain(seed, &with_series(without(&[])))?;
    let series = &drained.simulation.report.series;
    let restored = |left_out: &[Ablation]| {
        let options = with_series(without(left_out));
        carry_out(drained.waiting.clone(), &drained.restore, seed, &options)
    };
    let (bounded, unbounded) = (restored(&[])?, restored(&[Ablation::Budgets])?);
    let of = |service: &str| {
        ["traffic", "elsewhere", "multiplier", "staying"].map(|what| format!("{what}/{service}"))
    };
    let web = of(WEB);
    let sticky = of(STICKY);
    let names = |of: &'_ [String; 4]| of.iter().map(String::clone).collect::<Vec<_>>();
    let until = |minutes: f64, names: Vec<String>| {
        let prefixes: Vec<&str> = names.iter().map(String::as_str).collect();
        Curve::until(series, minutes, &prefixes)
    };
    let link = ["link/", "replication/"];
    Ok(Curves {
        unknown_dependency: ablations::unknown_dependency(sample, seed)?,
        stateless: until(16.0, names(&web)),
        sticky: until(80.0, names(&sticky)),
        bounded: Curve::until(&bounded.report.series, 90.0, &link),
        unbounded: Curve::until(&unbounded.report.series, 90.0, &link),
        stateful: Curve::of(series, &["primaries/"]),
        drain: Curve::of(series, &["traffic/", "utilisation/"]),
        restore: Curve::of(&bounded.report.series, &["traffic/", "utilisation/"]),
        peak_utilisation: [&drained.simulation.report, &bounded.report]
            .into_iter()
            .flat_map(|report| report.peak_utilisation.values().copied())
            .fold(0.0, f64::max),
        downtime_minutes: sample.site.downtime.as_secs_f64() / 60.0,
        user_facing: sample
            .site
            .services
            .iter()
            .filter(|own| own.user_facing)
            .map(|own| own.name.clone())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_thin_and_end_where_they_end() {
        let mut series = Series { secs: (0..1000).map(f64::from).collect(), ..Series::default() };
        series.lines.insert("a/b".into(), series.secs.clone());
        series.lines.insert("b/b".into(), series.secs.clone());
        let curve = Curve::of(&series, &["a/"]);
        assert!(curve.minutes.len() <= POINTS_MAX && curve.lines.len() == 1);
        assert_eq!(curve.line("a/b").last(), Some(&999.0));
        assert_eq!(Curve::until(&series, 1.0, &["b/"]).line("b/b").last(), Some(&60.0));
        assert!(curve.line("c").is_empty());
    }
}
