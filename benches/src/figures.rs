//! Figures that criterion does not record: ratios, sizes, shares. Each bench writes them to a file for the summary.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A measured figure, in the unit that its name contains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// Lower quartile of the measurements.
    pub lower: f64,
    /// Upper quartile of the measurements.
    pub upper: f64,
}

impl Figure {
    /// The quartiles of the measurements; all 0 if there are none.
    pub fn of(mut measured: Vec<f64>) -> Self {
        measured.sort_unstable_by(f64::total_cmp);
        let at = |quarter: usize| {
            let last = measured.len().saturating_sub(1);
            measured.get(last * quarter / 4).copied().unwrap_or(0.0)
        };
        Self { median: at(2), lower: at(1), upper: at(3) }
    }

    /// A figure that was measured once.
    pub fn once(value: f64) -> Self {
        Self { median: value, lower: value, upper: value }
    }

    /// The figure multiplied by `factor`, to convert the unit.
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, lower: self.lower * factor, upper: self.upper * factor }
    }
}

/// The figures of one bench, by name.
pub type Figures = BTreeMap<String, Figure>;

/// Where criterion writes its estimates: `criterion/` in cargo's target directory. Short runs write to another folder, because their
/// results are no figures.
///
/// # Errors
///
/// As [`crate::target_directory`].
pub fn criterion_directory() -> anyhow::Result<PathBuf> {
    Ok(crate::target_directory()?.join(crate::length("criterion", "criterion-short")))
}

fn directory() -> anyhow::Result<PathBuf> {
    Ok(crate::target_directory()?.join(crate::length("figures", "figures-short")))
}

fn path(bench: &str) -> anyhow::Result<PathBuf> {
    Ok(directory()?.join(format!("{bench}.json")))
}

/// Removes the results of earlier runs, so that a summary shows only what is measured from now on.
///
/// # Errors
///
/// If they cannot be removed.
pub fn forget() -> anyhow::Result<()> {
    for folder in [directory()?, criterion_directory()?] {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes a bench's figures for the summary, and replaces those of an earlier run.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(bench: &str, figures: &Figures) -> anyhow::Result<()> {
    let path = path(bench)?;
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, serde_json::to_vec_pretty(figures)?)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// The figures of a bench's last run; empty if there was none.
///
/// # Errors
///
/// If the file exists but cannot be read.
pub fn read(bench: &str) -> anyhow::Result<Figures> {
    let path = path(bench)?;
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} holds no figures", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Figures::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// The median of a criterion benchmark, with its confidence interval, in nanoseconds. `None` if it never ran.
///
/// # Errors
///
/// If the estimates exist but cannot be read.
pub fn criterion(benchmark: &str) -> anyhow::Result<Option<Figure>> {
    #[derive(Deserialize)]
    struct Estimates {
        median: Estimate,
    }
    #[derive(Deserialize)]
    struct Estimate {
        point_estimate: f64,
        confidence_interval: Interval,
    }
    #[derive(Deserialize)]
    struct Interval {
        lower_bound: f64,
        upper_bound: f64,
    }
    let path = criterion_directory()?.join(benchmark).join("new/estimates.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    let Estimates { median } =
        serde_json::from_slice(&text).with_context(|| format!("{} holds no estimates", path.display()))?;
    let Interval { lower_bound, upper_bound } = median.confidence_interval;
    Ok(Some(Figure { median: median.point_estimate, lower: lower_bound, upper: upper_bound }))
}

/// A count as a floating-point number.
pub fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_and_of_many() {
        assert_eq!(Figure::of(Vec::new()), Figure::once(0.0));
        assert_eq!(Figure::of(vec![7.0]), Figure::once(7.0));
        let figure = Figure::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(figure, Figure { median: 50.0, lower: 25.0, upper: 75.0 });
    }
}
