//! Third-party text in messages: names and descriptions from modules, artefacts and manifests, which appear in logs and
//! on terminals.

use std::fmt::{self, Write};

/// Maximum number of characters of a name that are shown.
pub const NAME: usize = 100;

/// Makes third-party text safe to show: cuts it to `most` characters, and escapes those that control a terminal or
/// reorder the text. A shortened text is followed by its original length.
///
/// ```
/// use qosm_model::foreign::shown;
///
/// assert_eq!(shown("cpu-burst", 20), "cpu-burst");
/// assert_eq!(shown("\u{1b}[2Jgone\n", 20), "\\u{1b}[2Jgone\\n");
/// assert_eq!(shown(&"x".repeat(1_000_000), 4), "xxxx… (1000000 bytes)");
/// ```
pub fn shown(text: &str, most: usize) -> String {
    Shown { text, most }.to_string()
}

/// Like [`shown`], for a name: at most [`NAME`] characters.
pub fn name(text: &str) -> Shown<'_> {
    Shown { text, most: NAME }
}

/// Displays third-party text safely.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'t> {
    text: &'t str,
    most: usize,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, char) in self.text.chars().enumerate() {
            if count == self.most {
                return write!(f, "… ({} bytes)", self.text.len());
            }
            match char {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                char if is_unsafe(char) => write!(f, "\\u{{{:x}}}", u32::from(char))?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// Whether a character is interpreted rather than shown: control characters, characters that change the direction of text
/// or join or hide others, line ends of Unicode, and code points without a visible character.
pub fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        for (text, fit) in [
            ("plain, ünïcödé 日本 🙂", "plain, ünïcödé 日本 🙂"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\\u{202e}b\\u{2066}c\\u{200f}"),
            ("one\u{2028}two\r\n\u{0}", "one\\u{2028}two\\r\\n\\u{0}"),
            ("in\u{200b}vis\u{feff}ible\u{e0041}", "in\\u{200b}vis\\u{feff}ible\\u{e0041}"),
        ] {
            assert_eq!(shown(text, 100), fit);
        }
    }

    #[test]
    fn a_shortened_text_says_how_long_it_was() {
        assert_eq!(shown("12345", 5), "12345");
        assert_eq!(shown("äöü45x", 5), "äöü45… (9 bytes)");
        assert!(name(&"n".repeat(90_000)).to_string().len() < 150);
    }
}
