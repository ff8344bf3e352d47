//! Every built-in function of OPA 1.22, and who answers it.

use crate::builtin::Outcome;
use crate::{Context, Value, evaluation, refused};

/// A function and its verdict.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
}

/// Who answers a function.
pub(crate) enum Verdict {
    /// This crate.
    Host {
        arity: usize,
        function: fn(&[Value], &Context) -> Outcome,
        /// What differs from `opa eval`, as a sentence; empty where nothing is known to.
        differs: &'static str,
    },
    /// `opa build` rewrites it, so that no module asks for it.
    Compiler,
    /// Nobody.
    Refused { why: &'static str, instead: &'static str },
}

/// A function that this crate answers as OPA does.
pub(crate) const fn host(name: &'static str, arity: usize, function: fn(&[Value], &Context) -> Outcome) -> Entry {
    differing(name, arity, function, "")
}

/// A function that this crate answers, not quite as OPA does.
pub(crate) const fn differing(
    name: &'static str,
    arity: usize,
    function: fn(&[Value], &Context) -> Outcome,
    differs: &'static str,
) -> Entry {
    Entry { name, verdict: Verdict::Host { arity, function, differs } }
}

/// The entry of a function that is not compiled into the module.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.name == name)
}

/// All functions that are not compiled into the module.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().copied().flatten()
}

const FAMILIES: &[&[Entry]] = &[evaluation::ENTRIES, refused::ENTRIES];

/// What OPA 1.22 compiles into a module that calls it (its internal/compiler/wasm/wasm.go, `builtinsFunctions`).
pub(crate) const IN_MODULE: [&str; 96] = [
    "abs",
    "all",
    "and",
    "any",
    "array.concat",
    "array.flatten",
    "array.reverse",
    "array.slice",
    "base64.decode",
    "base64.encode",
    "base64.is_valid",
    "base64url.decode",
    "base64url.encode",
    "bits.and",
    "bits.lsh",
    "bits.negate",
    "bits.or",
    "bits.rsh",
    "bits.xor",
    "ceil",
    "concat",
    "contains",
    "count",
    "div",
    "endswith",
    "equal",
    "floor",
    "format_int",
    "glob.match",
    "graph.reachable",
    "gt",
    "gte",
    "indexof",
    "internal.member_2",
    "internal.member_3",
    "internal.template_string",
    "intersection",
    "is_array",
    "is_boolean",
    "is_null",
    "is_number",
    "is_object",
    "is_set",
    "is_string",
    "json.filter",
    "json.is_valid",
    "json.marshal",
    "json.remove",
    "json.unmarshal",
    "lower",
    "lt",
    "lte",
    "max",
    "min",
    "minus",
    "mul",
    "neq",
    "net.cidr_contains",
    "net.cidr_intersects",
    "net.cidr_overlap",
    "numbers.range",
    "object.filter",
    "object.get",
    "object.keys",
    "object.remove",
    "object.union",
    "object.union_n",
    "or",
    "plus",
    "product",
    "re_match",
    "regex.find_all_string_submatch_n",
    "regex.is_valid",
    "regex.match",
    "rem",
    "replace",
    "round",
    "set_diff",
    "sort",
    "split",
    "startswith",
    "strings.replace_n",
    "strings.reverse",
    "substring",
    "sum",
    "to_number",
    "trim",
    "trim_left",
    "trim_prefix",
    "trim_right",
    "trim_space",
    "trim_suffix",
    "type_name",
    "union",
    "upper",
    "walk",
];
