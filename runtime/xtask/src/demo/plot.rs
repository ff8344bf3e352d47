//! Draws both phases: throttling, latency, quota and burst by second.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::demo::measure::{Phase, Second, percent, percentile};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const RED: RGBColor = RGBColor(0xC0, 0x39, 0x2B);
const BLUE: RGBColor = RGBColor(0x1F, 0x6F, 0xB2);
const GREEN: RGBColor = RGBColor(0x2E, 0x8B, 0x57);
const GREY: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// A line in a diagram: name, colour, width, and a value for each second.
type Line<'a> = (&'a str, RGBColor, u32, Vec<(f64, f64)>);

/// Draws the phases one after the other.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn draw(file: &Path, phases: &[&Phase]) -> Result<()> {
    let width = phases.iter().map(|phase| phase.seconds.len()).sum::<usize>() as f64;
    let mut seconds: Vec<(f64, &Second)> = Vec::new();
    let mut borders = Vec::new();
    for phase in phases {
        borders.push((seconds.len() as f64, phase.policy));
        seconds.extend((seconds.len() + 1..).map(|at| at as f64).zip(&phase.seconds));
    }
    let line = |value: &dyn Fn(&Second) -> Option<f64>| -> Vec<(f64, f64)> {
        seconds.iter().filter_map(|(at, second)| Some((*at, value(second)?))).collect()
    };
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let throttled = line(&|second| Some(percent(second.throttled, second.periods)));
    let p99 = line(&|second| Some(millis(percentile(&second.latencies, 99))).filter(|_| !second.latencies.is_empty()));
    let p50 = line(&|second| Some(millis(percentile(&second.latencies, 50))).filter(|_| !second.latencies.is_empty()));
    let quota = line(&|second| second.quota.map(millis));
    let burst = line(&|second| second.burst.map(millis));
    let used = line(&|second| Some(millis(second.usage) / 10.0));

    let picture = SVGBackend::new(file, (960, 720)).into_drawing_area();
    let draw = || -> Result<(), String> {
        let text = |error: DrawingAreaErrorKind<_>| error.to_string();
        picture.fill(&WHITE).map_err(text)?;
        let picture =
            picture.titled("CPU Burst: the same load, one annotation changed", ("sans-serif", 20)).map_err(text)?;
        let rows = picture.split_evenly((3, 1));
        panel(&rows[0], "throttled periods, %", width, &borders, &[("throttled", RED, 2, throttled)])?;
        panel(&rows[1], "latency, ms", width, &borders, &[("p99", RED, 2, p99), ("p50", BLUE, 2, p50)])?;
        // Burst often equals the quota, whose broader line stays visible below it.
        let lines = [("quota", BLUE, 5, quota), ("burst", GREEN, 2, burst), ("used", GREY, 2, used)];
        panel(&rows[2], "CPU time each 100 ms, ms", width, &borders, &lines)?;
        picture.present().map_err(text)
    };
    draw().map_err(|error| anyhow!(error)).with_context(|| format!("{} cannot be drawn", file.display()))
}

/// Draws one diagram, with a mark at the start of each phase.
fn panel(area: &Area<'_>, title: &str, width: f64, borders: &[(f64, &str)], lines: &[Line<'_>]) -> Result<(), String> {
    let text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let most = lines.iter().flat_map(|(_, _, _, points)| points).map(|(_, value)| *value).fold(1.0, f64::max);
    let height: Range<f64> = 0.0..most * 1.15;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(title, ("sans-serif", 14))
        .x_label_area_size(24)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..width, height.clone())
        .map_err(text)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).x_labels(14).y_labels(5);
    mesh.y_label_formatter(&|value| format!("{value:.0}"));
    mesh.x_label_formatter(&|at| format!("{at:.0} s")).draw().map_err(text)?;
    for (at, policy) in borders {
        let mark = [(*at, height.start), (*at, height.end)];
        chart.draw_series(LineSeries::new(mark, GREY.stroke_width(1))).map_err(text)?;
        let label = Text::new(format!("policy {policy}"), (*at + 0.4, height.end * 0.98), ("sans-serif", 13));
        chart.draw_series([label]).map_err(text)?;
    }
    for (name, colour, width, points) in lines {
        let style = colour.stroke_width(*width);
        let series = chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(text)?;
        series.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8)).draw().map_err(text)
}
