//! Charts as SVG text: lines or grouped bars, two axes, a legend.
//!
//! Our own writer, because that is all the experiments draw, and a chart library brings fonts and
//! raster images with it. A page holds any number of charts, one below the other.

mod axis;

use std::fmt::Write;

use axis::Axis;

/// How a chart's series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Points joined by lines.
    Lines,
    /// A group of bars at each x, a bar a series.
    Bars,
}

/// A named row of points.
#[derive(Clone, Debug)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    /// Drawn with dashes: numbers of another system beside ours.
    theirs: bool,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    form: Form,
    across: String,
    up: String,
    log: (bool, bool),
    names: Vec<String>,
    series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Told apart by most eyes, also in grey.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

impl Chart {
    /// Lines over a numeric axis; the names of the axes carry their units.
    pub(crate) fn lines(title: &str, across: &str, up: &str) -> Self {
        Self::of(Form::Lines, title, across, up)
    }

    /// A group of bars a name.
    pub(crate) fn bars(title: &str, up: &str, names: Vec<String>) -> Self {
        Self { names, ..Self::of(Form::Bars, title, "", up) }
    }

    fn of(form: Form, title: &str, across: &str, up: &str) -> Self {
        Self {
            title: title.to_owned(),
            form,
            across: across.to_owned(),
            up: up.to_owned(),
            log: (false, false),
            names: Vec::new(),
            series: Vec::new(),
        }
    }

    /// With logarithmic axes, across and up. Points at or below 0 on such an axis are left out.
    pub(crate) fn log(mut self, across: bool, up: bool) -> Self {
        self.log = (across, up);
        self
    }

    /// With our numbers.
    pub(crate) fn with(self, name: &str, points: Vec<(f64, f64)>) -> Self {
        self.series(name, points, false)
    }

    /// With numbers of others, drawn with dashes.
    pub(crate) fn beside(self, name: &str, points: Vec<(f64, f64)>) -> Self {
        self.series(name, points, true)
    }

    fn series(mut self, name: &str, mut points: Vec<(f64, f64)>, theirs: bool) -> Self {
        points.retain(|(x, y)| {
            let shown = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
            shown(*x, self.log.0) && shown(*y, self.log.1)
        });
        self.series.push(Series { name: name.to_owned(), points, theirs });
        self
    }

    /// Whether there is nothing to show.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// All charts as one SVG document.
    pub(crate) fn page(charts: &[Self]) -> String {
        let height = HEIGHT * charts.len().max(1) as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        for (number, chart) in charts.iter().enumerate() {
            let _ = writeln!(out, "<g transform=\"translate(0 {})\">", HEIGHT * number as f64);
            chart.draw(&mut out);
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw(&self, out: &mut String) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (wide, high) = (LEFT..WIDTH - RIGHT, (HEIGHT - BOTTOM)..TOP);
        let across = match self.form {
            Form::Lines => Axis::of(points().map(|(x, _)| *x), self.log.0, false, wide.clone()),
            Form::Bars => Axis::groups(self.names.len(), wide.clone()),
        };
        let up = Axis::of(points().map(|(_, y)| *y), self.log.1, true, high.clone());
        text(
            out,
            LEFT,
            20.0,
            "start",
            &format!("<tspan font-weight=\"bold\">{}</tspan>", escaped(&self.title)),
        );
        text(out, (wide.start + wide.end) / 2.0, HEIGHT - 12.0, "middle", &escaped(&self.across));
        let middle = (high.start + high.end) / 2.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(&self.up)
        );
        for tick in up.ticks() {
            let y = up.at(tick);
            line(out, (wide.start, y), (wide.end, y), "#dddddd");
            text(out, wide.start - 6.0, y + 4.0, "end", &axis::label(tick));
        }
        line(out, (wide.start, high.start), (wide.end, high.start), "#333333");
        line(out, (wide.start, high.start), (wide.start, high.end), "#333333");
        match self.form {
            Form::Lines => {
                for tick in across.ticks() {
                    let x = across.at(tick);
                    line(out, (x, high.start), (x, high.start + 4.0), "#333333");
                    text(out, x, high.start + 18.0, "middle", &axis::label(tick));
                }
            }
            Form::Bars => {
                for (number, name) in self.names.iter().enumerate() {
                    let x = across.at(number as f64);
                    text(out, x, high.start + 18.0, "middle", &escaped(name));
                }
            }
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            match self.form {
                Form::Lines => series.lines(out, &across, &up, colour),
                Form::Bars => {
                    let slot = (number, self.series.len());
                    series.columns(out, &across, &up, slot, (colour, high.start));
                }
            }
            series.legend(out, TOP + 18.0 * number as f64, colour);
        }
    }
}

impl Series {
    fn dashes(&self) -> &'static str {
        if self.theirs { " stroke-dasharray=\"5 4\"" } else { "" }
    }

    fn lines(&self, out: &mut String, across: &Axis, up: &Axis, colour: &str) {
        let mut path = String::new();
        for (x, y) in &self.points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (across.at(*x), up.at(*y));
            let _ = write!(path, "{step}{x:.1} {y:.1}");
            // Of a long row the line is enough.
            if self.points.len() <= 40 {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }
        }
        let dashes = self.dashes();
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>"
        );
    }

    /// Its bar of each group: the `slot.0`-th of `slot.1`.
    fn columns(
        &self,
        out: &mut String,
        across: &Axis,
        up: &Axis,
        slot: (usize, usize),
        (colour, floor): (&str, f64),
    ) {
        let group = across.at(1.0) - across.at(0.0);
        let width = group * 0.8 / slot.1 as f64;
        let opacity = if self.theirs { 0.45 } else { 1.0 };
        for (x, y) in &self.points {
            let left = across.at(*x) - group * 0.4 + width * slot.0 as f64;
            let top = up.at(*y);
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{colour}\" fill-opacity=\"{opacity}\"/>",
                width * 0.95,
                (floor - top).max(0.0)
            );
        }
    }

    fn legend(&self, out: &mut String, y: f64, colour: &str) {
        let (x, dashes) = (WIDTH - RIGHT + 16.0, self.dashes());
        let _ = writeln!(
            out,
            "<path d=\"M{x} {y}h20\" stroke=\"{colour}\" stroke-width=\"3\"{dashes}/>"
        );
        text(out, x + 26.0, y + 4.0, "start", &escaped(&self.name));
    }
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
