//! State that a call can access besides its arguments, and the log that it can write.

use std::cell::RefCell;
use std::fmt::Write;
use std::mem;
use std::sync::Arc;

use crate::budget::{Budget, Meter, Spent};
use crate::builtin::Fault;
use crate::operand::too_long;
use crate::pattern::{Kind, Pattern, Patterns};
use crate::{ParseError, Value, limit};

/// The state of one evaluation for its built-in functions: the current time is fixed, and all calls together have one
/// [`Budget`]. It keeps compiled regular expressions, so a policy uses one context for all its evaluations and
/// [restarts](Context::restart) it each time.
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
    /// An evaluation at a time in nanoseconds since 1970, with the default budget, for 32 MiB and 50 ms.
    pub fn new(now_ns: i64) -> Self {
        Self::with_budget(now_ns, Budget::default())
    }

    /// Like [`Context::new`], with another budget.
    pub fn with_budget(now_ns: i64, budget: Budget) -> Self {
        Self { now_ns, meter: Meter::new(budget), log: RefCell::default(), patterns: RefCell::default() }
    }

    /// The current time of the evaluation in nanoseconds since 1970, the same for each call.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// Begins another evaluation with a new budget, and drops the log of the last one.
    pub fn restart(&mut self, now_ns: i64, budget: Budget) {
        self.now_ns = now_ns;
        self.meter = Meter::new(budget);
        self.log = RefCell::default();
        self.patterns.get_mut().restart();
    }

    /// The exhausted resource, if any. Every further call fails, and the caller must end the evaluation.
    pub fn spent(&self) -> Option<Spent> {
        self.meter.spent()
    }

    /// Parses an argument in the form that OPA's modules write, and charges the evaluation for it.
    ///
    /// # Errors
    ///
    /// As [`Value::parse`], and if the budget is [spent](Context::spent).
    pub fn read(&self, text: &str) -> Result<Value, ParseError> {
        // The text is held while it is parsed, so it counts too.
        let charged = self.charge(text.len()).and_then(|()| self.work_on(text.len()));
        charged.map_err(|_| ParseError::Text { offset: 0, reason: "it takes more than an evaluation may use" })?;
        Value::parse_in(text, self)
    }

    /// Writes a result in the form that OPA's modules read, and charges the evaluation for it.
    ///
    /// # Errors
    ///
    /// If the budget is spent.
    pub fn answer(&self, value: &Value) -> Result<String, Spent> {
        let mut text = Text::new(self, usize::MAX);
        match write!(text, "{value}") {
            Ok(()) => Ok(text.take()),
            Err(_) => Err(self.spent().unwrap_or(Spent::Weight)),
        }
    }

    /// Charges for bytes before they are allocated.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Fault> {
        self.meter.charge(bytes)
    }

    pub(crate) fn weight_left(&self) -> usize {
        self.meter.weight_left()
    }

    /// Charges for work, in nanoseconds.
    pub(crate) fn work(&self, units: usize) -> Result<(), Fault> {
        self.meter.work(u64::try_from(units).unwrap_or(u64::MAX))
    }

    pub(crate) fn work_left(&self) -> u64 {
        self.meter.work_left()
    }

    /// Charges for the work of reading this many bytes.
    pub(crate) fn work_on(&self, bytes: usize) -> Result<(), Fault> {
        self.work(bytes.saturating_mul(2))
    }

    /// Logs a line that the policy wrote, within [`limit::LOG_LINES`] and [`limit::LOG_LINE_BYTES`].
    pub fn write(&self, line: &str) {
        let mut log = self.log.borrow_mut();
        if log.lines.len() >= limit::LOG_LINES {
            log.dropped = log.dropped.saturating_add(1);
            return;
        }
        let kept = line.get(..line.floor_char_boundary(limit::LOG_LINE_BYTES)).unwrap_or(line);
        log.lines.push(kept.to_owned());
    }

    /// A regular expression in Go's syntax, from the cache or newly compiled.
    pub(crate) fn pattern(&self, pattern: &str, kind: Kind) -> Result<Arc<Pattern>, Fault> {
        self.patterns.borrow_mut().get(pattern, kind, self)
    }

    /// Takes the lines that `print` and `trace` wrote since the last call, oldest first. The last line tells the number
    /// of dropped lines, if any.
    pub fn take_log(&self) -> Vec<String> {
        let mut log = mem::take(&mut *self.log.borrow_mut());
        if log.dropped > 0 {
            log.lines.push(format!("({} more lines)", log.dropped));
        }
        log.lines
    }
}

/// A text that a call builds: it charges the evaluation while it grows, up to a maximum length.
pub(crate) struct Text<'a> {
    text: String,
    most: usize,
    context: &'a Context,
}

impl<'a> Text<'a> {
    pub(crate) fn new(context: &'a Context, most: usize) -> Self {
        Self { text: String::new(), most, context }
    }

    /// Like [`Text::new`], with the maximum length of one call.
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
        // During a reallocation the text exists twice.
        self.context.charge(part.len().saturating_mul(3))?;
        self.context.work(part.len().saturating_add(8))?;
        self.text.push_str(part);
        Ok(())
    }

    /// Appends a part several times.
    pub(crate) fn push_times(&mut self, part: &str, times: usize) -> Result<(), Fault> {
        if part.len().saturating_mul(times) > self.most.saturating_sub(self.text.len()) {
            return Err(too_long());
        }
        (0..times).try_for_each(|_| self.push_str(part))
    }
}

/// The error carries no reason: the maximum length or the budget is exceeded.
impl Write for Text<'_> {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        self.push_str(part).map_err(|_| std::fmt::Error)
    }
}
