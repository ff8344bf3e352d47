//! `regex.globs_match`: whether two globs have a text in common. In them `.` is any character, `[a-z]` one of a set, and `*` and `+`
//! repeat what stands before.
//!
//! OPA asks the library glob-intersection of Yash Tewari, whose answer is kept to, also where it is not quite the mathematical one.

use std::collections::BTreeSet;

use crate::builtin::{Fault, Outcome};
use crate::operand::Operands;
use crate::{Context, Value, limit};

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

pub(crate) fn globs_match(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (one, other) = (tokens(operands.text(0)?)?, tokens(operands.text(1)?)?);
    let Some((one, other)) = trimmed(&one, &other) else { return Ok(Some(Value::Bool(false))) };
    let mut search = Search { steps: limit::STEPS, depth: 0 };
    Ok(Some(Value::Bool(search.normal(one, other)?)))
}

/// The globs without what they have in common at both ends, save for one token there; `None` where they differ there.
fn trimmed<'a>(one: &'a [Token], other: &'a [Token]) -> Option<(&'a [Token], &'a [Token])> {
    let plain = |pair: &(&Token, &Token)| pair.0.repeat == Repeat::Once && pair.1.repeat == Repeat::Once;
    let front = one.iter().zip(other).take_while(plain).count();
    if !one.iter().zip(other).take(front).all(|(one, other)| meet(one, other)) {
        return None;
    }
    let front = front.saturating_sub(1);
    let (one, other) = (one.get(front..)?, other.get(front..)?);
    let back = one.iter().rev().zip(other.iter().rev()).take_while(plain).count();
    if !one.iter().rev().zip(other.iter().rev()).take(back).all(|(one, other)| meet(one, other)) {
        return None;
    }
    let back = back.saturating_sub(1);
    Some((one.get(..one.len().checked_sub(back)?)?, other.get(..other.len().checked_sub(back)?)?))
}

/// A search that ends: each step costs one, and it does not nest without bound.
struct Search {
    steps: usize,
    depth: usize,
}

impl Search {
    fn step(&mut self) -> Result<(), Fault> {
        self.steps = self.steps.checked_sub(1).ok_or("the globs have too many ways to match")?;
        Ok(())
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
            self.step()?;
            match (first.repeat, second.repeat) {
                (Repeat::Once, Repeat::Once) if !meet(first, second) => return Ok(false),
                (Repeat::Once, Repeat::Once) => (one, other) = (one_rest, other_rest),
                (Repeat::Plus, _) => return self.plus(one, other),
                (Repeat::Star, _) => return self.star(one, other),
                (Repeat::Once, Repeat::Plus) => return self.plus(other, one),
                (Repeat::Once, Repeat::Star) => return self.star(other, one),
            }
        }
        Ok(one.is_empty() && other.is_empty())
    }

    /// `repeated` begins with a token that may stand more than once.
    fn plus(&mut self, repeated: &[Token], other: &[Token]) -> Result<bool, Fault> {
        let (Some((first, rest)), Some((second, other_rest))) = (repeated.split_first(), other.split_first()) else {
            return Ok(false);
        };
        if !meet(first, second) {
            return Ok(false);
        }
        if self.star(repeated, other_rest)? {
            return Ok(true);
        }
        if second.repeat == Repeat::Once { Ok(false) } else { self.normal(rest, other) }
    }

    /// `starred` begins with a token that may be left out.
    fn star(&mut self, starred: &[Token], other: &[Token]) -> Result<bool, Fault> {
        let Some((star, rest)) = starred.split_first() else { return Ok(false) };
        let next = rest.first();
        for (at, token) in other.iter().enumerate() {
            self.step()?;
            if next.is_some_and(|next| meet(token, next)) && self.normal(rest, other.get(at..).unwrap_or_default())? {
                return Ok(true);
            }
            if !meet(token, star) {
                return Ok(false);
            }
        }
        Ok(next.is_none())
    }
}

/// Whether some character is of both tokens.
fn meet(one: &Token, other: &Token) -> bool {
    match (&one.kind, &other.kind) {
        (Kind::Char(one), Kind::Char(other)) => one == other,
        (Kind::Char(c), Kind::Set(set)) | (Kind::Set(set), Kind::Char(c)) => set.contains(c),
        (Kind::Set(one), Kind::Set(other)) => !one.is_disjoint(other),
        (Kind::Any, _) | (_, Kind::Any) => true,
    }
}

fn tokens(glob: &str) -> Result<Vec<Token>, Fault> {
    if glob.len() > limit::PATTERN_BYTES {
        return Err(format!("the glob is longer than {} bytes", limit::PATTERN_BYTES).into());
    }
    let invalid = |reason: &str| Fault::from(format!("input:{glob}, {reason}: the input provided is invalid"));
    let mut tokens = Vec::new();
    let mut members = 0_usize;
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        let kind = match c {
            '\\' => Kind::Char(rest.next().ok_or_else(|| invalid("input ends with a \\ (escape) character"))?),
            '.' => Kind::Any,
            '[' => {
                let set = set(&mut rest).map_err(invalid)?;
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
        tokens.push(Token { kind, repeat });
    }
    Ok(tokens)
}

fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<BTreeSet<char>, &'static str> {
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
                set.extend((low..=high).take(limit::ELEMENTS.saturating_add(1)));
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
