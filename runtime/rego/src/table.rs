//! Every built-in function of OPA 1.22, and its provider.

use std::collections::BTreeMap;

use crate::builtin::{Builtin, Outcome};
use crate::{
    Context, Value, cidr, documents, encoding, evaluation, identifiers, limit, numbers, objects, patch, refused,
    regexes, strings, time,
};

/// A function and its provider.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) provider: Provider,
}

/// The provider of a function.
pub(crate) enum Provider {
    /// This crate provides it.
    Host {
        arity: usize,
        function: fn(&[Value], &Context) -> Outcome,
        /// The difference from `opa eval`, as a sentence; empty if none is known.
        differs: &'static str,
    },
    /// `opa build` rewrites calls of it, so that no module imports it.
    Compiler,
    /// The host does not provide it.
    Refused { why: &'static str, instead: &'static str },
}

/// The entry of a function that behaves as in OPA.
pub(crate) const fn host(name: &'static str, arity: usize, function: fn(&[Value], &Context) -> Outcome) -> Entry {
    differing(name, arity, function, "")
}

/// The entry of a function that differs from OPA's.
pub(crate) const fn differing(
    name: &'static str,
    arity: usize,
    function: fn(&[Value], &Context) -> Outcome,
    differs: &'static str,
) -> Entry {
    Entry { name, provider: Provider::Host { arity, function, differs } }
}

/// The entry of a function that is not compiled into the module.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.name == name)
}

/// All functions that are not compiled into the module.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().copied().flatten()
}

const FAMILIES: &[&[Entry]] = &[
    strings::ENTRIES,
    time::ENTRIES,
    numbers::ENTRIES,
    objects::ENTRIES,
    regexes::ENTRIES,
    patch::ENTRIES,
    documents::ENTRIES,
    encoding::ENTRIES,
    identifiers::ENTRIES,
    cidr::ENTRIES,
    evaluation::ENTRIES,
    refused::ENTRIES,
];

/// The functions that this crate provides.
pub fn answered() -> impl Iterator<Item = Builtin> {
    entries().filter_map(|entry| crate::builtin(entry.name))
}

/// The names of all built-in functions of OPA 1.22, those that are compiled into modules included.
pub fn names() -> impl Iterator<Item = &'static str> {
    entries().map(|entry| entry.name).chain(IN_MODULE)
}

/// The text of the page about built-in functions, `docs/rego-builtins.md`.
pub fn page() -> String {
    let named = |is_such: fn(&Provider) -> bool| {
        sorted(entries().filter(|entry| is_such(&entry.provider)).map(|entry| entry.name).collect())
    };
    let hosted = named(|provider| matches!(provider, Provider::Host { .. }));
    let alike = named(|provider| matches!(provider, Provider::Host { differs: "", .. }));
    let rewritten = named(|provider| matches!(provider, Provider::Compiler));
    let refused = named(|provider| matches!(provider, Provider::Refused { .. }));
    // Functions with the same remark share a row. Rows are ordered by their first names.
    let mut remarks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (row, name) in entries().filter_map(|entry| Some((row(&entry.provider)?, entry.name))) {
        remarks.entry(row).or_default().push(name);
    }
    let mut rows: Vec<(Vec<&str>, String)> = remarks.into_iter().map(|(row, names)| (sorted(names), row)).collect();
    rows.sort_unstable();
    let rows: String = rows.iter().map(|(names, row)| format!("| {} | {row} |\n", listed(names))).collect();
    let all = names().count();
    include_str!("page.md")
        .replace("{all}", &all.to_string())
        .replace("{in_module}", &IN_MODULE.len().to_string())
        .replace("{hosted}", &hosted.len().to_string())
        .replace("{alike}", &alike.len().to_string())
        .replace("{rewritten}", &rewritten.len().to_string())
        .replace("{refused}", &refused.len().to_string())
        .replace("{names_in_module}", &listed(&IN_MODULE))
        .replace("{names_alike}", &listed(&alike))
        .replace("{names_rewritten}", &listed(&rewritten))
        .replace("{limits}", &limits())
        .replace("{rows}\n", &rows)
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The row of a function that needs a remark; `None` for others, which are listed by name.
fn row(provider: &Provider) -> Option<String> {
    match provider {
        Provider::Host { differs: "", .. } | Provider::Compiler => None,
        Provider::Host { differs, .. } => Some(format!("by the agent | {differs}")),
        Provider::Refused { why, instead } => Some(format!("**refused** | {} Instead: {instead}.", sentence(why))),
    }
}

fn sentence(half: &str) -> String {
    let mut letters = half.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

fn limits() -> String {
    let rows = [
        ("text that a call makes", limit::TEXT_BYTES, "bytes"),
        ("elements that a call makes, all levels together", limit::ELEMENTS, "elements"),
        ("nesting of a value that is read", limit::DEPTH, "levels"),
        ("digits of a number, and its exponent", limit::DIGITS, ""),
        ("a regular expression or a glob", limit::PATTERN_BYTES, "bytes"),
        ("a regular expression, compiled", limit::COMPILED_BYTES, "bytes"),
        ("lines that `print` and `trace` write in one evaluation", limit::LOG_LINES, "lines"),
        ("such a line; the rest is cut off", limit::LOG_LINE_BYTES, "bytes"),
    ];
    rows.map(|(what, most, unit)| format!("| {what} | {} |\n", format!("{most} {unit}").trim_end())).concat()
}

/// The functions that OPA 1.22 compiles into a module that calls them (OPA's internal/compiler/wasm/wasm.go,
/// `builtinsFunctions`).
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
