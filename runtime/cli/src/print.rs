//! What people see: tables, JSON, errors.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// It was asked wrongly: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Prints what happened, why, and (last of the chain) what lies beneath.
pub(crate) fn error(error: &anyhow::Error) {
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

pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints a document for scripts.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Prints text to standard output.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Rows under a head, as wide as the terminal allows.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // Cells come with a blank on each side; the first column starts at the margin.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}
