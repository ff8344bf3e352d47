//! Parses text into JSON values: YAML streams, JSON, or both mixed.

use serde_json::Value;

/// One document of a stream.
pub(crate) struct Document {
    /// Position among the non-empty documents, from 1.
    pub(crate) number: usize,
    /// The value, or the error.
    pub(crate) value: Result<Value, String>,
}

/// Splits a stream and reads each document separately, so that a broken document does not affect the others.
pub(crate) fn documents(text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    for (first_line, piece) in pieces(text) {
        for value in values(first_line, piece) {
            if !matches!(value, Ok(Value::Null)) {
                documents.push(Document { number: documents.len() + 1, value });
            }
        }
    }
    documents
}

/// The pieces between lines that start a document, each with the number of lines before it.
fn pieces(text: &str) -> Vec<(u64, &str)> {
    let mut pieces = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 0, 0);
    for (line_number, line) in (0u64..).zip(text.split_inclusive('\n')) {
        let marks =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        let before = &text[start..at];
        // A directive belongs to the document that the next `---` starts.
        if marks && !before.trim_start().starts_with('%') {
            pieces.push((start_line, before));
            (start, start_line) = (at, line_number);
        }
        at += line.len();
    }
    pieces.push((start_line, &text[start..]));
    pieces.retain(|(_, piece)| !is_blank(piece));
    pieces
}

fn is_blank(piece: &str) -> bool {
    let piece = piece.strip_prefix("---").unwrap_or(piece);
    piece.lines().all(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    })
}

fn values(first_line: u64, piece: &str) -> Vec<Result<Value, String>> {
    let json = piece.strip_prefix("---").unwrap_or(piece).trim_start();
    if json.starts_with('{') {
        let mut values = Vec::new();
        for value in serde_json::Deserializer::from_str(json).into_iter::<Value>() {
            match value {
                Ok(value) => values.push(Ok(value)),
                // Braces are valid YAML, so try that parser.
                Err(json) if values.is_empty() => {
                    let yaml = yaml(first_line, piece);
                    return vec![yaml.map_err(|yaml| format!("it is not JSON ({json}), and {yaml}"))];
                }
                Err(error) => {
                    values.push(Err(format!("it is not JSON ({error}, counted from where its document begins)")));
                    break;
                }
            }
        }
        return values;
    }
    vec![yaml(first_line, piece)]
}

/// Reads one YAML document within `serde-saphyr`'s budgets of depth, nodes, anchors and aliases.
fn yaml(first_line: u64, piece: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_str_with_options(piece, options).map_err(|error| {
        let mut message = error.to_string().replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        if let Some(place) = error.location() {
            let suffix = format!(" at line {}, column {}", place.line(), place.column());
            message = message.strip_suffix(&suffix).unwrap_or(&message).to_owned();
            let line = place.line() + first_line;
            message = format!("{message}, at line {line}, column {}", place.column());
        }
        format!("it is not YAML ({message})")
    })
}
