//! Translation of Go's regular expressions (RE2's syntax) to the syntax of the crate `regex`.
//!
//! The two differ in details. In Go, `\d`, `\s`, `\w` and `\b` are ASCII only, `[` needs no escape in a class, `\Q..\E`
//! quotes, octal escapes exist, repetition operators cannot be stacked, and counts are at most 1000.

use std::fmt::Write;

/// The largest count of a repetition.
const MAX_REPEATS: u32 = 1_000;

/// Translates an expression to the syntax of the crate `regex`.
///
/// # Errors
///
/// If Go does not accept the expression.
pub(crate) fn translate(pattern: &str) -> Result<Translated, &'static str> {
    let text = String::with_capacity(pattern.len());
    let mut translator = Translator {
        rest: pattern,
        text,
        after_repeat: false,
        groups: 0,
        names: Vec::new(),
        folds_case: false,
        classes: 0,
        unicode_classes: 0,
    };
    while let Some(c) = translator.take() {
        translator.item(c)?;
    }
    let Translator { text, names, folds_case, classes, unicode_classes, .. } = translator;
    Ok(Translated { text, names, folds_case, classes, unicode_classes })
}

/// An expression in the syntax of the crate `regex`.
pub(crate) struct Translated {
    pub(crate) text: String,
    /// Names of groups, with the groups' numbers.
    pub(crate) names: Vec<(String, usize)>,
    /// Whether any part of the expression ignores letter case.
    pub(crate) folds_case: bool,
    /// The number of its classes; `unicode_classes` of them are defined by Unicode.
    pub(crate) classes: usize,
    pub(crate) unicode_classes: usize,
}

struct Translator<'a> {
    rest: &'a str,
    text: String,
    /// Whether the preceding item is a repetition operator.
    after_repeat: bool,
    /// Number of groups so far.
    groups: usize,
    names: Vec<(String, usize)>,
    folds_case: bool,
    classes: usize,
    unicode_classes: usize,
}

impl<'a> Translator<'a> {
    fn item(&mut self, c: char) -> Result<(), &'static str> {
        let after_repeat = std::mem::take(&mut self.after_repeat);
        match c {
            '*' | '+' | '?' => {
                self.text.push(c);
                self.repeated(after_repeat)
            }
            '{' => match self.counts()? {
                Some(counts) => {
                    self.text.push_str(counts);
                    self.repeated(after_repeat)
                }
                None => self.literal('{'),
            },
            '(' => self.group(),
            '[' => self.class(),
            '\\' => self.escape(),
            ')' | '|' | '.' | '^' | '$' => {
                self.text.push(c);
                Ok(())
            }
            _ => self.literal(c),
        }
    }

    /// Reads what follows a repetition operator: an optional `?`, which makes it lazy, and no other operator.
    fn repeated(&mut self, after_repeat: bool) -> Result<(), &'static str> {
        if after_repeat {
            return Err("invalid nested repetition operator");
        }
        if self.took("?") {
            self.text.push('?');
        }
        self.after_repeat = true;
        Ok(())
    }

    /// Reads `{2}`, `{2,}` or `{2,5}` after its brace; `None` for anything else, which is plain text.
    fn counts(&mut self) -> Result<Option<&'a str>, &'static str> {
        let rest = self.rest;
        let Some((inner, after)) = rest.split_once('}') else { return Ok(None) };
        let (least, most) = inner
            .split_once(',')
            .map_or((inner, Some(inner)), |(least, most)| (least, Some(most).filter(|most| !most.is_empty())));
        let is_count = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && (text.len() == 1 || !text.starts_with('0'))
        };
        if !is_count(least) || !most.is_none_or(is_count) {
            return Ok(None);
        }
        let number = |text: &str| text.parse().ok().filter(|count: &u32| *count <= MAX_REPEATS);
        let counts = (number(least), most.map(number));
        match counts {
            (Some(_), None) => {}
            (Some(least), Some(Some(most))) if least <= most => {}
            _ => return Err("invalid repeat count"),
        }
        self.rest = after;
        // The text after the brace, up to and including the closing brace.
        let length = inner.len().saturating_add(1);
        self.text.push('{');
        Ok(rest.get(..length))
    }

    /// Reads the start of a group after its `(`.
    fn group(&mut self) -> Result<(), &'static str> {
        self.text.push('(');
        let Some(rest) = self.rest.strip_prefix('?') else {
            self.groups = self.groups.saturating_add(1);
            return Ok(());
        };
        if let Some(name) = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
            let (name, after) = name.split_once('>').ok_or("invalid named capture")?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err("invalid named capture");
            }
            self.groups = self.groups.saturating_add(1);
            self.names.push((name.to_owned(), self.groups));
            self.rest = after;
            return Ok(());
        }
        let end = rest.find([':', ')']).ok_or("missing closing )")?;
        let (flags, after) = rest.split_at_checked(end).ok_or("missing closing )")?;
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        let are_flags = |flags: &str| flags.chars().all(|c| matches!(c, 'i' | 'm' | 's' | 'U'));
        if !are_flags(on) || !are_flags(off) || (flags.contains('-') && off.is_empty()) {
            return Err("invalid or unsupported Perl syntax");
        }
        self.folds_case |= on.contains('i');
        let (last, after) = after.split_at_checked(1).ok_or("missing closing )")?;
        self.rest = after;
        if flags.is_empty() && last == ")" {
            // `(?)` changes nothing.
            self.text.push_str("?:)");
            return Ok(());
        }
        let _ = write!(self.text, "?{flags}{last}");
        Ok(())
    }

    /// Reads an escape outside of a class, after its `\`.
    fn escape(&mut self) -> Result<(), &'static str> {
        let c = self.take().ok_or("trailing backslash at end of expression")?;
        match c {
            'b' | 'B' => {
                let _ = write!(self.text, "(?-u:\\{c})");
                Ok(())
            }
            'A' | 'z' => {
                let _ = write!(self.text, "\\{c}");
                Ok(())
            }
            'Q' => {
                let (quoted, after) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = after;
                for c in quoted.chars() {
                    self.literal(c)?;
                }
                Ok(())
            }
            // `\E` without `\Q`.
            'E' => Err("invalid escape sequence"),
            _ => match self.class_escape(c)? {
                Escape::Char(c) => self.literal(c),
                Escape::Class(class) => {
                    self.text.push_str(&class);
                    Ok(())
                }
            },
        }
    }

    /// Reads an escape that is valid inside and outside of classes.
    fn class_escape(&mut self, c: char) -> Result<Escape, &'static str> {
        if matches!(c, 'd' | 'D' | 's' | 'S' | 'w' | 'W') {
            self.classes = self.classes.saturating_add(1);
        }
        let class = |class: &str| Ok(Escape::Class(class.to_owned()));
        match c {
            'd' => class("[0-9]"),
            'D' => class("[^0-9]"),
            's' => class(r"[\t\n\x0c\r ]"),
            'S' => class(r"[^\t\n\x0c\r ]"),
            'w' => class("[0-9A-Za-z_]"),
            'W' => class("[^0-9A-Za-z_]"),
            'p' | 'P' => self.property(c == 'P').map(Escape::Class),
            'a' => Ok(Escape::Char('\u{7}')),
            'f' => Ok(Escape::Char('\u{c}')),
            'n' => Ok(Escape::Char('\n')),
            'r' => Ok(Escape::Char('\r')),
            't' => Ok(Escape::Char('\t')),
            'v' => Ok(Escape::Char('\u{b}')),
            'x' => self.hexadecimal().map(Escape::Char),
            '0'..='7' => self.octal(c).map(Escape::Char),
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(Escape::Char(c)),
            _ => Err("invalid escape sequence"),
        }
    }

    /// Reads a Unicode property: `L`, `{Greek}` or `{^Greek}`.
    fn property(&mut self, is_negated: bool) -> Result<String, &'static str> {
        self.unicode_classes = self.unicode_classes.saturating_add(1);
        let name = match self.take().ok_or("invalid character class range")? {
            '{' => {
                let (name, after) = self.rest.split_once('}').ok_or("invalid character class range")?;
                self.rest = after;
                name.to_owned()
            }
            c => c.to_string(),
        };
        let (is_negated, name) = match name.strip_prefix('^') {
            Some(name) => (!is_negated, name),
            None => (is_negated, name.as_str()),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("invalid character class range");
        }
        Ok(format!("\\{}{{{name}}}", if is_negated { 'P' } else { 'p' }))
    }

    fn hexadecimal(&mut self) -> Result<char, &'static str> {
        let (digits, after) = match self.rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or("invalid escape sequence")?,
            None => self.rest.split_at_checked(2).ok_or("invalid escape sequence")?,
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("invalid escape sequence");
        }
        self.rest = after;
        let code = u32::from_str_radix(digits, 16).ok();
        code.and_then(char::from_u32).ok_or("invalid escape sequence")
    }

    /// Reads up to three octal digits; a single digit other than zero would be a back reference.
    fn octal(&mut self, first: char) -> Result<char, &'static str> {
        let more = self.rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        if first != '0' && more == 0 {
            return Err("invalid escape sequence");
        }
        let (digits, after) = self.rest.split_at_checked(more).ok_or("invalid escape sequence")?;
        self.rest = after;
        let code = u32::from_str_radix(&format!("{first}{digits}"), 8).ok();
        code.and_then(char::from_u32).ok_or("invalid escape sequence")
    }

    /// Reads a class after its `[`.
    fn class(&mut self) -> Result<(), &'static str> {
        self.classes = self.classes.saturating_add(1);
        self.text.push('[');
        if self.took("^") {
            self.text.push('^');
        }
        let mut is_first = true;
        loop {
            let c = self.take().ok_or("missing closing ]")?;
            if c == ']' && !is_first {
                self.text.push(']');
                return Ok(());
            }
            is_first = false;
            if c == '['
                && let Some(name) = self.named_class()?
            {
                let _ = write!(self.text, "[:{name}:]");
                continue;
            }
            let low = match self.member(c)? {
                Escape::Class(class) => {
                    self.text.push_str(&class);
                    continue;
                }
                Escape::Char(low) => low,
            };
            self.literal(low)?;
            // A hyphen at the end of the class is a member.
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.rest = self.rest.get(1..).unwrap_or_default();
                let c = self.take().ok_or("missing closing ]")?;
                let Escape::Char(high) = self.member(c)? else { return Err("invalid character class range") };
                if high < low {
                    return Err("invalid character class range");
                }
                self.text.push('-');
                self.literal(high)?;
            }
        }
    }

    fn member(&mut self, c: char) -> Result<Escape, &'static str> {
        if c != '\\' {
            return Ok(Escape::Char(c));
        }
        let c = self.take().ok_or("trailing backslash at end of expression")?;
        self.class_escape(c)
    }

    /// Reads `:alpha:]`, a named class after its `[`; `None` if it is something else.
    fn named_class(&mut self) -> Result<Option<&'a str>, &'static str> {
        let Some((name, after)) = self.rest.strip_prefix(':').and_then(|rest| rest.split_once(":]")) else {
            return Ok(None);
        };
        let known = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        if !known.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err("invalid character class range");
        }
        self.rest = after;
        Ok(Some(name))
    }

    /// Writes a literal character.
    fn literal(&mut self, c: char) -> Result<(), &'static str> {
        let code = u32::from(c);
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.text.push(c);
        } else {
            let _ = write!(self.text, "\\x{{{code:x}}}");
        }
        Ok(())
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }

    fn took(&mut self, wanted: &str) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

/// The meaning of an escape.
enum Escape {
    Char(char),
    /// A class in the syntax of the crate `regex`.
    Class(String),
}
