//! JSON schemas from third parties, with bounds on their cost.
//!
//! A schema of one kilobyte can keep a validator busy for years, if each of thirty definitions refers twice to the
//! previous one. Native code cannot be interrupted, so a schema is measured before it is compiled ([`Schema::compile`]
//! refuses one that is too expensive), and a document is charged before it is validated ([`Schema::errors`]). Both count
//! steps rather than time: the result is the same on every machine.
//!
//! References within the schema are followed, circular ones included. Refused are references to other documents,
//! references whose target depends on the evaluation path (`$dynamicRef`, `$recursiveRef`), `$id` below the root, and
//! patterns with look-around or back-references, because those take exponential time.
//!
//! ```
//! use qosm_schema::{Bounds, Budget, Refusal, Schema};
//! use serde_json::json;
//!
//! let schema = Schema::compile(json!({"properties": {"times": {"type": "integer"}}}), &Bounds::default())?;
//! let document = json!({"times": "often"});
//! let budget = Budget::of(1_000);
//! let errors = schema.errors(&document, &budget)?;
//! assert_eq!(errors[0].to_string(), "\"often\" is not of type \"integer\"");
//!
//! let far = json!({"$ref": "https://example.com/schema.json"});
//! assert!(matches!(Schema::compile(far, &Bounds::default()), Err(Refusal::Reference { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod budget;
mod cost;
mod keyword;
mod pattern;
mod survey;

use std::collections::BTreeMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

pub use self::budget::{Budget, Spent};
use self::cost::Cost;

/// Limits of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Number of values, with each reference counted as its target.
    pub parts: u64,
    /// Nesting depth of schemas, references included.
    pub depth: usize,
    /// Number of different patterns.
    pub patterns: usize,
}

impl Default for Bounds {
    /// Limits for schemas of configuration fields: ten times the largest known schema.
    fn default() -> Self {
        Self { parts: 8_192, depth: 64, patterns: 32 }
    }
}

/// Why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The schema has too many parts.
    #[error(
        "it has more than {most} parts once its references stand for what they name; write fewer, or refer to each fewer times"
    )]
    TooLarge {
        /// [`Bounds::parts`].
        most: u64,
    },
    /// The schema is nested too deep.
    #[error("schemas stand in it more than {most} deep, references included; write it flatter")]
    TooDeep {
        /// [`Bounds::depth`].
        most: usize,
    },
    /// The schema has too many patterns.
    #[error("it has more than {most} patterns; write fewer, or an `enum`")]
    Patterns {
        /// [`Bounds::patterns`].
        most: usize,
    },
    /// The schema has a reference whose target depends on the evaluation path.
    #[error("`{keyword}` is not taken; write `$ref` with `#/$defs/NAME`")]
    Keyword {
        /// The keyword.
        keyword: &'static str,
    },
    /// A part of the schema has its own `$id`.
    #[error("`{keyword}` is taken at the root alone; take it away, and refer to the part with `#/$defs/NAME`")]
    Id {
        /// The keyword.
        keyword: &'static str,
    },
    /// The schema refers to something outside of it, or to a part that does not exist.
    #[error("`$ref` {reference:?} names no part of the schema; write `#/$defs/NAME`")]
    Reference {
        /// The reference.
        reference: String,
    },
    /// A pattern is invalid, too large, or uses look-around or back-references.
    #[error(
        "the pattern {pattern:?} is none, is too large, or looks around or back; write a plain regular expression, or an `enum`"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
    },
    /// The document is not a valid schema.
    #[error("it is no JSON schema: {reason}")]
    Unusable {
        /// The validator's message.
        reason: String,
    },
}

/// A compiled schema within the limits.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    patterns: BTreeMap<String, u64>,
    validator: Validator,
}

impl Schema {
    /// Measures a schema, and compiles it if it is within the bounds. The default draft without `$schema` is 2020-12.
    ///
    /// # Errors
    ///
    /// [`Refusal`], whose message tells what to write instead.
    pub fn compile(document: Value, bounds: &Bounds) -> Result<Self, Refusal> {
        let patterns = survey::survey(&document, bounds)?;
        let engine =
            PatternOptions::regex().size_limit(pattern::COMPILED_BYTES).dfa_size_limit(pattern::COMPILED_BYTES * 4);
        let validator =
            jsonschema::options().with_pattern_options(engine).build(&document).map_err(|error| {
                match error.instance().as_str().filter(|text| patterns.contains_key(*text)) {
                    Some(pattern) => Refusal::Pattern { pattern: pattern.to_owned() },
                    None => Refusal::Unusable { reason: error.to_string() },
                }
            })?;
        Ok(Self { document, patterns, validator })
    }

    /// The schema's document.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// All errors of a document.
    ///
    /// # Errors
    ///
    /// [`Spent`] if the validation may exceed the rest of the budget; the document is not validated then.
    pub fn errors<'d>(&'d self, document: &'d Value, budget: &Budget) -> Result<Vec<ValidationError<'d>>, Spent> {
        Cost { root: &self.document, patterns: &self.patterns, budget }.charge(document)?;
        Ok(self.validator.iter_errors(document).collect())
    }
}
