//! One axis: from values to points on the paper, and where its ticks are.

use std::ops::Range;

/// Ticks wanted on a linear axis.
const TICKS: f64 = 5.0;

/// One axis of a chart.
#[derive(Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    log: bool,
    paper: Range<f64>,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis over these values, along `paper`, whose start may be the larger end. With `zero` a
    /// linear axis starts at 0.
    pub(super) fn of(
        values: impl Iterator<Item = f64>,
        log: bool,
        zero: bool,
        paper: Range<f64>,
    ) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            from = from.min(value);
            to = to.max(value);
        }
        if !from.is_finite() {
            // Nothing to show.
            (from, to) = (1.0, 10.0);
        }
        if log {
            let (low, high) = (from.log10().floor(), to.log10().ceil());
            let high = if high > low { high } else { low + 1.0 };
            let ticks = (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect();
            return Self { from: 10f64.powf(low), to: 10f64.powf(high), log, paper, ticks };
        }
        if zero {
            from = from.min(0.0);
        }
        if to <= from {
            to = from + 1.0;
        }
        let step = nice((to - from) / TICKS);
        let (first, last) = ((from / step).floor(), (to / step).ceil());
        let ticks: Vec<f64> = (first as i64..=last as i64).map(|at| at as f64 * step).collect();
        Self { from: first * step, to: last * step, log, paper, ticks }
    }

    /// An axis of so many groups, at 0, 1, 2, ...
    pub(super) fn groups(count: usize, paper: Range<f64>) -> Self {
        let to = count.max(1) as f64 - 0.5;
        Self { from: -0.5, to, log: false, paper, ticks: Vec::new() }
    }

    /// Where a value is on the paper.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.paper.start + part * (self.paper.end - self.paper.start)
    }

    /// Its ticks, as values.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().copied()
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let leading = step / power;
    let leading = [1.0, 2.0, 5.0].into_iter().find(|nice| leading <= *nice + 1e-9);
    leading.unwrap_or(10.0) * power
}

/// A tick's label: short, thousands and millions with a letter.
pub(super) fn label(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_starts_at_nothing_and_ends_above_the_most() {
        let axis = Axis::of([3.0, 97.0].into_iter(), false, true, 0.0..100.0);
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert!((axis.at(50.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_logarithmic_axis_has_a_tick_a_power() {
        let axis = Axis::of([0.5, 120.0].into_iter(), true, true, 100.0..0.0);
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks, [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.at(10.0) - 50.0).abs() < 1e-9, "{}", axis.at(10.0));
    }

    #[test]
    fn any_values_make_an_axis() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![-3.0, 2.0], vec![1e-9, 1e12]] {
            for log in [false, true] {
                let shown = values.iter().copied().filter(|value| !log || *value > 0.0);
                let axis = Axis::of(shown, log, true, 0.0..1.0);
                assert!(axis.ticks().count() < 40, "{values:?}");
                assert!(axis.at(axis.from).abs() < 1e-9 && (axis.at(axis.to) - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.5, 20.0, 1500.0, 20_000.0, 3e6, 2.5e9].map(label);
        assert_eq!(labels, ["0", "0.5", "20", "1500", "20k", "3M", "2.5G"]);
    }
}
