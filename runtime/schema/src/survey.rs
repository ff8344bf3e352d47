//! Measures the size of a schema with each reference counted as its target, before the schema is compiled.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::keyword::{Applied, UNBOUNDED, beneath, own_size, size, target, text_size};
use crate::pattern;
use crate::{Bounds, Refusal};

/// Measures a schema as its compiler reads it, and stops when it becomes too expensive.
///
/// Returns the patterns of the schema with their numbers of states.
pub(crate) fn survey(root: &Value, bounds: &Bounds) -> Result<BTreeMap<String, u64>, Refusal> {
    let written = size(root);
    if written > bounds.parts {
        return Err(Refusal::TooLarge { most: bounds.parts });
    }
    let mut survey = Survey { root, bounds, open: Vec::new(), parts: 0, patterns: BTreeMap::new() };
    survey.schema(root, At { depth: 0, path: 0 }, false)?;
    Ok(survey.patterns)
}

/// A position in a schema: its depth, and the length of its path, which the compiler keeps for each part.
#[derive(Clone, Copy)]
struct At {
    depth: usize,
    path: u64,
}

struct Survey<'s> {
    root: &'s Value,
    bounds: &'s Bounds,
    /// References that are being followed.
    open: Vec<&'s str>,
    parts: u64,
    patterns: BTreeMap<String, u64>,
}

impl<'s> Survey<'s> {
    /// Counts a schema and the schemas below it. With `marking`, it is compiled for an `unevaluated…` keyword above it,
    /// which compiles in-place schemas a second time at each level.
    fn schema(&mut self, schema: &'s Value, at: At, marking: bool) -> Result<(), Refusal> {
        let Value::Object(keywords) = schema else { return self.count(1 + at.path) };
        self.count(own_size(keywords).saturating_add(at.path))?;
        if at.depth > self.bounds.depth {
            return Err(Refusal::TooDeep { most: self.bounds.depth });
        }
        if let Some(keyword) = UNBOUNDED.into_iter().find(|keyword| keywords.contains_key(*keyword)) {
            return Err(Refusal::Keyword { keyword });
        }
        if at.depth > 0
            && let Some(keyword) = ["$id", "id"].into_iter().find(|id| keywords.get(*id).is_some_and(Value::is_string))
        {
            return Err(Refusal::Id { keyword });
        }
        if let Some(Value::String(pattern)) = keywords.get("pattern") {
            self.pattern(pattern)?;
        }
        let next = At { depth: at.depth + 1, path: at.path.saturating_add(1) };
        let marks =
            marking || keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems");
        beneath(keywords, |name, applied, schema| {
            if applied == Applied::FieldsByPattern {
                self.pattern(name.unwrap_or_default())?;
            }
            let at = At { path: next.path.saturating_add(name.map_or(0, |name| text_size(name) - 1)), ..next };
            let in_place = matches!(applied, Applied::InPlace | Applied::InPlaceTwice | Applied::InPlaceAsTest);
            self.schema(schema, at, false)?;
            if marks && in_place {
                self.schema(schema, at, true)?;
            }
            Ok(())
        })?;
        let Some(Value::String(reference)) = keywords.get("$ref") else { return Ok(()) };
        let target = target(self.root, reference).ok_or_else(|| Refusal::Reference { reference: reference.clone() })?;
        // A circular reference ends where the document ends; its cost is charged with the document.
        if self.open.contains(&reference.as_str()) || std::ptr::eq(target, self.root) {
            return Ok(());
        }
        self.open.push(reference);
        let below = At { path: next.path.saturating_add(text_size(reference) - 1), ..next };
        self.schema(target, below, false)?;
        if marks {
            self.schema(target, below, true)?;
        }
        self.open.pop();
        Ok(())
    }

    fn count(&mut self, parts: u64) -> Result<(), Refusal> {
        self.parts = self.parts.saturating_add(parts);
        if self.parts > self.bounds.parts { Err(Refusal::TooLarge { most: self.bounds.parts }) } else { Ok(()) }
    }

    fn pattern(&mut self, pattern: &'s str) -> Result<(), Refusal> {
        if self.patterns.contains_key(pattern) {
            return Ok(());
        }
        if self.patterns.len() >= self.bounds.patterns {
            return Err(Refusal::Patterns { most: self.bounds.patterns });
        }
        self.patterns.insert(pattern.to_owned(), pattern::states(pattern));
        Ok(())
    }
}
