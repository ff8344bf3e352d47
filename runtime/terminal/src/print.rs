//! Standard output is data, standard error is for people: tables, JSON, errors with their causes.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints what happened, why, and (last of the chain) what lies beneath.
pub fn error(error: &anyhow::Error) {
    let mut chain = error.chain();
    let mut text = String::new();
    if let Some(first) = chain.next() {
        text.push_str(&format!("error: {first}\n"));
    }
    for cause in chain {
        text.push_str(&format!("  because: {cause}\n"));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether an error comes from a reader of standard output that has gone.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints a document for scripts to standard output.
///
/// # Errors
///
/// When standard output cannot be written, or a map's key is no text.
pub fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Prints text to standard output.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn text(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Rows under a head, as wide as the terminal allows.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // Cells come with a blank on each side; the first column starts at the margin.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}
