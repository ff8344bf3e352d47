//! Generates docs/contract.md, the contract's reference, from its WIT. `languages` generates the bindings in Go.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use wit_parser::{Docs, Function, Interface, Resolve, Type, TypeDef, TypeDefKind, WorldItem};

use crate::workspace::Workspace;
use crate::{command, languages};

/// The contract, and its reference, in the checkout.
pub(crate) const CONTRACT: &str = "sdk/wit/policy.wit";
const REFERENCE: &str = "docs/contract.md";

/// The interfaces that every module may import; `runtime/engine` has the same two.
const ALWAYS_GRANTED: [&str; 2] = ["log", "state"];

/// Suffixes of numbers with a unit.
const UNITS: [(&str, &str); 6] = [
    ("-usec", "µs"),
    ("-msec", "ms"),
    ("-bytes", "bytes"),
    ("-milli", "1/1000 CPU"),
    ("-percent", "%"),
    ("-permyriad", "1/100 %"),
];

/// How to write the reference.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail if the reference and the bindings do not match the contract.
    #[arg(long)]
    check: bool,
}

/// Writes the reference and the Go bindings, or checks them.
///
/// # Errors
///
/// If the contract cannot be read, there is no Go, or the files do not match the contract.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    if args.check {
        check(workspace)?;
        return languages::check_bindings(workspace);
    }
    let file = workspace.root().join(REFERENCE);
    std::fs::write(&file, made(workspace)?).with_context(|| format!("{} cannot be written", file.display()))?;
    println!("    {REFERENCE}");
    languages::write_bindings(workspace)
}

/// Compares the reference with the contract.
///
/// # Errors
///
/// If they differ; the error says which command to run.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    command::heading("the contract's reference");
    let file = workspace.root().join(REFERENCE);
    let there = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    if there != made(workspace)? {
        bail!("{REFERENCE} is not what {CONTRACT} says: run `cargo xtask contract`");
    }
    Ok(())
}

fn made(workspace: &Workspace) -> Result<String> {
    let file = workspace.root().join(CONTRACT);
    let text = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    reference(&text)
}

/// The reference of a contract.
fn reference(contract: &str) -> Result<String> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str(CONTRACT, contract).context("the contract is no WIT")?;
    let world = resolve.select_world(&[package], Some("policy")).context("the contract has no world `policy`")?;
    let package = resolve.packages.get(package).context("the contract has no package")?;
    let world = resolve.worlds.get(world).context("the contract has no world")?;
    let exported: Vec<_> = world
        .exports
        .values()
        .filter_map(|item| match item {
            WorldItem::Interface { id, .. } => Some(*id),
            WorldItem::Function(_) | WorldItem::Type { .. } => None,
        })
        .collect();
    let mut out = String::new();
    writeln!(
        out,
        "<!-- Made of {CONTRACT} by `cargo xtask contract`: change that one. -->\n\n# The contract: {}\n",
        package.name
    )?;
    writeln!(out, "{}\n", text(&package.docs))?;
    writeln!(out, "| interface | | grant |\n| --- | --- | --- |")?;
    let mut chapters = String::new();
    for (name, id) in &package.interfaces {
        let interface = resolve.interfaces.get(*id).context("an interface is not there")?;
        let kind = Kind::of(name, interface, exported.contains(id));
        writeln!(out, "| [`{name}`](#{name}) | {} | {} |", line(&interface.docs), kind.grant(name))?;
        chapter(&mut chapters, &resolve, name, interface, kind)?;
    }
    Ok(out + &chapters)
}

/// The role of an interface for a module.
#[derive(Clone, Copy)]
enum Kind {
    /// Types for other interfaces.
    Types,
    /// The module exports it.
    Export,
    /// Every module may import it.
    Free,
    /// An operator has to grant it.
    Granted,
}

impl Kind {
    fn of(name: &str, interface: &Interface, is_export: bool) -> Self {
        match (is_export, interface.functions.is_empty()) {
            (true, _) => Self::Export,
            (false, true) => Self::Types,
            (false, false) if ALWAYS_GRANTED.contains(&name) => Self::Free,
            (false, false) => Self::Granted,
        }
    }

    fn grant(self, name: &str) -> String {
        match self {
            Self::Types => "none: types alone".to_owned(),
            Self::Export => "none: the module exports it".to_owned(),
            Self::Free => "none: always granted".to_owned(),
            Self::Granted => format!("`{name}`"),
        }
    }
}

fn chapter(out: &mut String, resolve: &Resolve, name: &str, interface: &Interface, kind: Kind) -> Result<()> {
    writeln!(out, "\n## {name}\n\n{}\n\nGrant: {}.", text(&interface.docs), kind.grant(name))?;
    for function in interface.functions.values() {
        writeln!(out, "\n### `{}`\n\n{}", signature(resolve, function), text(&function.docs))?;
    }
    for (name, id) in &interface.types {
        let definition = resolve.types.get(*id).context("a type is not there")?;
        described(out, resolve, name, definition)?;
    }
    Ok(())
}

fn signature(resolve: &Resolve, function: &Function) -> String {
    let params: Vec<_> =
        function.params.iter().map(|param| format!("{}: {}", param.name, shown(resolve, &param.ty))).collect();
    let result = function.result.as_ref().map(|result| format!(" -> {}", shown(resolve, result))).unwrap_or_default();
    format!("{}: func({}){result}", function.name, params.join(", "))
}

/// The description of a type that an interface defines. Types that it uses from another interface are left out.
fn described(out: &mut String, resolve: &Resolve, name: &str, definition: &TypeDef) -> Result<()> {
    let mut head = |word: &str| writeln!(out, "\n### {word} `{name}`\n\n{}", text(&definition.docs));
    match &definition.kind {
        TypeDefKind::Record(record) => {
            head("record")?;
            writeln!(out, "\n| field | type | unit | |\n| --- | --- | --- | --- |")?;
            for field in &record.fields {
                let (ty, unit) = (shown(resolve, &field.ty), unit(&field.name));
                writeln!(out, "| `{}` | `{ty}` | {unit} | {} |", field.name, line(&field.docs))?;
            }
        }
        TypeDefKind::Enum(cases) => {
            head("enum")?;
            writeln!(out, "\n| case | |\n| --- | --- |")?;
            for case in &cases.cases {
                writeln!(out, "| `{}` | {} |", case.name, line(&case.docs))?;
            }
        }
        TypeDefKind::Variant(variant) => {
            head("variant")?;
            writeln!(out, "\n| case | with | |\n| --- | --- | --- |")?;
            for case in &variant.cases {
                let with = case.ty.as_ref().map(|ty| format!("`{}`", shown(resolve, ty))).unwrap_or_default();
                writeln!(out, "| `{}` | {with} | {} |", case.name, line(&case.docs))?;
            }
        }
        // The alias of another interface's type is described there.
        TypeDefKind::Type(Type::Id(_)) => {}
        TypeDefKind::Type(ty) => {
            let ty = shown(resolve, ty);
            head("type")?;
            writeln!(out, "\nIt is a `{ty}`.")?;
        }
        other => bail!("the reference cannot tell of `{name}`, a {}: teach it in {}", other.as_str(), file!()),
    }
    Ok(())
}

/// A type as WIT spells it.
fn shown(resolve: &Resolve, ty: &Type) -> String {
    let word = match ty {
        Type::Bool => "bool",
        Type::U8 => "u8",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::S8 => "s8",
        Type::S16 => "s16",
        Type::S32 => "s32",
        Type::S64 => "s64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::ErrorContext => "error-context",
        Type::Id(id) => {
            return resolve.types.get(*id).map_or_else(String::new, |definition| named(resolve, definition));
        }
    };
    word.to_owned()
}

fn named(resolve: &Resolve, definition: &TypeDef) -> String {
    if let Some(name) = &definition.name {
        return name.clone();
    }
    let of = |ty: &Type| shown(resolve, ty);
    match &definition.kind {
        TypeDefKind::Option(ty) => format!("option<{}>", of(ty)),
        TypeDefKind::List(ty) => format!("list<{}>", of(ty)),
        TypeDefKind::Tuple(tuple) => {
            format!("tuple<{}>", tuple.types.iter().map(of).collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Result(result) => match (&result.ok, &result.err) {
            (Some(ok), Some(err)) => format!("result<{}, {}>", of(ok), of(err)),
            (None, Some(err)) => format!("result<_, {}>", of(err)),
            (Some(ok), None) => format!("result<{}>", of(ok)),
            (None, None) => "result".to_owned(),
        },
        other => other.as_str().to_owned(),
    }
}

fn unit(name: &str) -> &'static str {
    UNITS.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit)
}

/// A comment as paragraphs.
fn text(docs: &Docs) -> String {
    docs.contents.as_deref().unwrap_or_default().trim().to_owned()
}

/// A comment in a cell of a table.
fn line(docs: &Docs) -> String {
    text(docs).split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_in_the_checkout_is_the_contracts() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        let made = reference(&read(CONTRACT)).unwrap();
        assert!(made == read(REFERENCE), "{REFERENCE} is not what {CONTRACT} says: run `cargo xtask contract`");
    }

    #[test]
    fn an_interface_is_listed_with_its_grant_functions_and_units() {
        let made = reference(
            "package a:b@0.1.0;\n/// Reads it.\ninterface gauge {\n/// One.\nrecord sample {\n/// How long.\nwait-usec: option<u64>,\n}\n\
             /// All.\nread: func(first: u32) -> list<sample>;\n}\n\
             interface log {\nwrite: func(line: string);\n}\n\
             world policy {\nimport gauge;\nimport log;\n}\n",
        )
        .unwrap();
        for part in [
            "| [`gauge`](#gauge) | Reads it. | `gauge` |",
            "| [`log`](#log) |  | none: always granted |",
            "### `read: func(first: u32) -> list<sample>`\n\nAll.",
            "### record `sample`\n\nOne.\n",
            "| `wait-usec` | `option<u64>` | µs | How long. |",
        ] {
            assert!(made.contains(part), "{part}\n{made}");
        }
    }
}
