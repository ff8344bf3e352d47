//! Prints tables, JSON and errors with their causes. Data goes to standard output, messages to users go to standard error.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints an error and its causes to standard error.
pub fn error(error: &anyhow::Error) {
    note(&with_causes(error));
}

/// An error and its causes, one a line, without those that the line above tells already.
fn with_causes(error: &anyhow::Error) -> String {
    let mut above = error.to_string();
    let mut text = format!("error: {above}");
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if above.contains(&cause) {
            continue;
        }
        text.push_str(&format!("\n  because: {cause}"));
        above = cause;
    }
    text
}

/// Prints a line for users to standard error, escaped as by [`text`]. A closed standard error is ignored.
pub fn note(line: &str) {
    let _ = std::io::stderr().write_all(format!("{}\n", harmless(line)).as_bytes());
}

/// Whether an error comes from a closed reader of standard output.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints a document as JSON to standard output.
///
/// # Errors
///
/// If standard output cannot be written, or a map's key is not a string.
pub fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Prints text to standard output. Control characters are escaped, since reasons, names and messages come from third parties.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn text(text: &str) -> anyhow::Result<()> {
    bytes(harmless(text).as_bytes())
}

/// Escapes control characters, except line feeds and tabs.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let shown = |text: &mut String, char: char| match acts(char) {
        true => text.extend(char.escape_default()),
        false => text.push(char),
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut all, char| {
        shown(&mut all, char);
        all
    }))
}

/// Prints bytes to standard output unchanged.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(bytes)?;
    Ok(())
}

/// The width of the terminal in characters; `None` if standard output is not a terminal, so that lines may have any length.
pub fn width() -> Option<u16> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    size.map(|size| size.ws_col).filter(|width| *width > 0)
}

/// A table of rows under a header. On a terminal, cells are wrapped so that a row fits; elsewhere each row is a line.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table_within(width(), head, rows)
}

fn table_within(width: Option<u16>, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        // One more column, for the margin that is cut off below.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_add(1));
    }
    table.set_header(head.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // Cells have a blank on each side; the first column's left one is removed.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_line_above_tells_is_left_out() {
        let error = anyhow::anyhow!("no such file (os error 2)")
            .context("cannot read /x: no such file (os error 2)")
            .context("no kubeconfig: cannot read /x: no such file (os error 2)")
            .context("the cluster cannot be reached");
        assert_eq!(
            with_causes(&error),
            "error: the cluster cannot be reached\n  because: no kubeconfig: cannot read /x: no such file (os error 2)"
        );
        let error = anyhow::anyhow!("permission denied").context("cannot make the folder /x");
        assert_eq!(with_causes(&error), "error: cannot make the folder /x\n  because: permission denied");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_shown() {
        for (text, shown) in [
            ("a\tb\n", "a\tb\n"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("title\u{7}\r", "title\\u{7}\\r"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("größer", "größer"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }

    #[test]
    fn a_table_fits_the_terminal_and_is_a_line_a_row_elsewhere() {
        let rows = || [vec!["default/web".to_owned(), "word ".repeat(40).trim_end().to_owned()]];
        let lines = table_within(None, &["pod", "reason"], rows());
        assert_eq!(lines.lines().count(), 2, "{lines}");
        let broken = table_within(Some(60), &["pod", "reason"], rows());
        assert!(broken.lines().count() > 3 && broken.lines().all(|line| line.chars().count() <= 60), "{broken}");
    }
}
