//! Draws the four phases: the server's latency, the batch work's pages and the node's utilisation.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::colocation::phase::Phase;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const COLOURS: [RGBColor; 4] =
    [RGBColor(0x77, 0x77, 0x77), RGBColor(0xC0, 0x39, 0x2B), RGBColor(0xD6, 0x8A, 0x1A), RGBColor(0x2E, 0x8B, 0x57)];

/// Draws a bar for each phase in each of three diagrams.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn draw(file: &Path, phases: &[Phase]) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let p99: Vec<f64> = phases.iter().map(|phase| phase.percentile(99).as_secs_f64() * 1000.0).collect();
    let pages = phases.iter().map(|phase| phase.pages as f64 / phase.time.as_secs_f64().max(1e-9)).collect();
    let busy = phases.iter().map(|phase| phase.utilisation(cpus) * 100.0).collect();
    let names: Vec<&str> = phases.iter().map(|phase| phase.kind.name()).collect();
    let picture = SVGBackend::new(file, (960, 420)).into_drawing_area();
    let draw = || -> Result<(), String> {
        let text = |error: DrawingAreaErrorKind<_>| error.to_string();
        picture.fill(&WHITE).map_err(text)?;
        let picture = picture.titled("The same server, the same visitors", ("sans-serif", 20)).map_err(text)?;
        let (diagrams, legend) = picture.split_vertically(340);
        let columns = diagrams.split_evenly((1, 3));
        for (column, (title, values)) in columns.iter().zip([
            ("server's latency p99, ms", p99),
            ("batch work, pages a second", pages),
            ("node's CPUs busy, %", busy),
        ]) {
            bars(column, title, &values)?;
        }
        for (place, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
            let left = 24 + i32::try_from(place).unwrap_or(0) * 230;
            legend.draw(&Rectangle::new([(left, 10), (left + 14, 24)], colour.filled())).map_err(text)?;
            legend.draw(&Text::new(*name, (left + 20, 10), ("sans-serif", 15))).map_err(text)?;
        }
        picture.present().map_err(text)
    };
    draw().map_err(|error| anyhow!(error)).with_context(|| format!("{} cannot be drawn", file.display()))
}

fn bars(area: &Area<'_>, title: &str, values: &[f64]) -> Result<(), String> {
    let text = |error: DrawingAreaErrorKind<_>| error.to_string();
    let most = values.iter().copied().fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(title, ("sans-serif", 15))
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..values.len() as f64, 0.0..most * 1.15)
        .map_err(text)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .y_labels(5)
        .draw()
        .map_err(text)?;
    for (place, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
        let left = place as f64;
        chart
            .draw_series([Rectangle::new([(left + 0.15, 0.0), (left + 0.85, *value)], colour.filled())])
            .map_err(text)?;
        let label = Text::new(format!("{value:.0}"), (left + 0.35, *value + most * 0.06), ("sans-serif", 13));
        chart.draw_series([label]).map_err(text)?;
    }
    Ok(())
}
