//! `object.subset`, `graph.reachable_paths`, and Rego's former cast functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::builtin::{Fault, Outcome};
use crate::operand::{Elements, Operands, too_many};
use crate::table::{Entry, host};
use crate::{Context, Value, limit, weight};

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

fn subset(arguments: &[Value], context: &Context) -> Outcome {
    let is_subset = match arguments {
        [Value::Array(all), Value::Set(part)] => {
            context.work(found_in(all.iter(), part.len()))?;
            // Counted as in OPA, where a repeated element counts twice.
            let found = all.iter().filter(|element| part.contains(element)).count();
            !all.is_empty() && found >= part.len()
        }
        [all, part] => within(all, part, context)?
            .ok_or("both arguments object.subset must be of the same type or array and set")?,
        _ => return Err("takes two arguments".into()),
    };
    Ok(Some(Value::Bool(is_subset)))
}

/// Whether a collection contains another; `None` if they are not collections of the same type.
fn within(all: &Value, part: &Value, context: &Context) -> Result<Option<bool>, Fault> {
    Ok(Some(match (all, part) {
        (Value::Object(all), Value::Object(part)) => object_within(all, part, context)?,
        (Value::Set(all), Value::Set(part)) => {
            // If one set is much smaller, its elements are looked up; else both are iterated.
            context.work(found_in(part.iter(), all.len()).saturating_add(all.len().saturating_mul(10)))?;
            part.is_subset(all)
        }
        (Value::Array(all), Value::Array(part)) => array_within(all, part, context)?,
        _ => return Ok(None),
    }))
}

/// Work of looking values up among others: a lookup compares a value once at each level of the tree.
fn found_in<'a>(values: impl Iterator<Item = &'a Value>, others: usize) -> usize {
    let levels = usize::try_from(others.checked_ilog2().unwrap_or(0)).unwrap_or(0).saturating_add(4);
    let weight = values.map(Value::weight).fold(0, usize::saturating_add);
    weight.saturating_mul(2).saturating_mul(levels)
}

fn object_within(
    all: &BTreeMap<Value, Value>,
    part: &BTreeMap<Value, Value>,
    context: &Context,
) -> Result<bool, Fault> {
    context.work(found_in(part.keys(), all.len()))?;
    for (key, value) in part {
        // The two values are compared as a whole at each level.
        context.work(value.weight().saturating_mul(3))?;
        let Some(held) = all.get(key) else { return Ok(false) };
        if held != value && !within(held, value, context)?.unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an array is a contiguous part of another.
fn array_within(all: &[Value], part: &[Value], context: &Context) -> Result<bool, Fault> {
    if part.is_empty() {
        return Ok(true);
    }
    context.charge(part.len().saturating_mul(size_of::<usize>()))?;
    let weights: Vec<usize> = part.iter().map(|wanted| wanted.weight()).collect();
    for window in all.windows(part.len()) {
        let mut is_here = true;
        // Charges up to the first difference, where the comparison ends.
        for ((held, wanted), work) in window.iter().zip(part).zip(&weights) {
            context.work(*work)?;
            if held != wanted {
                is_here = false;
                break;
            }
        }
        if is_here {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All paths from the given nodes through a graph that visit no node twice.
fn reachable_paths(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let mut walk = Walk { graph: operands.object(0)?, paths: BTreeSet::new(), nodes: 0, context };
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
    /// Number of nodes in all paths together.
    nodes: usize,
    context: &'a Context,
}

impl<'a> Walk<'a> {
    /// Continues a path with a node. The caller checks that the path does not contain the node, except in the first step,
    /// which can lead back to the start.
    fn on(&mut self, node: &'a Value, path: &mut Vec<&'a Value>) -> Result<(), Fault> {
        // The node is looked up in the graph and in the path.
        let compared = path.len().saturating_add(20);
        self.context.work((node.weight() / 4).saturating_mul(compared).saturating_add(50))?;
        if path.len() > limit::DEPTH {
            return Err(format!("a path has more than {} nodes", limit::DEPTH).into());
        }
        // A node that the graph does not have as a key is not part of the path.
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
        // The path's nodes are copied, and compared with those of other paths during insertion.
        let weight = path.iter().map(|node| node.weight()).fold(2 * weight::ELEMENT, usize::saturating_add);
        self.context.charge(weight)?;
        self.context.work_on(weight.saturating_mul(4))?;
        self.paths.insert(Value::Array(path.iter().copied().cloned().collect()));
        Ok(())
    }
}
