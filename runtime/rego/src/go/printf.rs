//! Go's fmt.Sprintf for values of Rego.

use super::verb::{Argument, Flags};
use crate::builtin::Fault;
use crate::operand::too_long;
use crate::{Context, Value, limit};

/// Work of a verb, and of a byte that a verb writes.
const VERB: usize = 300;
const WRITTEN: usize = 12;

/// The largest width and precision that Go accepts.
const WIDEST: usize = 1_000_000;

/// Formats arguments as Go does: errors in the format appear in the text.
///
/// # Errors
///
/// If the text would be longer than [`limit::TEXT_BYTES`], or the evaluation's budget is spent.
pub(crate) fn sprintf(format: &str, arguments: &[Value], context: &Context) -> Result<String, Fault> {
    let mut printer = Printer {
        rest: format,
        arguments: arguments.iter().map(|argument| Argument::of(argument, context)).collect::<Result<_, _>>()?,
        next: 0,
        reordered: false,
        is_good: true,
        text: String::new(),
        charged: 0,
        context,
    };
    printer.run()?;
    Ok(printer.text)
}

struct Printer<'a> {
    /// The rest of the format.
    rest: &'a str,
    arguments: Vec<Argument>,
    /// The index of the next argument.
    next: usize,
    /// Whether the format has used an argument index; unused arguments are no error then.
    reordered: bool,
    /// Whether all argument indices of the current verb are valid.
    is_good: bool,
    text: String,
    /// Length of the text that has been charged, in bytes.
    charged: usize,
    context: &'a Context,
}

impl Printer<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        while let Some((plain, verb)) = self.rest.split_once('%') {
            self.plain(plain)?;
            self.rest = verb;
            self.context.work(VERB)?;
            self.verb()?;
            self.check()?;
        }
        self.plain(self.rest)?;
        self.check()?;
        if !self.reordered && self.next < self.arguments.len() {
            self.extra()?;
        }
        self.check()
    }

    fn plain(&mut self, plain: &str) -> Result<(), Fault> {
        if self.text.len().saturating_add(plain.len()) > limit::TEXT_BYTES {
            return Err(too_long());
        }
        self.text.push_str(plain);
        self.check()
    }

    /// Charges for the text written since the last check.
    fn check(&mut self) -> Result<(), Fault> {
        if self.text.len() > limit::TEXT_BYTES {
            return Err(too_long());
        }
        let new = self.text.len().saturating_sub(self.charged);
        self.charged = self.text.len();
        self.context.charge(new.saturating_mul(3))?;
        self.context.work(new.saturating_mul(WRITTEN))
    }

    /// Formats the verb after a `%`.
    fn verb(&mut self) -> Result<(), Fault> {
        self.is_good = true;
        let mut flags = Flags::default();
        while let Some(flag) = self.rest.chars().next() {
            match flag {
                '#' => flags.sharp = true,
                '0' => flags.zero = true,
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                ' ' => flags.space = true,
                _ => break,
            }
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        let mut after_index = self.index();
        self.width(&mut flags, &mut after_index);
        self.precision(&mut flags, &mut after_index);
        if !after_index {
            self.index();
        }

        let Some(verb) = self.rest.chars().next() else {
            self.text.push_str("%!(NOVERB)");
            return Ok(());
        };
        self.rest = self.rest.get(verb.len_utf8()..).unwrap_or_default();
        match verb {
            '%' => self.text.push('%'),
            _ if !self.is_good => self.text.push_str(&format!("%!{verb}(BADINDEX)")),
            _ => match self.arguments.get(self.next) {
                None => self.text.push_str(&format!("%!{verb}(MISSING)")),
                Some(argument) => {
                    if matches!(verb, 'v' | 'w') {
                        (flags.sharp_v, flags.sharp) = (flags.sharp, false);
                        (flags.plus_v, flags.plus) = (flags.plus, false);
                    }
                    argument.charge(&flags, self.context)?;
                    argument.print(verb, &flags, &mut self.text);
                    self.next = self.next.saturating_add(1);
                }
            },
        }
        Ok(())
    }

    fn width(&mut self, flags: &mut Flags, after_index: &mut bool) {
        if self.took('*') {
            match self.star() {
                Some(width) => {
                    if width < 0 {
                        flags.minus = true;
                        flags.zero = false;
                    }
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => self.text.push_str("%!(BADWIDTH)"),
            }
            *after_index = false;
        } else {
            flags.width = self.number();
            if *after_index && flags.width.is_some() {
                self.is_good = false;
            }
        }
    }

    fn precision(&mut self, flags: &mut Flags, after_index: &mut bool) {
        if self.rest.len() < 2 || !self.took('.') {
            return;
        }
        if *after_index {
            self.is_good = false;
        }
        *after_index = self.index();
        if self.took('*') {
            match self.star() {
                Some(precision) if precision >= 0 => flags.precision = usize::try_from(precision).ok(),
                _ => self.text.push_str("%!(BADPREC)"),
            }
            *after_index = false;
        } else {
            flags.precision = Some(self.number().unwrap_or(0));
        }
    }

    /// The argument of a `*`, a width or precision.
    fn star(&mut self) -> Option<i64> {
        let width = self.arguments.get(self.next).map(Argument::as_width)?;
        self.next = self.next.saturating_add(1);
        width
    }

    /// Reads `[N]`, the number of the next argument. Returns whether there is a valid one.
    fn index(&mut self) -> bool {
        let Some(inner) = self.rest.strip_prefix('[') else { return false };
        self.reordered = true;
        let length = inner.find(']').unwrap_or(inner.len());
        // If that spends the budget, the next check fails.
        let _ = self.context.work(length / 4);
        let Some((number, rest)) = inner.split_once(']') else {
            self.is_good = false;
            self.rest = inner;
            return false;
        };
        self.rest = rest;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let index = if is_number { number.parse::<usize>().ok().filter(|index| *index <= WIDEST * 10) } else { None };
        match index.map(|index| index.checked_sub(1)) {
            Some(Some(index)) if index < self.arguments.len() => {
                self.next = index;
                true
            }
            Some(_) => {
                self.is_good = false;
                true
            }
            None => {
                self.is_good = false;
                false
            }
        }
    }

    /// Reads a number. If it is too large, Go drops the rest of the format.
    fn number(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(10)) {
            let so_far = number.unwrap_or(0);
            if so_far > WIDEST {
                self.rest = "";
                return None;
            }
            number = Some(so_far * 10 + usize::try_from(digit).unwrap_or(0));
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        number
    }

    fn took(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn extra(&mut self) -> Result<(), Fault> {
        self.text.push_str("%!(EXTRA ");
        for index in self.next..self.arguments.len() {
            if index > self.next {
                self.text.push_str(", ");
            }
            if let Some(argument) = self.arguments.get(index) {
                self.text.push_str(argument.type_name());
                self.text.push('=');
                self.context.work(VERB)?;
                argument.charge(&Flags::default(), self.context)?;
                argument.print('v', &Flags::default(), &mut self.text);
            }
            // Each argument is bounded, but their number is not.
            self.check()?;
        }
        self.text.push(')');
        Ok(())
    }
}
