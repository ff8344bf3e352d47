//! Opens a store of artefacts from flags and files, with the keys that verify signatures.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use qosm_registry::trust::{PublicKey, Require, Trust, TrustKey, TrustPolicy, TrustRule};
use qosm_registry::{Location, RegistrySettings, Store, trust_of};

use qosm_terminal::{Usage, document};

use crate::args::{KeyArgs, RegistryArgs};
use crate::personal_folder;

/// Maximum size of a key's file, in bytes: it excludes a device or a log that is named by mistake.
const MAX_KEY_FILE: u64 = 64 << 10;

/// Opens the user's store.
///
/// # Errors
///
/// If the file of registries is invalid, or the store cannot be opened.
pub fn store(args: &RegistryArgs, locations: &[&Location]) -> anyhow::Result<Store> {
    open(args, locations, settings(args)?)
}

/// Like [`store`], but accepts any signature or none: for modules that are inspected and not run.
pub(crate) fn open_to_all(args: &RegistryArgs, locations: &[&Location]) -> anyhow::Result<Store> {
    open(args, locations, RegistrySettings { verification: TrustPolicy::default(), ..settings(args)? })
}

fn open(args: &RegistryArgs, locations: &[&Location], mut settings: RegistrySettings) -> anyhow::Result<Store> {
    for location in locations {
        if let Location::Registry(reference) = location {
            settings.say(reference.registry(), args.plain_http, args.ca.as_deref());
        }
    }
    let folder = match &args.store {
        Some(folder) => folder.clone(),
        None => {
            personal_folder().context("no home to keep artefacts in; name a folder with --store")?.join("artifacts")
        }
    };
    Ok(Store::open(settings, &folder)?)
}

fn settings(args: &RegistryArgs) -> Result<RegistrySettings, Usage> {
    if let Some(path) = &args.registries {
        return document::read(path);
    }
    let personal = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .map(|folder| folder.join("qosm/registries.yaml"));
    let known = personal.into_iter().chain([PathBuf::from("/etc/qosm/registries.yaml")]).find(|path| path.exists());
    known.map_or_else(|| Ok(RegistrySettings::default()), |path| document::read(&path))
}

/// The rule of the flags; `None` if they name no key.
///
/// # Errors
///
/// [`Usage`] if a key cannot be read, or a text is not `KEY=VALUE`.
pub fn trust(args: &KeyArgs) -> anyhow::Result<Option<Trust>> {
    if args.keys.is_empty() {
        return Ok(None);
    }
    let rule = TrustRule {
        pattern: "*".to_owned(),
        keys: args.keys.iter().map(|path| key(path)).collect::<Result<_, _>>()?,
        require: if args.all_keys { Require::All } else { Require::Any },
        annotations: pairs(&args.signed, "--signed")?,
        docker_reference: false,
        unsigned: false,
    };
    Ok(Some(trust_of(&TrustPolicy { rules: vec![rule] })?))
}

/// Reads a key. Errors name the flag: the rule is not the user's.
#[expect(clippy::disallowed_methods, reason = "a command reads the files that were typed")]
fn key(path: &Path) -> Result<TrustKey, Usage> {
    let shown = path.display();
    let mut pem = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_FILE).read_to_string(&mut pem));
    read.map_err(|error| Usage(format!("--key {shown}: cannot be read: {error}")))?;
    PublicKey::from_pem(&pem).map_err(|error| Usage(format!("--key {shown}: {error}")))?;
    Ok(TrustKey { name: shown.to_string(), pem: Some(pem), path: None })
}

/// Parses texts of the form `KEY=VALUE`.
///
/// # Errors
///
/// [`Usage`] with the flag's name and the invalid text.
pub fn pairs(texts: &[String], flag: &str) -> Result<BTreeMap<String, String>, Usage> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty())?;
        Some((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(|text| pair(text).ok_or_else(|| Usage(format!("{flag} `{text}`: expected KEY=VALUE")))).collect()
}

/// Parses a reference from the command line.
///
/// # Errors
///
/// [`Usage`] if the text is not a reference.
pub fn location(text: &str) -> Result<Location, Usage> {
    text.parse().map_err(|error: qosm_registry::ReferenceError| Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_used_is_named_by_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, text) = (folder.path().join("missing.pub"), folder.path().join("text.pub"));
        std::fs::write(&text, "no key").unwrap();
        for (path, expected) in [(&missing, "cannot be read: No such file"), (&text, "")] {
            let args = KeyArgs { keys: vec![path.clone()], all_keys: false, signed: Vec::new() };
            let error = trust(&args).err().unwrap();
            let Some(Usage(message)) = error.downcast_ref() else { panic!("{error:?}") };
            assert!(message.starts_with(&format!("--key {}: {expected}", path.display())), "{message}");
        }
    }
}
