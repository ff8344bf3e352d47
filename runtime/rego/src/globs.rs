//! `regex.globs_match`: whether any text matches both of two globs. In a glob, `.` is any character, `[a-z]` a character
//! of a set, and `*` and `+` repeat the preceding token.
//!
//! OPA uses the library glob-intersection of Yash Tewari. This code returns the same results, even where they are not
//! mathematically exact.

use std::collections::BTreeSet;

use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::Operands;
use crate::{Context, Value, limit, weight};

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Char(char),
    Any,
    Set(BTreeSet<char>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Repeat {
    Once,
    Plus,
    Star,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    repeat: Repeat,
}

pub(crate) fn globs_match(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (one, other) = (tokens(operands.text(0)?, context)?, tokens(operands.text(1)?, context)?);
    let mut search = Search { context, depth: 0 };
    let Some((one, other)) = search.trimmed(&one, &other)? else { return Ok(Some(Value::Bool(false))) };
    Ok(Some(Value::Bool(search.normal(one, other)?)))
}

/// A bounded search: each comparison is charged, and the recursion depth is limited.
struct Search<'c> {
    context: &'c Context,
    depth: usize,
}

impl Search<'_> {
    /// The globs without their common tokens at both ends, except for one token there; `None` if they differ there.
    #[expect(clippy::type_complexity, reason = "a part of each")]
    fn trimmed<'a>(&self, one: &'a [Token], other: &'a [Token]) -> Result<Option<(&'a [Token], &'a [Token])>, Fault> {
        let plain = |pair: &(&Token, &Token)| pair.0.repeat == Repeat::Once && pair.1.repeat == Repeat::Once;
        let front = one.iter().zip(other).take_while(plain).count();
        for (one, other) in one.iter().zip(other).take(front) {
            if !self.meet(one, other)? {
                return Ok(None);
            }
        }
        let front = front.saturating_sub(1);
        let (one, other) = (one.get(front..).unwrap_or_default(), other.get(front..).unwrap_or_default());
        let back = one.iter().rev().zip(other.iter().rev()).take_while(plain).count();
        for (one, other) in one.iter().rev().zip(other.iter().rev()).take(back) {
            if !self.meet(one, other)? {
                return Ok(None);
            }
        }
        let back = back.saturating_sub(1);
        let without = |tokens: &'a [Token]| tokens.get(..tokens.len().saturating_sub(back)).unwrap_or_default();
        Ok(Some((without(one), without(other))))
    }

    /// Whether some character matches both tokens.
    fn meet(&self, one: &Token, other: &Token) -> Result<bool, Fault> {
        // Two sets are iterated side by side.
        let work = match (&one.kind, &other.kind) {
            (Kind::Set(one), Kind::Set(other)) => one.len().saturating_add(other.len()).saturating_mul(8),
            (Kind::Set(_), _) | (_, Kind::Set(_)) => 40,
            _ => 4,
        };
        self.context.work(work.saturating_add(6))?;
        Ok(match (&one.kind, &other.kind) {
            (Kind::Char(one), Kind::Char(other)) => one == other,
            (Kind::Char(c), Kind::Set(set)) | (Kind::Set(set), Kind::Char(c)) => set.contains(c),
            (Kind::Set(one), Kind::Set(other)) => !one.is_disjoint(other),
            (Kind::Any, _) | (_, Kind::Any) => true,
        })
    }

    fn normal(&mut self, one: &[Token], other: &[Token]) -> Result<bool, Fault> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > limit::DEPTH {
            return Err("the globs have too many repetitions".into());
        }
        let matched = self.token_by_token(one, other);
        self.depth = self.depth.saturating_sub(1);
        matched
    }

    fn token_by_token(&mut self, mut one: &[Token], mut other: &[Token]) -> Result<bool, Fault> {
        while let (Some((first, one_rest)), Some((second, other_rest))) = (one.split_first(), other.split_first()) {
            match (first.repeat, second.repeat) {
                (Repeat::Once, Repeat::Once) if !self.meet(first, second)? => return Ok(false),
                (Repeat::Once, Repeat::Once) => (one, other) = (one_rest, other_rest),
                (Repeat::Plus, _) => return self.plus(one, other),
                (Repeat::Star, _) => return self.star(one, other),
                (Repeat::Once, Repeat::Plus) => return self.plus(other, one),
                (Repeat::Once, Repeat::Star) => return self.star(other, one),
            }
        }
        Ok(one.is_empty() && other.is_empty())
    }

    /// `repeated` begins with a token that occurs once or more.
    fn plus(&mut self, repeated: &[Token], other: &[Token]) -> Result<bool, Fault> {
        let (Some((first, rest)), Some((second, other_rest))) = (repeated.split_first(), other.split_first()) else {
            return Ok(false);
        };
        if !self.meet(first, second)? {
            return Ok(false);
        }
        if self.star(repeated, other_rest)? {
            return Ok(true);
        }
        if second.repeat == Repeat::Once { Ok(false) } else { self.normal(rest, other) }
    }

    /// `starred` begins with a token that occurs any number of times, or not at all.
    fn star(&mut self, starred: &[Token], other: &[Token]) -> Result<bool, Fault> {
        let Some((star, rest)) = starred.split_first() else { return Ok(false) };
        let next = rest.first();
        for (at, token) in other.iter().enumerate() {
            let may_go_on = match next {
                Some(next) => self.meet(token, next)?,
                None => false,
            };
            if may_go_on && self.normal(rest, other.get(at..).unwrap_or_default())? {
                return Ok(true);
            }
            if !self.meet(token, star)? {
                return Ok(false);
            }
        }
        Ok(next.is_none())
    }
}

fn tokens(glob: &str, context: &Context) -> Result<Vec<Token>, Fault> {
    if glob.len() > limit::PATTERN_BYTES {
        return Err(format!("the glob is longer than {} bytes", limit::PATTERN_BYTES).into());
    }
    let invalid =
        |reason: &str| Fault::from(format!("input:{}, {reason}: the input provided is invalid", excerpt(glob)));
    let mut tokens = Vec::new();
    let mut members = 0_usize;
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        let kind = match c {
            '\\' => Kind::Char(rest.next().ok_or_else(|| invalid("input ends with a \\ (escape) character"))?),
            '.' => Kind::Any,
            '[' => {
                let set = set(&mut rest, context).map_err(invalid)?;
                members = members.saturating_add(set.len());
                if members > limit::ELEMENTS {
                    return Err(invalid("its sets are too large"));
                }
                Kind::Set(set)
            }
            ']' => return Err(invalid("set-close ']' with no preceding '['")),
            '+' | '*' => return Err(invalid("a flag must be preceded by a non-flag")),
            c => Kind::Char(c),
        };
        let repeat = match rest.peek() {
            Some('+') => Repeat::Plus,
            Some('*') => Repeat::Star,
            _ => Repeat::Once,
        };
        if repeat != Repeat::Once {
            rest.next();
        }
        context.charge(4 * weight::ELEMENT)?;
        context.work(60)?;
        tokens.push(Token { kind, repeat });
    }
    Ok(tokens)
}

fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, context: &Context) -> Result<BTreeSet<char>, &'static str> {
    let mut set = BTreeSet::new();
    let mut previous = None;
    loop {
        let c = rest.next().ok_or("found [ without matching ]")?;
        match c {
            ']' => return Ok(set),
            '-' => {
                let low: char = previous.take().ok_or("range character '-' must be preceded by a Unicode character")?;
                let high = match rest.next() {
                    Some(']' | '-') | None => {
                        return Err("range character '-' must be followed by a Unicode character");
                    }
                    Some('\\') => rest.next().ok_or("input ends with a \\ (escape) character")?,
                    Some(high) => high,
                };
                if high < low {
                    return Err("range is out of order");
                }
                let members = u32::from(high).saturating_sub(u32::from(low)).saturating_add(1);
                let members = usize::try_from(members).unwrap_or(usize::MAX).min(limit::ELEMENTS.saturating_add(1));
                let charged =
                    context.charge(members.saturating_mul(16)).and_then(|()| context.work(members.saturating_mul(60)));
                charged.map_err(|_| "its sets are too large")?;
                set.extend((low..=high).take(members));
            }
            '\\' => {
                let c = rest.next().ok_or("input ends with a \\ (escape) character")?;
                set.insert(c);
                previous = Some(c);
            }
            c => {
                set.insert(c);
                previous = Some(c);
            }
        }
    }
}
