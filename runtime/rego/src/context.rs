//! What a call may know besides its arguments, and where it may write to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem;

use regex::Regex;

use crate::builtin::Fault;
use crate::{limit, re2};

/// One evaluation, as its built-in functions see it: the time stands still in it. It keeps compiled regular expressions, so
/// that a policy which is evaluated again and again has one and the same, [restarted](Context::restart) each time.
#[derive(Debug, Default)]
pub struct Context {
    now_ns: i64,
    log: RefCell<Log>,
    patterns: RefCell<HashMap<String, Regex>>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    dropped: usize,
}

impl Context {
    /// An evaluation at a time in nanoseconds since 1970.
    pub fn new(now_ns: i64) -> Self {
        Self { now_ns, ..Self::default() }
    }

    /// When the evaluation is, in nanoseconds since 1970: the same for each call.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// Sets when the evaluation is, and forgets what was written in the last one.
    pub fn restart(&mut self, now_ns: i64) {
        self.now_ns = now_ns;
        self.log = RefCell::default();
    }

    /// Keeps a line that the policy wrote, if there is room for it ([`limit::LOG_LINES`], [`limit::LOG_LINE_BYTES`]).
    pub fn write(&self, mut line: String) {
        let mut log = self.log.borrow_mut();
        if log.lines.len() >= limit::LOG_LINES {
            log.dropped = log.dropped.saturating_add(1);
            return;
        }
        if line.len() > limit::LOG_LINE_BYTES {
            line.truncate(line.floor_char_boundary(limit::LOG_LINE_BYTES));
        }
        log.lines.push(line);
    }

    /// A regular expression in Go's syntax, compiled or kept from before.
    pub(crate) fn pattern(&self, pattern: &str) -> Result<Regex, Fault> {
        if let Some(known) = self.patterns.borrow().get(pattern) {
            return Ok(known.clone());
        }
        let compiled = re2::compile(pattern)?;
        let mut patterns = self.patterns.borrow_mut();
        if patterns.len() >= limit::PATTERNS {
            patterns.clear();
        }
        patterns.insert(pattern.to_owned(), compiled.clone());
        Ok(compiled)
    }

    /// Takes what `print` and `trace` wrote since it was last asked, oldest first; the last line says how many had no room.
    pub fn take_log(&self) -> Vec<String> {
        let mut log = mem::take(&mut *self.log.borrow_mut());
        if log.dropped > 0 {
            log.lines.push(format!("({} more lines)", log.dropped));
        }
        log.lines
    }
}
