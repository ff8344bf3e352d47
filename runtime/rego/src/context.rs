//! What a call may know besides its arguments, and where it may write to.

use std::cell::RefCell;
use std::fmt::Write;
use std::mem;
use std::sync::Arc;

use crate::budget::{Budget, Meter, Spent};
use crate::builtin::Fault;
use crate::operand::too_long;
use crate::pattern::{Kind, Pattern, Patterns};
use crate::{ParseError, Value, limit};

/// One evaluation, as its built-in functions see it: the time stands still in it, and all calls together have one [`Budget`]. It
/// keeps compiled regular expressions, so that a policy which is evaluated again and again has one and the same,
/// [restarted](Context::restart) each time.
#[derive(Debug)]
pub struct Context {
    now_ns: i64,
    meter: Meter,
    log: RefCell<Log>,
    patterns: RefCell<Patterns>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    dropped: usize,
}

impl Default for Context {
    fn default() -> Self {
        Self::with_budget(0, Budget::default())
    }
}

impl Context {
    /// An evaluation at a time in nanoseconds since 1970, with the budget of one of 32 MiB and 50 ms.
    pub fn new(now_ns: i64) -> Self {
        Self::with_budget(now_ns, Budget::default())
    }

    /// As [`Context::new`], with another budget.
    pub fn with_budget(now_ns: i64, budget: Budget) -> Self {
        Self { now_ns, meter: Meter::new(budget), log: RefCell::default(), patterns: RefCell::default() }
    }

    /// When the evaluation is, in nanoseconds since 1970: the same for each call.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// Begins another evaluation, with a budget of its own, and forgets what was written in the last one.
    pub fn restart(&mut self, now_ns: i64, budget: Budget) {
        self.now_ns = now_ns;
        self.meter = Meter::new(budget);
        self.log = RefCell::default();
        self.patterns.get_mut().restart();
    }

    /// The exhausted budget of the evaluation, if any: then every call fails, and the caller ends the evaluation.
    pub fn spent(&self) -> Option<Spent> {
        self.meter.spent()
    }

    /// Reads an argument in the form that OPA's modules write. It counts as a part of the evaluation.
    ///
    /// # Errors
    ///
    /// As [`Value::parse`], and where the budget is [spent](Context::spent).
    pub fn read(&self, text: &str) -> Result<Value, ParseError> {
        // The text itself is held too while it is read.
        let charged = self.charge(text.len()).and_then(|()| self.work_on(text.len()));
        charged.map_err(|_| ParseError { offset: 0, reason: "it takes more than an evaluation may use" })?;
        Value::parse_in(text, self)
    }

    /// Writes what a call gave, in the form that OPA's modules read. It counts as a part of the evaluation.
    ///
    /// # Errors
    ///
    /// Where the budget is spent.
    pub fn answer(&self, value: &Value) -> Result<String, Spent> {
        let mut text = Text::new(self, usize::MAX);
        match write!(text, "{value}") {
            Ok(()) => Ok(text.take()),
            Err(_) => Err(self.spent().unwrap_or(Spent::Weight)),
        }
    }

    /// Charges for bytes that are about to be held.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Fault> {
        self.meter.charge(bytes)
    }

    pub(crate) fn weight_left(&self) -> usize {
        self.meter.weight_left()
    }

    /// Charges for work of this many nanoseconds.
    pub(crate) fn work(&self, units: usize) -> Result<(), Fault> {
        self.meter.work(u64::try_from(units).unwrap_or(u64::MAX))
    }

    pub(crate) fn work_left(&self) -> u64 {
        self.meter.work_left()
    }

    /// Charges for reading this many bytes.
    pub(crate) fn work_on(&self, bytes: usize) -> Result<(), Fault> {
        self.work(bytes.saturating_mul(2))
    }

    /// Keeps a line that the policy wrote, if there is room for it ([`limit::LOG_LINES`], [`limit::LOG_LINE_BYTES`]).
    pub fn write(&self, line: &str) {
        let mut log = self.log.borrow_mut();
        if log.lines.len() >= limit::LOG_LINES {
            log.dropped = log.dropped.saturating_add(1);
            return;
        }
        let kept = line.get(..line.floor_char_boundary(limit::LOG_LINE_BYTES)).unwrap_or(line);
        log.lines.push(kept.to_owned());
    }

    /// A regular expression in Go's syntax, compiled or kept from before.
    pub(crate) fn pattern(&self, pattern: &str, kind: Kind) -> Result<Arc<Pattern>, Fault> {
        self.patterns.borrow_mut().get(pattern, kind, self)
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

/// A text that a call makes: it counts as it grows, and does not grow beyond a bound.
pub(crate) struct Text<'a> {
    text: String,
    most: usize,
    context: &'a Context,
}

impl<'a> Text<'a> {
    pub(crate) fn new(context: &'a Context, most: usize) -> Self {
        Self { text: String::new(), most, context }
    }

    /// As [`Text::new`], at most as long as a call may make one.
    pub(crate) fn of_call(context: &'a Context) -> Self {
        Self::new(context, limit::TEXT_BYTES)
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    pub(crate) fn take(self) -> String {
        self.text
    }

    pub(crate) fn push(&mut self, c: char) -> Result<(), Fault> {
        self.push_str(c.encode_utf8(&mut [0; 4]))
    }

    pub(crate) fn push_str(&mut self, part: &str) -> Result<(), Fault> {
        if self.text.len().saturating_add(part.len()) > self.most {
            return Err(too_long());
        }
        // While it moves to a larger place, it is there twice.
        self.context.charge(part.len().saturating_mul(3))?;
        self.context.work(part.len().saturating_add(8))?;
        self.text.push_str(part);
        Ok(())
    }

    /// The same part again and again.
    pub(crate) fn push_times(&mut self, part: &str, times: usize) -> Result<(), Fault> {
        if part.len().saturating_mul(times) > self.most.saturating_sub(self.text.len()) {
            return Err(too_long());
        }
        (0..times).try_for_each(|_| self.push_str(part))
    }
}

/// The error says no more than that it is at an end.
impl Write for Text<'_> {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        self.push_str(part).map_err(|_| std::fmt::Error)
    }
}
