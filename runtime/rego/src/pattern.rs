//! Compiled regular expressions whose searches are charged step by step.
//!
//! A search of the crate `regex` cannot be interrupted, and its cost is not known in advance: with a hostile expression
//! each match may cost the text's length times the expression's size. So this code steps through the automaton of the
//! underlying library, `regex-automata`, byte by byte. That finds the end of a match; the library then finds its start
//! and groups in the text up to there, which costs at most the expression's size times the text's length.

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::builtin::{Fault, excerpt};
use crate::{Context, limit, re2};

/// The results that a compiled expression can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Whether and where it matches.
    Matches,
    /// Also the groups.
    Groups,
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    ends: DFA,
    begins: PikeVM,
    /// Names of groups, with the groups' numbers; Go allows several groups with the same name.
    names: Vec<(String, usize)>,
    /// Number of slots for the starts and ends of groups.
    slots: usize,
    states: usize,
    bytes: usize,
    /// Work of compiling the expression.
    cost: usize,
}

/// A match and its groups, as alternating start and end offsets.
pub(crate) struct Match {
    slots: Vec<Option<NonMaxUsize>>,
}

impl Match {
    pub(crate) fn start(&self) -> usize {
        self.slot(0).unwrap_or_default()
    }

    pub(crate) fn end(&self) -> usize {
        self.slot(1).unwrap_or_default()
    }

    /// The text of a group; `None` if the group did not take part in the match.
    pub(crate) fn group<'t>(&self, number: usize, text: &'t str) -> Option<&'t str> {
        let begin = number.checked_mul(2)?;
        text.get(self.slot(begin)?..self.slot(begin.checked_add(1)?)?)
    }

    fn slot(&self, at: usize) -> Option<usize> {
        self.slots.get(at).copied().flatten().map(NonMaxUsize::get)
    }
}

/// Cost of visiting a state of the automaton in nanoseconds: a set of states is built, or a thread of a search continues.
const STATE: usize = 12;

/// Work of a cached step, including a check of the budget.
const STEP: usize = 4;

/// Work of compiling a state, and of compiling an empty expression.
const COMPILED_STATE: usize = 150;
const COMPILED: usize = 15_000;

/// Work and memory of parsing a Unicode class, which has thousands of ranges.
const UNICODE_CLASS: (usize, usize) = (150_000, 32 * 1024);

/// Number of passes over a class if letter case is ignored.
const FOLDED: usize = 24;

impl Pattern {
    /// Compiles an expression in Go's syntax.
    ///
    /// # Errors
    ///
    /// If Go does not accept the expression, if it exceeds [`limit::PATTERN_BYTES`] or [`limit::COMPILED_BYTES`], or if
    /// the budget is spent.
    pub(crate) fn compile(pattern: &str, kind: Kind, context: &Context) -> Result<Self, Fault> {
        let before = context.work_left();
        let fault = |reason: &str| Fault::from(format!("error parsing regexp {:?}: {reason}", excerpt(pattern)));
        if pattern.len() > limit::PATTERN_BYTES {
            return Err(format!("the regular expression is longer than {} bytes", limit::PATTERN_BYTES).into());
        }
        context.work(pattern.len().saturating_mul(400).saturating_add(COMPILED))?;
        context.charge(pattern.len().saturating_mul(256))?;
        let translated = re2::translate(pattern).map_err(fault)?;
        // With case folding, any class is a Unicode class, even `[^a]`.
        let folds = if translated.folds_case { FOLDED } else { 1 };
        let (work, weight) = UNICODE_CLASS;
        context.work(translated.unicode_classes.saturating_mul(work).saturating_mul(folds))?;
        context.charge(translated.unicode_classes.saturating_mul(weight))?;
        if translated.folds_case {
            context.work(translated.classes.saturating_mul(work))?;
        }
        let read = syntax::parse_with(&translated.text, &syntax::Config::new());
        let read = read.map_err(|error| fault(error.to_string().lines().last().unwrap_or("not an expression")))?;
        let captures = if kind == Kind::Groups { WhichCaptures::All } else { WhichCaptures::Implicit };
        let size = thompson::Config::new().nfa_size_limit(Some(limit::COMPILED_BYTES)).which_captures(captures);
        // In the worst case compilation fails only when it reaches its size limit.
        context.charge(limit::COMPILED_BYTES)?;
        let nfa = thompson::Compiler::new().configure(size).build_from_hir(&read);
        let nfa = nfa.map_err(|error| match error.size_limit() {
            Some(_) => {
                // The states up to the limit were built.
                let _ = context.work((limit::COMPILED_BYTES / 24).saturating_mul(COMPILED_STATE));
                fault("expression too large")
            }
            None => fault("not an expression"),
        })?;
        context.work(nfa.states().len().saturating_mul(COMPILED_STATE))?;
        Self::of(nfa, translated.names, context, before).ok_or_else(|| fault("expression too large"))
    }

    fn of(nfa: NFA, names: Vec<(String, usize)>, context: &Context, before: u64) -> Option<Self> {
        let (states, bytes) = (nfa.states().len(), nfa.memory_usage());
        let slots = nfa.group_info().slot_len();
        let begins = pikevm::Builder::new().build_from_nfa(nfa.clone()).ok()?;
        let config = DFA::config().cache_capacity(limit::SEARCH_BYTES);
        let ends = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
        let cost = usize::try_from(before.saturating_sub(context.work_left())).unwrap_or(usize::MAX);
        Some(Self { ends, begins, names, slots, states, bytes, cost })
    }

    /// The text of the group with this name; of several such groups the first that took part.
    pub(crate) fn named<'t>(&self, name: &str, found: &Match, text: &'t str) -> Option<&'t str> {
        let mut named = self.names.iter().filter(|(known, _)| known == name);
        named.find_map(|&(_, number)| found.group(number, text))
    }

    /// The number of the automaton's states.
    pub(crate) fn states(&self) -> usize {
        self.states
    }

    /// Bytes of memory of the compiled expression.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Work of compiling the expression.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// The number of named groups.
    pub(crate) fn names(&self) -> usize {
        self.names.len()
    }

    /// Begins a search of a text.
    pub(crate) fn search<'s>(&'s self, text: &'s str, context: &'s Context) -> Result<Search<'s>, Fault> {
        // The memory that both automata keep for each state, and the slots of groups that one keeps for each state.
        let places = self.states.saturating_mul(self.slots.saturating_add(2)).saturating_mul(32);
        context
            .charge(places.saturating_add(self.states.saturating_mul(64)).saturating_add(limit::SEARCH_BYTES / 4))?;
        context.work(places / 8)?;
        context.work(self.states.saturating_mul(STATE).saturating_add(2_000))?;
        Ok(Search {
            pattern: self,
            text,
            context,
            cache: self.ends.create_cache(),
            places: None,
            at: 0,
            last_end: None,
            grown: limit::SEARCH_BYTES / 4,
        })
    }

    /// Whether the expression matches anywhere in the text.
    pub(crate) fn is_match(&self, text: &str, context: &Context) -> Result<bool, Fault> {
        Ok(self.search(text, context)?.end_from(0)?.is_some())
    }
}

/// A search for successive matches.
pub(crate) struct Search<'s> {
    pattern: &'s Pattern,
    text: &'s str,
    context: &'s Context,
    cache: Cache,
    places: Option<pikevm::Cache>,
    at: usize,
    last_end: Option<usize>,
    /// Bytes of cached states that have been charged.
    grown: usize,
}

impl Search<'_> {
    /// The next match, which does not overlap previous ones. An empty match directly after the previous match is skipped.
    pub(crate) fn next(&mut self) -> Result<Option<Match>, Fault> {
        loop {
            let Some(found) = self.from(self.at)? else { return Ok(None) };
            let (start, end) = (found.start(), found.end());
            if start == end && self.last_end == Some(end) {
                let Some(after) = self.after(end) else { return Ok(None) };
                self.at = after;
                continue;
            }
            self.at = end;
            self.last_end = Some(end);
            return Ok(Some(found));
        }
    }

    /// The end of the character that begins at an offset.
    fn after(&self, at: usize) -> Option<usize> {
        let c = self.text.get(at..)?.chars().next()?;
        at.checked_add(c.len_utf8())
    }

    fn from(&mut self, start: usize) -> Result<Option<Match>, Fault> {
        let Some(end) = self.end_from(start)? else { return Ok(None) };
        let length = end.saturating_sub(start).saturating_add(1);
        let slots = self.pattern.slots.saturating_add(4);
        self.context.work(length.saturating_mul(self.pattern.states).saturating_mul(STATE))?;
        self.context.work(slots.saturating_mul(8).saturating_add(500))?;
        let mut found = Match { slots: vec![None; self.pattern.slots] };
        // The text after the end is visible to look-around, but no match extends into it.
        let input = Input::new(self.text).span(start..end);
        let places = self.places.get_or_insert_with(|| self.pattern.begins.create_cache());
        let is_there = self.pattern.begins.search_slots(places, &input, &mut found.slots).is_some();
        if is_there { Ok(Some(found)) } else { Err("the expression cannot be searched for".into()) }
    }

    /// The end of the leftmost match at or after `start`; of several matches there, the one that the expression prefers.
    fn end_from(&mut self, start: usize) -> Result<Option<usize>, Fault> {
        let mut start = Some(start);
        while let Some(from) = start {
            match self.half(from)? {
                // An empty match inside a character does not count.
                Some(end) if !self.text.is_char_boundary(end) => start = from.checked_add(1),
                end => return Ok(end),
            }
        }
        Ok(None)
    }

    fn half(&mut self, start: usize) -> Result<Option<usize>, Fault> {
        let gave_up = |_| Fault::from("the expression cannot be searched for");
        let dfa = &self.pattern.ends;
        let bytes = self.text.as_bytes();
        let Some(rest) = bytes.get(start..) else { return Ok(None) };
        let input = Input::new(bytes).range(start..).anchored(Anchored::No);
        self.context.work(self.pattern.states.saturating_mul(STATE).saturating_add(200))?;
        let mut state = dfa.start_state_forward(&mut self.cache, &input).map_err(|_| gave_up(()))?;
        let mut end = None;
        for (at, &byte) in (start..).zip(rest) {
            let known = if state.is_tagged() { None } else { Some(dfa.next_state_untagged(&self.cache, state, byte)) };
            self.context.work(STEP)?;
            state = match known.filter(|next| !next.is_unknown()) {
                Some(next) => next,
                None => {
                    self.context.work(self.pattern.states.saturating_mul(STATE).saturating_add(200))?;
                    let next = dfa.next_state(&mut self.cache, state, byte).map_err(|_| gave_up(()))?;
                    let grown = self.cache.memory_usage();
                    self.context.charge(grown.saturating_sub(self.grown))?;
                    self.grown = self.grown.max(grown);
                    next
                }
            };
            // A state reports a match one byte late.
            if state.is_match() {
                end = Some(at);
            } else if state.is_dead() || state.is_quit() {
                return Ok(end);
            }
        }
        self.context.work(self.pattern.states.saturating_mul(STATE))?;
        let state = dfa.next_eoi_state(&mut self.cache, state).map_err(|_| gave_up(()))?;
        Ok(if state.is_match() { Some(bytes.len()) } else { end })
    }
}

/// A cache of compiled expressions. Each evaluation is charged once for compiling an expression, even if it is cached, so
/// that the result of an evaluation does not depend on previous ones.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    kept: HashMap<(String, Kind), (Arc<Pattern>, u64)>,
    /// Bytes of all kept expressions.
    bytes: usize,
    /// The number of the current evaluation.
    evaluation: u64,
}

/// Maximum bytes of all kept expressions.
const MAX_BYTES: usize = 4 << 20;

impl Patterns {
    pub(crate) fn restart(&mut self) {
        self.evaluation = self.evaluation.wrapping_add(1);
    }

    pub(crate) fn get(&mut self, pattern: &str, kind: Kind, context: &Context) -> Result<Arc<Pattern>, Fault> {
        let key = (pattern.to_owned(), kind);
        if let Some((known, used)) = self.kept.get_mut(&key) {
            if *used != self.evaluation {
                *used = self.evaluation;
                context.work(known.cost)?;
            }
            return Ok(Arc::clone(known));
        }
        let compiled = Arc::new(Pattern::compile(pattern, kind, context)?);
        self.make_room(compiled.bytes);
        self.bytes = self.bytes.saturating_add(compiled.bytes);
        self.kept.insert(key, (Arc::clone(&compiled), self.evaluation));
        Ok(compiled)
    }

    /// If the cache is full, drops the expressions that this evaluation has not used, or all if that is not enough.
    fn make_room(&mut self, bytes: usize) {
        let evaluation = self.evaluation;
        let is_full = |this: &Self| this.kept.len() >= limit::PATTERNS || this.bytes.saturating_add(bytes) > MAX_BYTES;
        if is_full(self) {
            self.kept.retain(|_, (_, used)| *used == evaluation);
            self.bytes = self.kept.values().map(|(pattern, _)| pattern.bytes).sum();
        }
        if is_full(self) {
            self.kept.clear();
            self.bytes = 0;
        }
    }
}
