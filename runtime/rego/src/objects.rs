//! `object.subset`, `graph.reachable_paths`, and the casts that Rego once had.

use std::collections::{BTreeMap, BTreeSet};

use crate::builtin::{Fault, Outcome};
use crate::operand::{Elements, Operands, too_many};
use crate::table::{Entry, host};
use crate::{Context, Value, limit};

pub(crate) const ENTRIES: &[Entry] = &[
    host("cast_array", 1, cast_array),
    host("cast_boolean", 1, |arguments, _| cast(arguments, "boolean")),
    host("cast_null", 1, |arguments, _| cast(arguments, "null")),
    host("cast_object", 1, |arguments, _| cast(arguments, "object")),
    host("cast_set", 1, cast_set),
    host("cast_string", 1, |arguments, _| cast(arguments, "string")),
    host("graph.reachable_paths", 2, reachable_paths),
    host("object.subset", 2, subset),
];

fn cast(arguments: &[Value], wanted: &str) -> Outcome {
    let operands = Operands(arguments);
    let value = operands.any(0)?;
    if value.type_name() == wanted { Ok(Some(value.clone())) } else { Err(operands.wrong(0, wanted)) }
}

fn cast_array(arguments: &[Value], _: &Context) -> Outcome {
    Ok(Some(Value::Array(Operands(arguments).elements(0)?.iter().cloned().collect())))
}

fn cast_set(arguments: &[Value], _: &Context) -> Outcome {
    Ok(Some(Value::Set(Operands(arguments).elements(0)?.iter().cloned().collect())))
}

fn subset(arguments: &[Value], _: &Context) -> Outcome {
    let is_subset = match arguments {
        [Value::Array(all), Value::Set(part)] => {
            // Counted as OPA does, which takes an element that stands twice for two.
            let found = all.iter().filter(|element| part.contains(element)).count();
            !all.is_empty() && found >= part.len()
        }
        [all, part] => {
            within(all, part)?.ok_or("both arguments object.subset must be of the same type or array and set")?
        }
        _ => return Err("takes two arguments".into()),
    };
    Ok(Some(Value::Bool(is_subset)))
}

/// Whether a collection holds another; `None` where they are not collections of one type.
fn within(all: &Value, part: &Value) -> Result<Option<bool>, Fault> {
    Ok(Some(match (all, part) {
        (Value::Object(all), Value::Object(part)) => object_within(all, part)?,
        (Value::Set(all), Value::Set(part)) => part.is_subset(all),
        (Value::Array(all), Value::Array(part)) => array_within(all, part)?,
        _ => return Ok(None),
    }))
}

fn object_within(all: &BTreeMap<Value, Value>, part: &BTreeMap<Value, Value>) -> Result<bool, Fault> {
    for (key, value) in part {
        let Some(held) = all.get(key) else { return Ok(false) };
        if held != value && !within(held, value)?.unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an array stands in another one, in one piece.
fn array_within(all: &[Value], part: &[Value]) -> Result<bool, Fault> {
    if part.is_empty() {
        return Ok(true);
    }
    if all.len().saturating_mul(part.len()) > limit::STEPS {
        return Err("the arrays are too long".into());
    }
    Ok(all.windows(part.len()).any(|window| window == part))
}

/// All paths from some nodes through a graph, of which none goes through a node twice.
fn reachable_paths(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let mut walk = Walk { graph: operands.object(0)?, paths: BTreeSet::new(), steps: limit::ELEMENTS, nodes: 0 };
    for start in operands.elements(1)?.iter() {
        let Some(edges) = walk.graph.get(start) else { continue };
        let mut path = vec![start];
        match Elements::of(edges).filter(|edges| edges.len() > 0) {
            Some(edges) => {
                for neighbour in edges.iter() {
                    walk.on(neighbour, &mut path)?;
                }
            }
            None => walk.end(&path)?,
        }
    }
    Ok(Some(Value::Set(walk.paths)))
}

struct Walk<'a> {
    graph: &'a BTreeMap<Value, Value>,
    paths: BTreeSet<Value>,
    /// Steps that may still be taken.
    steps: usize,
    /// Nodes of all paths together.
    nodes: usize,
}

impl<'a> Walk<'a> {
    /// Goes on to a node, whether or not the path has met it: only the first step can lead back to where it began.
    fn on(&mut self, node: &'a Value, path: &mut Vec<&'a Value>) -> Result<(), Fault> {
        self.steps = self.steps.checked_sub(path.len()).ok_or_else(too_many)?;
        if path.len() > limit::DEPTH {
            return Err(format!("a path has more than {} nodes", limit::DEPTH).into());
        }
        // What the graph does not know is not part of the path.
        let Some(edges) = self.graph.get(node) else { return self.end(path) };
        path.push(node);
        match Elements::of(edges).filter(|edges| edges.len() > 0) {
            Some(edges) => {
                for neighbour in edges.iter() {
                    if path.contains(&neighbour) {
                        self.end(path)?;
                    } else {
                        self.on(neighbour, path)?;
                    }
                }
            }
            None => self.end(path)?,
        }
        path.pop();
        Ok(())
    }

    fn end(&mut self, path: &[&Value]) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(path.len());
        if self.nodes > limit::ELEMENTS {
            return Err(too_many());
        }
        self.paths.insert(Value::Array(path.iter().copied().cloned().collect()));
        Ok(())
    }
}
