//! The detail view of a container: its last minutes, what is held on it and why, and what is not in force.

use std::time::Duration;

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline, Wrap};

use crate::amount::{age, bytes};
use crate::moment::{Moment, Row};

/// A chart of one number of a container over time.
struct Past {
    name: &'static str,
    of: fn(&Row) -> Option<f64>,
    shown: fn(f64) -> String,
    /// The top of the scale; `None` = the highest value that is shown.
    top: Option<f64>,
}

const PASTS: [Past; 4] = [
    Past { name: "CPUs used", of: |row| row.cpus, shown: |cpus| format!("{cpus:.2}"), top: None },
    Past { name: "periods throttled", of: |row| row.throttled_percent, shown: percent, top: Some(100.0) },
    Past { name: "memory", of: mebibytes, shown: |mib| format!("{mib:.0} MiB"), top: None },
    Past { name: "waiting for memory", of: |row| Some(row.pressure?.memory_percent), shown: percent, top: Some(100.0) },
];

fn percent(share: f64) -> String {
    format!("{share:.0} %")
}

fn mebibytes(row: &Row) -> Option<f64> {
    let mebibytes = u32::try_from(row.memory_bytes? >> 20).ok()?;
    Some(f64::from(mebibytes))
}

/// Draws a container with the moments up to the selected one.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, row: &Row, past: &[&Moment]) {
    let name = row.name();
    let rows: Vec<Option<&Row>> =
        past.iter().map(|moment| moment.containers.iter().find(|other| other.name() == name)).collect();
    let [title, bars, text] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(12), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled(heading(row), Style::new().add_modifier(Modifier::BOLD)), title);
    let places = Layout::vertical([Constraint::Length(3); PASTS.len()]).split(bars);
    for (past, place) in PASTS.iter().zip(places.iter()) {
        past.draw(frame, *place, row, &rows);
    }
    let now = past.last().and_then(|moment| moment.time.parse().ok());
    frame.render_widget(Paragraph::new(reasons(row, now)).wrap(Wrap { trim: false }), text);
}

impl Past {
    /// Draws the chart, with the newest moment at the right, and as many moments as there is room for.
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, row: &Row, rows: &[Option<&Row>]) {
        let all: Vec<Option<f64>> = rows.iter().map(|row| row.and_then(self.of)).collect();
        let shown = &all[all.len().saturating_sub(usize::from(area.width))..];
        let highest = shown.iter().flatten().copied().fold(0.0, f64::max);
        let now = (self.of)(row).map_or_else(|| "-".to_owned(), self.shown);
        let head = match self.top {
            Some(_) => format!("{} {now}", self.name),
            None => format!("{} {now}, at most {}", self.name, (self.shown)(highest)),
        };
        let top = self.top.unwrap_or(highest).max(f64::MIN_POSITIVE);
        let heights = shown.iter().map(|value| value.map(|value| thousandths(value / top)));
        let bars = Sparkline::default().block(Block::new().title(head)).max(1000).data(heights);
        frame.render_widget(bars.style(Style::new().fg(Color::Cyan)), area);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1")]
fn thousandths(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1000.0) as u64
}

fn heading(row: &Row) -> String {
    let mut text = format!("{}  class {}", row.name(), row.class);
    if row.paused {
        text.push_str("  paused: nothing is written to it");
    }
    let bounds = [
        ("min", row.memory_min_bytes),
        ("low", row.memory_low_bytes),
        ("high", row.memory_high_bytes),
        ("limit", row.memory_limit_bytes),
    ];
    let bounds: Vec<String> =
        bounds.into_iter().filter_map(|(name, bound)| Some(format!("{name} {}", bytes(bound?)))).collect();
    if !bounds.is_empty() {
        text.push_str(&format!("  memory {}", bounds.join(", ")));
    }
    text
}

/// Remarks, then what is held and why, the latest first, then what is not in force.
fn reasons(row: &Row, now: Option<Timestamp>) -> Vec<Line<'static>> {
    let mut held: Vec<_> = row.held.iter().collect();
    held.sort_by_key(|held| std::cmp::Reverse(held.since_millis));
    let mut lines = Vec::new();
    for remark in &row.remarks {
        let whose = match &*remark.level {
            "container" => String::new(),
            level => format!("the {level}'s "),
        };
        let what = format!("{whose}{}: what {} wanted is not done", remark.knob, remark.policy);
        lines.push(Line::styled(what, Style::new().fg(Color::Yellow)));
        lines.push(Line::raw(format!("    {}", remark.why)));
    }
    if held.is_empty() {
        lines.push(Line::raw("nothing is held"));
    }
    for held in held {
        let since = now.and_then(|now| {
            let millis = now.as_millisecond().checked_sub(held.since_millis)?;
            Some(format!(", for {}", age(Duration::from_millis(u64::try_from(millis).ok()?))))
        });
        lines.push(Line::from(vec![
            Span::styled(format!("{} = {}", held.knob, held.value), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!(" (was {}) by {}{}", held.baseline, held.policy, since.unwrap_or_default())),
        ]));
        lines.push(Line::raw(format!("    {}", held.reason)));
    }
    for refused in &row.refused {
        let what = format!("{} is not {}, as {} wants", refused.knob, refused.wanted, refused.policy);
        lines.push(Line::styled(what, Style::new().fg(Color::Yellow)));
        lines.push(Line::raw(format!("    {}", refused.why)));
    }
    lines
}
