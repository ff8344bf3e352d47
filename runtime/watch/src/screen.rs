//! The screen and its keys, the same for a running agent and for a recording.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row as TableRow, Table, TableState};

use crate::amount::bytes;
use crate::detail;
use crate::moment::{Moment, Row};
use crate::table::{Filter, NAME_TITLE, Order, fitting, rows, shortened, why};

/// Share of throttled periods, in percent, from which a container is marked.
const MUCH_THROTTLED: f64 = 10.0;
/// The keys, for the last line.
const KEYS: &str = "q quit  ↑↓ choose  ⏎ look closer  s order  / find  space stop  ←→ back and forth  end now";

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Draw the screen again.
    Draw,
    /// Quit.
    Quit,
}

/// State of the screen.
#[derive(Debug, Default)]
pub struct Screen {
    /// The moments that are kept, the oldest first.
    moments: VecDeque<Moment>,
    /// Maximum number of moments that are kept.
    most: usize,
    /// Index of the selected moment; `None` = always the newest.
    at: Option<usize>,
    order: Order,
    filter: Filter,
    /// The search text while it is being typed.
    typed: Option<String>,
    /// Name of the selected container; its place in the list changes.
    chosen: Option<String>,
    /// Whether the detail view of the selected container is shown.
    is_close: bool,
    /// Where the moments come from.
    title: String,
    /// Why there is no next moment; `None` if nothing is wrong.
    trouble: Option<String>,
}

impl Screen {
    /// Creates a screen without moments. At most `most` moments are kept.
    pub fn new(title: String, filter: Filter, order: Order, most: usize) -> Self {
        Self { title, filter, order, most: most.max(1), ..Self::default() }
    }

    /// Adds the next moment.
    pub fn take(&mut self, mut moment: Moment) {
        self.trouble = None;
        if let Some(before) = self.moments.back() {
            moment.share_with(before);
        }
        if self.moments.len() == self.most {
            self.moments.pop_front();
            // The selected moment stays selected as long as it is kept.
            self.at = self.at.map(|at| at.saturating_sub(1));
        }
        self.moments.push_back(moment);
    }

    /// Shows why there is no next moment.
    pub fn trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) -> After {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return After::Quit;
        }
        if let Some(typed) = &mut self.typed {
            match key.code {
                KeyCode::Enter => self.typed = None,
                KeyCode::Esc => (self.typed, self.filter.name) = (None, String::new()),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Char(letter) => typed.push(letter),
                _ => {}
            }
            if let Some(typed) = &self.typed {
                self.filter.name.clone_from(typed);
            }
            return After::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return After::Quit,
            KeyCode::Esc if self.is_close => self.is_close = false,
            KeyCode::Esc => return After::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-20),
            KeyCode::PageDown => self.choose(20),
            KeyCode::Enter => self.is_close = !self.is_close && self.chosen_row().is_some(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.typed = Some(self.filter.name.clone()),
            KeyCode::Char(' ') => self.at = self.at.map_or_else(|| self.moments.len().checked_sub(1), |_| None),
            KeyCode::Left => self.go(-1),
            KeyCode::Right => self.go(1),
            KeyCode::Home => self.at = Some(0),
            KeyCode::End => self.at = None,
            _ => {}
        }
        After::Draw
    }

    fn place(&self) -> usize {
        let newest = self.moments.len().saturating_sub(1);
        self.at.map_or(newest, |at| at.min(newest))
    }

    fn now(&self) -> Option<&Moment> {
        self.moments.get(self.place())
    }

    /// Selects another moment; from the newest on, the screen follows the newest.
    fn go(&mut self, by: isize) {
        let next = self.place().saturating_add_signed(by);
        self.at = (next + 1 < self.moments.len()).then_some(next);
    }

    fn choose(&mut self, by: isize) {
        let Some(moment) = self.now() else { return };
        let rows = rows(moment, &self.filter, self.order);
        let place = self.chosen.as_ref().and_then(|name| rows.iter().position(|row| row.name() == *name));
        let next = place.map_or(0, |place| place.saturating_add_signed(by)).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(next).map(|row| row.name());
    }

    fn chosen_row(&self) -> Option<&Row> {
        let name = self.chosen.as_ref()?;
        self.now()?.containers.iter().find(|row| row.name() == *name)
    }

    /// Draws the screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        match (self.now(), self.chosen_row()) {
            (Some(_), Some(row)) if self.is_close => {
                let past: Vec<&Moment> = self.moments.iter().take(self.place() + 1).collect();
                detail::draw(frame, body, row, &past);
            }
            (Some(moment), _) => self.draw_rows(frame, body, moment),
            (None, _) => frame.render_widget(Paragraph::new("waiting for the second look"), body),
        }
        let foot_text = match (&self.trouble, &self.typed) {
            (Some(why), _) => Line::styled(why.clone(), Style::new().fg(Color::Red)),
            (None, Some(typed)) => Line::raw(format!("find: {typed}▏  ⏎ keep, esc all")),
            (None, None) => Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(Paragraph::new(foot_text), foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let Some(moment) = self.now() else { return vec![Line::raw(self.title.clone())] };
        let place = match self.at {
            Some(at) => format!("{} of {}, stopped", at + 1, self.moments.len()),
            None => format!("{:.1} s", moment.seconds),
        };
        let busy = moment.busy_cpus.map_or_else(|| "?".to_owned(), |cpus| format!("{cpus:.1}"));
        let memory = moment.memory_used_bytes.zip(moment.memory_bytes);
        let memory = memory.map_or_else(|| "?".to_owned(), |(used, all)| format!("{} of {}", bytes(used), bytes(all)));
        let throttled = moment.containers.iter().filter(|row| is_throttled(row)).count();
        let held: usize = moment.containers.iter().map(|row| row.held.len()).sum();
        let refused: usize = moment.containers.iter().map(|row| row.refused.len()).sum();
        vec![
            Line::from(vec![
                Span::styled(self.title.clone(), Style::new().add_modifier(Modifier::BOLD)),
                Span::raw(format!("  {}  ({place})", moment.time)),
            ]),
            Line::raw(format!(
                "CPUs {busy} of {}  memory {memory}  containers {}: {throttled} throttled, {held} knobs held, {refused} refused  by {}",
                moment.cpus,
                moment.containers.len(),
                self.order.as_str()
            )),
        ]
    }

    fn draw_rows(&self, frame: &mut Frame<'_>, area: Rect, moment: &Moment) {
        let rows = rows(moment, &self.filter, self.order);
        if rows.is_empty() {
            frame.render_widget(Paragraph::new("no container is like that"), area);
            return;
        }
        let (columns, names, reason) = fitting(area.width);
        let titles = std::iter::once(NAME_TITLE).chain(columns.iter().map(|column| column.title));
        let head = TableRow::new(titles.chain(reason.map(|_| "WHY"))).style(Style::new().add_modifier(Modifier::BOLD));
        let widths = std::iter::once(names).chain(columns.iter().map(|column| column.width)).chain(reason);
        let lines = rows.iter().map(|row| {
            let cells = std::iter::once(shortened(&row.name(), usize::from(names)))
                .chain(columns.iter().map(|column| (column.cell)(row)));
            let style =
                if is_throttled(row) || row.oom_kills > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };
            TableRow::new(cells.chain(reason.map(|_| why(row)))).style(style)
        });
        let table = Table::new(lines, widths.map(Constraint::Length))
            .header(head)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let chosen = self.chosen.as_ref().and_then(|name| rows.iter().position(|row| row.name() == *name));
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
    }
}

fn is_throttled(row: &Row) -> bool {
    row.throttled_percent.is_some_and(|share| share >= MUCH_THROTTLED)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::moment::tests::node;

    fn screen() -> Screen {
        let mut screen = Screen::new("node-7".to_owned(), Filter::default(), Order::default(), 3);
        for second in [2, 4, 6] {
            screen.take(Moment::between(&node(second - 2), &node(second)));
        }
        screen
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) -> After {
        keys.iter().map(|key| screen.press(KeyEvent::from(*key))).last().unwrap()
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| format!("{}\n", line(y).trim_end())).collect()
    }

    #[test]
    fn a_wide_terminal_has_all_columns() {
        insta::assert_snapshot!(drawn(&screen(), 200, 7));
    }

    #[test]
    fn a_narrow_terminal_has_those_that_matter() {
        insta::assert_snapshot!(drawn(&screen(), 60, 7));
    }

    #[test]
    fn one_container_has_its_past_and_its_reasons() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Char('s'), KeyCode::Down, KeyCode::Enter]);
        insta::assert_snapshot!(drawn(&screen, 100, 24));
    }

    #[test]
    fn keys_choose_find_stop_and_leave() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, &[KeyCode::Down, KeyCode::Down]), After::Draw);
        assert_eq!(screen.chosen.as_deref(), Some("shop/web/app"));
        press(&mut screen, &[KeyCode::Char('/'), KeyCode::Char('j'), KeyCode::Char('o'), KeyCode::Enter]);
        assert!(!drawn(&screen, 80, 6).contains("web"));
        press(&mut screen, &[KeyCode::Char('/'), KeyCode::Esc]);
        assert!(drawn(&screen, 80, 6).contains("web"));
        press(&mut screen, &[KeyCode::Enter]);
        assert!(screen.is_close);
        assert_eq!(press(&mut screen, &[KeyCode::Esc]), After::Draw);
        assert_eq!(press(&mut screen, &[KeyCode::Esc]), After::Quit);
        assert_eq!(press(&mut screen, &[KeyCode::Char('q')]), After::Quit);
    }

    #[test]
    fn what_is_looked_at_stays_while_moments_come() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Left]);
        assert_eq!(screen.at, Some(1));
        screen.take(Moment::between(&node(6), &node(8)));
        assert_eq!(screen.at, Some(0));
        screen.take(Moment::between(&node(8), &node(10)));
        assert_eq!(screen.at, Some(0), "it is gone: the oldest that is left");
        press(&mut screen, &[KeyCode::Right, KeyCode::Right]);
        assert_eq!(screen.at, None, "the newest");
        press(&mut screen, &[KeyCode::Char(' ')]);
        assert_eq!(screen.at, Some(2));
        press(&mut screen, &[KeyCode::End]);
        assert_eq!(screen.at, None);
    }

    #[test]
    fn every_size_can_be_drawn() {
        let mut screen = screen();
        for close in [false, true] {
            for (width, height) in [(1, 1), (5, 3), (20, 10), (59, 24), (300, 60)] {
                drawn(&screen, width, height);
            }
            press(&mut screen, &[KeyCode::Down, KeyCode::Enter]);
            assert!(close || screen.is_close);
        }
        let mut empty = Screen::new("node-7".to_owned(), Filter::default(), Order::default(), 0);
        press(&mut empty, &[KeyCode::Down, KeyCode::Enter, KeyCode::Left, KeyCode::Char(' ')]);
        empty.trouble("no agent answers".to_owned());
        assert!(drawn(&empty, 40, 4).contains("no agent answers"));
    }
}
