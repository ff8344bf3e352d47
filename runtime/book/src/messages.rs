//! Checks messages in the documentation against the source of the programs.

use std::io;

use crate::repository::Repository;

/// Stands for a part of a message that varies.
const ANYTHING: char = '…';

/// The sources that contain the programs' messages.
#[derive(Debug)]
pub(crate) struct Messages {
    source: String,
}

impl Messages {
    /// Reads the sources of the runtime, the policies, the SDK, and the templates of the chart.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub(crate) fn read(repository: &Repository) -> io::Result<Self> {
        let mut source = String::new();
        for (below, suffix) in [("runtime", ".rs"), ("policies", ".rs"), ("sdk/rust", ".rs"), ("deploy/helm", ".yaml")]
        {
            for path in repository.files(below, suffix)? {
                // This crate's tests quote messages.
                if !path.starts_with("runtime/book/") {
                    source.push_str(&literal(&repository.text(&path)?));
                }
            }
        }
        Ok(Self { source })
    }

    /// The first piece of a message that does not occur in the sources.
    pub(crate) fn unsaid<'a>(&self, message: &'a str) -> Option<&'a str> {
        message.split(ANYTHING).map(str::trim).find(|piece| !piece.is_empty() && !self.source.contains(piece))
    }
}

/// Source text with string literals as they print: continued lines joined and quotes unescaped.
fn literal(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let after = after.strip_prefix('\\').unwrap_or(after);
        rest = match after.strip_prefix('\n') {
            Some(next) => next.trim_start(),
            None => match after.strip_prefix('n') {
                Some(next) => {
                    text.push('\n');
                    next
                }
                None => after,
            },
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_however_the_source_breaks_it() {
        let source = literal("error(\"policy `{name}` is not \\\n         loaded: \\\"{why}\\\"\")");
        let messages = Messages { source };
        assert_eq!(messages.unsaid("policy `…` is not loaded: \"…\""), None);
        assert_eq!(messages.unsaid("policy `…` is not here"), Some("` is not here"));
    }
}
