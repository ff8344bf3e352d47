//! The text form of a value, which OPA's `opa_value_dump` writes and `opa_value_parse` reads: JSON, extended by `{1, 2}`
//! and `set()` for sets, and by keys of objects that are not strings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use crate::{Context, Number, Value, limit, weight};

/// The error for a text that is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not follow the grammar, or exceeds a limit.
    #[error("byte {offset}: {reason}")]
    Text {
        /// Offset of the error, in bytes from the start.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A number that cannot be read.
    #[error("`{text}` is not a number, or one whose digits or exponent exceed {}", limit::DIGITS)]
    Number {
        /// The number, cut to 64 bytes.
        text: String,
    },
}

/// Length in bytes to which an error cuts a number.
const SHOWN: usize = 64;

impl Value {
    /// Parses a value in Rego's form, with sets and any keys.
    ///
    /// # Errors
    ///
    /// If the text is not a value, has something after it, or is nested deeper than [`limit::DEPTH`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Parser { text, offset: 0, form: Form::Rego, context: None }.whole()
    }

    /// Parses JSON: like [`Value::parse`], without sets and with only strings as keys. Of equal keys the last one counts.
    ///
    /// # Errors
    ///
    /// As [`Value::parse`].
    pub fn from_json(text: &str) -> Result<Self, ParseError> {
        Parser { text, offset: 0, form: Form::Json, context: None }.whole()
    }

    /// Like [`Value::parse`], and charges an evaluation for the value.
    pub(crate) fn parse_in(text: &str, context: &Context) -> Result<Self, ParseError> {
        Parser { text, offset: 0, form: Form::Rego, context: Some(context) }.whole()
    }

    /// Like [`Value::from_json`], and charges an evaluation for the value.
    pub(crate) fn from_json_in(text: &str, context: &Context) -> Result<Self, ParseError> {
        Parser { text, offset: 0, form: Form::Json, context: Some(context) }.whole()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => truth.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::String(text) => quoted(text, f),
            Self::Array(elements) => {
                f.write_char('[')?;
                separated(elements, f)?;
                f.write_char(']')
            }
            Self::Object(pairs) => {
                f.write_char('{')?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{key}: {value}")?;
                }
                f.write_char('}')
            }
            Self::Set(elements) if elements.is_empty() => f.write_str("set()"),
            Self::Set(elements) => {
                f.write_char('{')?;
                separated(elements, f)?;
                f.write_char('}')
            }
        }
    }
}

fn separated<'a>(elements: impl IntoIterator<Item = &'a Value>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, element) in elements.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{element}")?;
    }
    Ok(())
}

/// Writes a JSON string, escaping only what JSON requires.
pub(crate) fn quoted(text: &str, to: &mut impl Write) -> fmt::Result {
    to.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '\r' => to.write_str("\\r")?,
            '\t' => to.write_str("\\t")?,
            '\0'..='\x1f' => write!(to, "\\u{:04x}", u32::from(c))?,
            _ => to.write_char(c)?,
        }
    }
    to.write_char('"')
}

/// Number of comparisons for finding a place among this many others.
fn levels(others: usize) -> usize {
    usize::try_from(others.checked_ilog2().unwrap_or(0)).unwrap_or(0).saturating_add(1)
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Json,
    Rego,
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
    form: Form,
    /// The evaluation that is charged, if any.
    context: Option<&'a Context>,
}

impl Parser<'_> {
    /// Charges for bytes before they are allocated.
    fn charge(&self, bytes: usize) -> Result<(), ParseError> {
        let Some(context) = self.context else { return Ok(()) };
        let charged = context.charge(bytes).and_then(|()| context.work_on(bytes));
        charged.map_err(|_| self.error("it takes more than an evaluation may use"))
    }

    /// Charges for the comparisons that find a place among the present elements.
    fn charge_place(&self, weight_before: usize, others: usize) -> Result<(), ParseError> {
        let Some(context) = self.context else { return Ok(()) };
        let bytes = weight_before.saturating_sub(context.weight_left()).saturating_add(64);
        let charged = context.work_on(bytes.saturating_mul(levels(others)));
        charged.map_err(|_| self.error("it takes more than an evaluation may use"))
    }

    fn weight_left(&self) -> usize {
        self.context.map_or(0, Context::weight_left)
    }

    fn whole(mut self) -> Result<Value, ParseError> {
        let value = self.value(0)?;
        self.blank();
        if self.offset < self.text.len() {
            return Err(self.error("something follows the value"));
        }
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        if depth > limit::DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.blank();
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b's') if self.form == Form::Rego => {
                self.word("set(", Value::Null)?;
                self.expect(b')', "`set(` is not closed")?;
                Ok(Value::Set(BTreeSet::new()))
            }
            Some(b'"') => self.string().map(Value::String),
            Some(b'[') => self.array(depth),
            Some(b'{') => self.braces(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            // `to_number` in OPA's module also takes texts without digits, such as `.` and `e5`.
            Some(b'.' | b'e' | b'E') if self.form == Form::Rego => self.number(),
            Some(_) => Err(self.error("no value begins like this")),
            None => Err(self.error("a value is missing")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.skip();
        let mut elements = Vec::new();
        if self.took(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            self.charge(weight::ELEMENT)?;
            elements.push(self.value(depth + 1)?);
            if self.took(b']') {
                return Ok(Value::Array(elements));
            }
            self.expect(b',', "`,` or `]` is missing")?;
        }
    }

    /// Parses an object or a set, which the first separator distinguishes.
    fn braces(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.skip();
        if self.took(b'}') {
            return Ok(Value::Object(BTreeMap::new()));
        }
        let first = self.key(depth)?;
        if self.form == Form::Rego && !self.took(b':') {
            return self.rest_of_set(first, depth);
        }
        if self.form == Form::Json {
            self.expect(b':', "`:` is missing")?;
        }
        self.charge(weight::object(1))?;
        let mut pairs = BTreeMap::from([(first, self.value(depth + 1)?)]);
        while !self.took(b'}') {
            self.expect(b',', "`,` or `}` is missing")?;
            let before = self.weight_left();
            let key = self.key(depth)?;
            self.charge_place(before, pairs.len())?;
            self.expect(b':', "`:` is missing")?;
            let value = self.value(depth + 1)?;
            self.charge(weight::one_more(pairs.len(), weight::object))?;
            pairs.insert(key, value);
        }
        Ok(Value::Object(pairs))
    }

    fn key(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.blank();
        if self.form == Form::Json && self.peek() != Some(b'"') {
            return Err(self.error("a key is a string"));
        }
        self.value(depth + 1)
    }

    fn rest_of_set(&mut self, first: Value, depth: usize) -> Result<Value, ParseError> {
        self.charge(weight::set(1))?;
        let mut elements = BTreeSet::from([first]);
        while !self.took(b'}') {
            self.expect(b',', "`,`, `:` or `}` is missing")?;
            let before = self.weight_left();
            let element = self.value(depth + 1)?;
            self.charge_place(before, elements.len())?;
            self.charge(weight::one_more(elements.len(), weight::set))?;
            elements.insert(element);
        }
        Ok(Value::Set(elements))
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let rest = self.rest();
        let length =
            rest.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')).count();
        self.charge(length)?;
        let parse = if self.form == Form::Json { Number::parse } else { Number::parse_source };
        let number = rest.get(..length).and_then(parse).ok_or_else(|| ParseError::Number {
            // These are ASCII bytes.
            text: rest.get(..length.min(SHOWN)).unwrap_or_default().to_owned(),
        })?;
        self.offset += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.skip();
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain =
                rest.find(|c: char| c == '"' || c == '\\' || c < ' ').ok_or_else(|| self.error("`\"` is missing"))?;
            // A text with an escape grows by doubling.
            self.charge(if text.is_empty() { plain + weight::TEXT } else { plain * 2 + 2 })?;
            text.push_str(rest.get(..plain).unwrap_or_default());
            self.offset += plain;
            match self.peek() {
                Some(b'"') => {
                    self.skip();
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.skip();
                    text.push(self.escaped()?);
                }
                _ => return Err(self.error("a control character stands in a string")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, ParseError> {
        let escape = self.peek().ok_or_else(|| self.error("`\"` is missing"))?;
        let plain = match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.error("no such escape")),
        };
        self.skip();
        Ok(plain)
    }

    /// Parses `uXXXX` or a pair of surrogates; half of a pair becomes U+FFFD, as in Go.
    fn unicode(&mut self) -> Result<char, ParseError> {
        let first = self.unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let after_first = self.offset;
        if self.rest().starts_with("\\u") {
            self.skip();
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let both = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.offset = after_first;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn unit(&mut self) -> Result<u32, ParseError> {
        let digits = self.rest().get(1..5).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("`\\u` takes four hexadecimal digits"))?;
        self.offset += 5;
        Ok(unit)
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, ParseError> {
        if !self.rest().starts_with(word) {
            return Err(self.error("no value begins like this"));
        }
        self.offset += word.len();
        Ok(value)
    }

    fn expect(&mut self, byte: u8, otherwise: &'static str) -> Result<(), ParseError> {
        if self.took(byte) { Ok(()) } else { Err(self.error(otherwise)) }
    }

    /// Skips blanks, and then the byte if it is next. Returns whether it was.
    fn took(&mut self, byte: u8) -> bool {
        self.blank();
        let is_there = self.peek() == Some(byte);
        if is_there {
            self.skip();
        }
        is_there
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.skip();
        }
    }

    /// Skips an ASCII byte.
    fn skip(&mut self) {
        self.offset += 1;
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn rest(&self) -> &str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn error(&self, reason: &'static str) -> ParseError {
        ParseError::Text { offset: self.offset, reason }
    }
}
