//! Every public item has an example, which `cargo test --doc` runs. The lint for this exists only in unstable compilers.

#![expect(clippy::unwrap_used, reason = "a test that fails its expectation should say so at once")]

use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, TraitItem, UseTree, Visibility};

/// Generated from the contract, which has its own documentation.
const GENERATED: &str = "bindings.rs";

/// Number of items seen, and those without an example.
#[derive(Default)]
struct Survey {
    seen: usize,
    bare: Vec<String>,
}

impl Survey {
    fn look(&mut self, file: &str, name: &str, attributes: &[Attribute]) {
        self.seen += 1;
        if !is_hidden(attributes) && !docs(attributes).contains("```") {
            self.bare.push(format!("{file}: {name}"));
        }
    }

    fn items(&mut self, file: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Const(item) if is_public(&item.vis) => self.look(file, &item.ident.to_string(), &item.attrs),
                Item::Enum(item) if is_public(&item.vis) => self.look(file, &item.ident.to_string(), &item.attrs),
                Item::Fn(item) if is_public(&item.vis) => self.look(file, &item.sig.ident.to_string(), &item.attrs),
                Item::Struct(item) if is_public(&item.vis) => self.look(file, &item.ident.to_string(), &item.attrs),
                Item::Trait(item) if is_public(&item.vis) => {
                    self.look(file, &item.ident.to_string(), &item.attrs);
                    let example = docs(&item.attrs);
                    for method in item.items.iter().filter_map(|item| match item {
                        TraitItem::Fn(method) if !is_hidden(&method.attrs) => Some(&method.sig.ident),
                        _ => None,
                    }) {
                        // The example of a trait has to use each of its methods.
                        if !is_hidden(&item.attrs) && !example.contains(&format!("{method}")) {
                            self.bare.push(format!("{file}: {}::{method}", item.ident));
                        }
                    }
                }
                Item::Type(item) if is_public(&item.vis) => self.look(file, &item.ident.to_string(), &item.attrs),
                Item::Macro(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) => {
                    self.look(file, &item.ident.as_ref().unwrap().to_string(), &item.attrs);
                }
                Item::Macro(item) if item.mac.path.is_ident("counters") => {
                    let declared: syn::File = item.mac.parse_body().unwrap();
                    self.items(file, &declared.items);
                }
                // Items re-exported from within the crate have their example there.
                Item::Use(item) if is_public(&item.vis) && is_foreign(&item.tree) => {
                    self.look(file, &name_of(&item.tree), &item.attrs);
                }
                Item::Impl(item) if item.trait_.is_none() => {
                    for method in item.items.iter() {
                        match method {
                            ImplItem::Fn(method) if is_public(&method.vis) => {
                                self.look(file, &method.sig.ident.to_string(), &method.attrs);
                            }
                            ImplItem::Const(constant) if is_public(&constant.vis) => {
                                self.look(file, &constant.ident.to_string(), &constant.attrs);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    })
}

fn docs(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value() + "\n"),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect()
}

/// Whether the item is generated, or from another crate.
fn is_foreign(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => path.ident == "bindings",
        UseTree::Name(name) => name.ident == "schemars",
        _ => false,
    }
}

fn name_of(tree: &UseTree) -> String {
    match tree {
        UseTree::Path(path) => name_of(&path.tree),
        UseTree::Name(name) => name.ident.to_string(),
        UseTree::Rename(rename) => rename.rename.to_string(),
        UseTree::Glob(_) | UseTree::Group(_) => "several at once".into(),
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.file_name().is_some_and(|name| name != "tests.rs" && name != GENERATED))
        .collect()
}

#[test]
fn every_public_item_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut survey = Survey::default();
    for path in sources(&root) {
        let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
        survey.items(&path.strip_prefix(&root).unwrap().display().to_string(), &file.items);
    }
    assert!(survey.seen > 150, "only {} public items were found", survey.seen);
    assert!(survey.bare.is_empty(), "without an example:\n{}", survey.bare.join("\n"));
}
