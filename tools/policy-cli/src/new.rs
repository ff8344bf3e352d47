//! `qosm policy new`: creates a project from a template.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use qosm_terminal::{Answer, Usage, print};
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value};

use crate::args::{LanguageArg, NewArgs};

/// The files of the templates and of the SDK, as of the build of this binary.
mod trees {
    include!(concat!(env!("OUT_DIR"), "/trees.rs"));
}

/// Names that are not valid for a crate, and those of crates that a project uses.
const RUST_WORDS: [&str; 58] = [
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "const", "continue", "core", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "qosm-sdk", "ref", "return", "schemars", "self", "serde",
    "static", "std", "struct", "super", "test", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

/// Maximum length of a policy's name.
const NAME_LIMIT: usize = 63;

/// Where a project in Rust keeps its copy of the SDK, and the contract in it, as in a package of the SDK.
const SDK: &str = "sdk/rust";
const WIT: &str = "sdk/rust/wit";

pub(crate) fn run(args: &NewArgs) -> anyhow::Result<Answer> {
    let name = Name::read(&args.name, args.lang)?;
    if args.lang == LanguageArg::Rego && args.sdk.is_some() {
        return Err(Usage("--sdk names the crate for policies in Rust; one in Rego needs none".to_owned()).into());
    }
    let folder = args.to.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    vacant(&folder)?;
    let files = match args.lang {
        LanguageArg::Rust => rust(&name, args.sdk.as_deref(), &folder)?,
        LanguageArg::Rego => trees::TEMPLATE_REGO.iter().map(|file| name.put_into(file)).collect(),
    };
    write(&folder, &files)?;
    print::text(&next(args.lang, &name, &folder))?;
    Ok(Answer::Good)
}

/// Path of a file below the project's folder, and its content.
type File = (String, Vec<u8>);

/// A policy's name in the three forms that templates use.
struct Name {
    /// `my-policy`
    dashed: String,
    /// `my_policy`
    underscored: String,
    /// `MyPolicy`: the name of the type.
    camel: String,
}

impl Name {
    fn read(text: &str, language: LanguageArg) -> Result<Self, Usage> {
        let wrong =
            |what: String| Err(Usage(format!("`{text}` is not the name of a policy: {what}{}", proposal(text))));
        if let Some((place, odd)) = text.chars().enumerate().find(|(_, c)| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return wrong(format!(
                "`{}`, character {}, is no lower-case letter, digit or dash",
                odd.escape_debug(),
                place + 1
            ));
        }
        match text.chars().next() {
            None => return wrong("it is empty".to_owned()),
            Some(first) if !first.is_ascii_lowercase() => {
                return wrong(format!("it begins with `{first}`, not with a letter"));
            }
            Some(_) => {}
        }
        if text.ends_with('-') {
            return wrong("it ends with a dash".to_owned());
        }
        if text.len() > NAME_LIMIT {
            return wrong(format!("it has {} characters, more than {NAME_LIMIT}", text.len()));
        }
        if language == LanguageArg::Rust && RUST_WORDS.contains(&text) {
            return wrong("it is a word of Rust's, or a crate that the project uses".to_owned());
        }
        let capital = |word: &str| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
        };
        let camel: String = text.split('-').map(capital).collect();
        // Nothing else that the template names ends like this, but `Policy` itself.
        let is_own = camel.ends_with("Policy") && camel != "Policy";
        Ok(Self {
            dashed: text.to_owned(),
            underscored: text.replace('-', "_"),
            camel: if is_own { camel } else { camel + "Policy" },
        })
    }

    fn put(&self, text: &str) -> String {
        text.replace("my-policy", &self.dashed).replace("my_policy", &self.underscored).replace("MyPolicy", &self.camel)
    }

    /// A template's file with this name in its path and content.
    fn put_into(&self, (path, content): &(&str, &[u8])) -> File {
        let content =
            std::str::from_utf8(content).map_or_else(|_| content.to_vec(), |text| self.put(text).into_bytes());
        (self.put(path), content)
    }
}

/// A suggestion of a valid name, as the last part of the error message.
fn proposal(text: &str) -> String {
    let kept: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let words: Vec<&str> = kept.split('-').filter(|word| !word.is_empty()).collect();
    let name = words.join("-").trim_start_matches(|c: char| !c.is_ascii_lowercase()).to_owned();
    let is_new = name != text && !name.is_empty() && name.len() <= NAME_LIMIT;
    if is_new { format!("; `{name}` would be one") } else { String::new() }
}

/// Fails if something exists at the path.
fn vacant(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory && folder.is_file() => {
            bail!(Usage(format!("{shown} is a file; nothing was made. Name a folder with --to")))
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look into {shown}")),
    };
    if entries.next().is_some() {
        bail!(Usage(format!("{shown} is not empty; nothing was made. Name another folder with --to")))
    }
    Ok(())
}

/// Writes all files to a temporary folder, which is then renamed. A folder that exists stays the folder that it is, as it may be the
/// current one: the files are made in it, and put into their places once all are there.
fn write(folder: &Path, files: &[File]) -> anyhow::Result<()> {
    let failed = |path: &Path| format!("cannot write {}; nothing was made", path.display());
    let absolute = std::path::absolute(folder)?;
    let place = match absolute.parent() {
        _ if absolute.is_dir() => &absolute,
        Some(parent) => parent,
        None => bail!("the root is no place for a policy"),
    };
    std::fs::create_dir_all(place).with_context(|| failed(place))?;
    let beside =
        tempfile::Builder::new().prefix(".qosm-policy-new-").tempdir_in(place).with_context(|| failed(place))?;
    // A subfolder has the default permissions of the user's new folders, unlike the temporary folder.
    let fresh = beside.path().join("project");
    for (path, content) in files {
        let path = fresh.join(path);
        let above = path.parent().unwrap_or(&fresh);
        std::fs::create_dir_all(above).with_context(|| failed(above))?;
        std::fs::write(&path, content).with_context(|| failed(&path))?;
    }
    if place != absolute {
        return std::fs::rename(&fresh, folder).with_context(|| failed(folder));
    }
    let entries: Vec<_> = std::fs::read_dir(&fresh)?.collect::<Result<_, _>>()?;
    for entry in entries {
        let path = absolute.join(entry.file_name());
        std::fs::rename(entry.path(), &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The files of a project in Rust: those of the template, and the SDK unless `sdk` names its folder.
fn rust(name: &Name, sdk: Option<&Path>, folder: &Path) -> anyhow::Result<Vec<File>> {
    let mut files: Vec<File> = trees::TEMPLATE_RUST.iter().map(|file| name.put_into(file)).collect();
    let path = match sdk {
        Some(sdk) => {
            let manifest = sdk.join("Cargo.toml");
            let text = std::fs::read_to_string(&manifest);
            let text = text.map_err(|error| Usage(format!("--sdk: cannot read {}: {error}", manifest.display())))?;
            if !text.contains("name = \"qosm-sdk\"") {
                return Err(Usage(format!("--sdk: {} is not the crate qosm-sdk", sdk.display())).into());
            }
            sdk.canonicalize()?.display().to_string()
        }
        None => {
            let below = |place: &'static str| {
                move |(path, content): &(&str, &[u8])| (format!("{place}/{path}"), content.to_vec())
            };
            files.extend(trees::SDK_RUST.iter().map(below(SDK)));
            files.extend(trees::SDK_WIT.iter().map(below(WIT)));
            SDK.to_owned()
        }
    };
    for (path_of_file, content) in &mut files {
        let edited = match path_of_file.as_str() {
            "Cargo.toml" => project_manifest(content, &path, is_below_workspace(folder))?,
            "sdk/rust/Cargo.toml" => sdk_manifest(content)?,
            _ => continue,
        };
        *content = edited.into_bytes();
    }
    Ok(files)
}

/// Whether cargo would treat the project as a member of a workspace in a parent folder.
fn is_below_workspace(folder: &Path) -> bool {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    absolute.ancestors().skip(1).any(|above| above.join("Cargo.toml").exists())
}

fn document(content: &[u8]) -> anyhow::Result<DocumentMut> {
    Ok(std::str::from_utf8(content)?.parse::<DocumentMut>()?)
}

/// The template's manifest, with the path of the SDK for this project.
fn project_manifest(content: &[u8], sdk: &str, is_below_workspace: bool) -> anyhow::Result<String> {
    let mut manifest = document(content)?;
    for table in ["dependencies", "dev-dependencies"] {
        let dependency = manifest.get_mut(table).and_then(|table| table.get_mut("qosm-sdk"));
        if let Some(dependency) = dependency.and_then(Item::as_table_like_mut) {
            dependency.remove("workspace");
            dependency.insert("path", toml_edit::value(sdk));
        }
    }
    if is_below_workspace {
        let mut workspace = Table::new();
        workspace.decor_mut().set_prefix("\n# A workspace of its own, whatever stands in the folders above.\n");
        // Without this, cargo would treat the SDK in the project's folder as a member.
        workspace.insert("exclude", toml_edit::value(toml_edit::Array::from_iter(["sdk"])));
        manifest.insert("workspace", Item::Table(workspace));
    }
    Ok(manifest.to_string())
}

/// The SDK's manifest with inherited values written out, and without the dependencies of its own tests.
fn sdk_manifest(content: &[u8]) -> anyhow::Result<String> {
    let workspace: DocumentMut = trees::WORKSPACE.parse()?;
    let inherited = |table: &str, key: &str| workspace.get("workspace")?.get(table)?.get(key).cloned();
    let mut manifest = document(content)?;
    for table in ["dev-dependencies", "lints", "bench", "test"] {
        manifest.remove(table);
    }
    if let Some(package) = manifest.get_mut("package").and_then(Item::as_table_like_mut) {
        for (key, item) in package.iter_mut() {
            if is_inherited(item) {
                let from = inherited("package", key.get());
                *item = from.with_context(|| format!("the SDK inherits `{}`, which nobody says", key.get()))?;
            }
        }
    }
    if let Some(dependencies) = manifest.get_mut("dependencies").and_then(Item::as_table_like_mut) {
        for (key, item) in dependencies.iter_mut() {
            if is_inherited(item) {
                let from = inherited("dependencies", key.get());
                let from = from.with_context(|| format!("the SDK inherits `{}`, which nobody says", key.get()))?;
                *item = Item::Value(Value::InlineTable(merged(&from, item)));
            }
        }
    }
    Ok(manifest.to_string())
}

fn is_inherited(item: &Item) -> bool {
    item.get("workspace").and_then(Item::as_bool) == Some(true)
}

/// A dependency of the workspace, merged with the keys next to `workspace = true`.
fn merged(from: &Item, beside: &Item) -> InlineTable {
    let mut table = match from {
        Item::Value(Value::String(version)) => InlineTable::from_iter([("version", version.value().as_str())]),
        other => other.clone().into_table().map(Table::into_inline_table).unwrap_or_default(),
    };
    for (key, item) in beside.as_table_like().into_iter().flat_map(|table| table.iter()) {
        let Some(value) = item.as_value().filter(|_| key != "workspace") else { continue };
        let more = value.as_array().filter(|_| key == "features");
        if let (Some(more), Some(features)) = (more, table.get_mut(key).and_then(Value::as_array_mut)) {
            features.extend(more.iter().cloned());
        } else {
            table.insert(key, value.clone());
        }
    }
    table.fmt();
    table
}

/// The commands to run next.
fn next(language: LanguageArg, name: &Name, folder: &Path) -> String {
    let (what, built) = match language {
        LanguageArg::Rust => ("a policy in Rust", "wasm"),
        LanguageArg::Rego => ("a policy in Rego", "tar.gz"),
    };
    let (folder, name) = (folder.display(), &name.dashed);
    format!(
        "made  {folder}: {what} that builds, passes its tests and runs as it is\n\
         next  cd {folder}\n      \
               qosm policy test                                # its own tests, then tests/cases/*.yaml against the module\n      \
               qosm policy run --facts recordings/node.yaml    # what it would set on a node, and why\n      \
               qosm policy lint\n      \
               qosm policy build                               # target/{name}.{built}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> String {
        Name::read(name, LanguageArg::Rust).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_name_has_three_forms() {
        let name = Name::read("memory-for-batch2", LanguageArg::Rust).unwrap();
        assert_eq!(
            (name.put("my-policy"), name.put("my_policy"), name.put("MyPolicy")),
            ("memory-for-batch2".into(), "memory_for_batch2".into(), "MemoryForBatch2Policy".into())
        );
    }

    #[test]
    fn what_is_no_name_is_told_by_character() {
        for (name, words) in [
            ("My_Policy", "`M`, character 1, is no lower-case letter, digit or dash; `my-policy` would be one"),
            ("my policy", "` `, character 3"),
            ("größe", "`ö`, character 3"),
            ("a\u{1b}[31m", "`\\u{1b}`, character 2"),
            ("", "it is empty"),
            ("-a", "it begins with `-`, not with a letter; `a` would be one"),
            ("2fast", "it begins with `2`"),
            ("a-", "it ends with a dash; `a` would be one"),
            ("../up", "`.`, character 1"),
            ("struct", "a word of Rust's"),
        ] {
            assert!(refused(name).contains(words), "{name}: {}", refused(name));
        }
        assert!(refused(&"a".repeat(64)).contains("64 characters, more than 63"));
        assert!(Name::read(&"a".repeat(63), LanguageArg::Rust).is_ok());
        assert!(Name::read("struct", LanguageArg::Rego).is_ok());
    }

    #[test]
    fn the_sdks_manifest_stands_by_itself() {
        let (_, content) = trees::SDK_RUST.iter().find(|(path, _)| *path == "Cargo.toml").unwrap();
        let text = sdk_manifest(content).unwrap();
        assert!(!text.contains("workspace"), "{text}");
        let manifest: DocumentMut = text.parse().unwrap();
        assert_eq!(manifest["package"]["edition"].as_str(), Some("2024"), "{text}");
        assert_eq!(manifest["dependencies"]["serde-saphyr"]["optional"].as_bool(), Some(true), "{text}");
        assert!(manifest["dependencies"]["serde-saphyr"]["version"].is_str(), "{text}");
        assert!(manifest["dependencies"]["wit-bindgen"]["features"].is_array(), "{text}");
    }
}
