//! JSON schemas from third parties, with bounds on their cost.
//!
//! A schema of one kilobyte can keep a validator busy for years: each of thirty definitions refers to the one before
//! twice. Native code cannot be interrupted, so a schema is measured before it is compiled ([`Schema::compile`] refuses
//! one that is too expensive), and a document is charged before it is validated ([`Schema::errors`]). Both count steps
//! rather than time: the result is the same on every machine.
//!
//! References within the schema are followed, in a circle too. What is refused by name: references that lead elsewhere or whose target
//! depends on the way (`$dynamicRef`, `$recursiveRef`), `$id` beneath the root, and patterns that need a regular expression with
//! look-around or back-references, because those take exponential time.
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

/// What a schema may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Values in it, once each reference stands for what it names.
    pub parts: u64,
    /// Schemas within schemas, references included.
    pub depth: usize,
    /// Different patterns.
    pub patterns: usize,
}

impl Default for Bounds {
    /// For what describes fields that people write: ten times what the largest known one takes.
    fn default() -> Self {
        Self { parts: 8_192, depth: 64, patterns: 32 }
    }
}

/// Why a schema is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has too many parts.
    #[error(
        "it has more than {most} parts once its references stand for what they name; write fewer, or refer to each fewer times"
    )]
    TooLarge {
        /// [`Bounds::parts`].
        most: u64,
    },
    /// It is too deep.
    #[error("schemas stand in it more than {most} deep, references included; write it flatter")]
    TooDeep {
        /// [`Bounds::depth`].
        most: usize,
    },
    /// It has too many patterns.
    #[error("it has more than {most} patterns; write fewer, or an `enum`")]
    Patterns {
        /// [`Bounds::patterns`].
        most: usize,
    },
    /// It refers to something by a way that depends on who asks.
    #[error("`{keyword}` is not taken; write `$ref` with `#/$defs/NAME`")]
    Keyword {
        /// The keyword.
        keyword: &'static str,
    },
    /// It gives a part an address of its own.
    #[error("`{keyword}` is taken at the root alone; take it away, and refer to the part with `#/$defs/NAME`")]
    Id {
        /// The keyword.
        keyword: &'static str,
    },
    /// It refers to something that is not in it.
    #[error("`$ref` {reference:?} names no part of the schema; write `#/$defs/NAME`")]
    Reference {
        /// The reference.
        reference: String,
    },
    /// A pattern is none, takes too much, or needs more than a regular expression has.
    #[error(
        "the pattern {pattern:?} is none, is too large, or looks around or back; write a plain regular expression, or an `enum`"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
    },
    /// It is no schema.
    #[error("it is no JSON schema: {reason}")]
    Unusable {
        /// Why, in the validator's words.
        reason: String,
    },
}

/// A schema that was found cheap enough and was compiled.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    patterns: BTreeMap<String, u64>,
    validator: Validator,
}

impl Schema {
    /// Measures a schema, and compiles it if it stays within the bounds. Without `$schema` it is read as draft 2020-12.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which says what to write instead.
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

    /// The schema as it was written.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// All that is wrong with a document.
    ///
    /// # Errors
    ///
    /// [`Spent`] if that may take more than the budget has left: then nothing was held against the schema.
    pub fn errors<'d>(&'d self, document: &'d Value, budget: &Budget) -> Result<Vec<ValidationError<'d>>, Spent> {
        Cost { root: &self.document, patterns: &self.patterns, budget }.charge(document)?;
        Ok(self.validator.iter_errors(document).collect())
    }
}
