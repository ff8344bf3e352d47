//! From flags and files to a library, keys, and the bytes of a module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use qosm_registry::trust::{Require, Trust, TrustKey, TrustPolicy, TrustRule};
use qosm_registry::{Library, Location, Look, Pulled, RegistrySettings, Verification, trust_of};

use super::progress::Bars;
use crate::args::{KeyArgs, RegistryArgs};
use crate::print::Usage;
use crate::{client, document, modules};

/// The library of whoever typed the command.
pub(crate) fn library(args: &RegistryArgs, locations: &[&Location]) -> anyhow::Result<Library> {
    open(args, locations, settings(args)?)
}

/// The same, believing everything: to look at what is not to be run.
fn open_to_all(args: &RegistryArgs, locations: &[&Location]) -> anyhow::Result<Library> {
    open(args, locations, RegistrySettings { verification: TrustPolicy::default(), ..settings(args)? })
}

fn open(args: &RegistryArgs, locations: &[&Location], mut settings: RegistrySettings) -> anyhow::Result<Library> {
    for location in locations {
        if let Location::Registry(reference) = location {
            settings.say(reference.registry(), args.plain_http, args.ca.as_deref());
        }
    }
    let store = match &args.store {
        Some(store) => store.clone(),
        None => modules::personal_folder()
            .context("no home to keep artefacts in; name a folder with --store")?
            .join("artifacts"),
    };
    Ok(Library::open(settings, &store)?)
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

/// The rule that flags come to; `None` = they name no key.
pub(crate) fn trust(args: &KeyArgs) -> anyhow::Result<Option<Trust>> {
    if args.keys.is_empty() {
        return Ok(None);
    }
    let key = |path: &PathBuf| TrustKey { name: path.display().to_string(), pem: None, path: Some(path.clone()) };
    let rule = TrustRule {
        pattern: "*".to_owned(),
        keys: args.keys.iter().map(key).collect(),
        require: if args.all_keys { Require::All } else { Require::Any },
        annotations: pairs(&args.signed, "--signed")?,
        docker_reference: false,
        unsigned: false,
    };
    Ok(Some(trust_of(&TrustPolicy { rules: vec![rule] })?))
}

/// `KEY=VALUE`s.
pub(crate) fn pairs(texts: &[String], flag: &str) -> Result<BTreeMap<String, String>, Usage> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty())?;
        Some((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(|text| pair(text).ok_or_else(|| Usage(format!("{flag} `{text}`: expected KEY=VALUE")))).collect()
}

/// A reference as it was typed.
pub(crate) fn location(text: &str) -> Result<Location, Usage> {
    text.parse().map_err(|error: qosm_registry::ReferenceError| Usage(error.to_string()))
}

/// What was pulled, with what stands beside it.
pub(crate) struct Artefact {
    pub(crate) look: Look,
    pub(crate) verification: Verification,
}

/// A module as it was named: a file, an artefact (believed or not), or a default one. Says where it was.
pub(crate) fn module(
    text: &str,
    module_dir: Option<&Path>,
    args: &RegistryArgs,
) -> anyhow::Result<(String, Vec<u8>, Option<Artefact>)> {
    let path = PathBuf::from(text);
    let default = modules::default_dir(module_dir).join(format!("{text}.wasm"));
    let meant = text.parse::<Location>();
    let path = match (path.exists(), default.exists(), meant) {
        (true, ..) => path,
        (false, true, _) => default,
        (false, false, Ok(location)) => {
            let library = library(args, &[&location])?;
            let open = open_to_all(args, &[&location])?;
            return client::block_on(async {
                let look = open.look(&location).await?;
                // A tag may move in between; what is told is about one artefact.
                let pinned = location.pinned(look.digest);
                let verification = library.verify(&pinned, None).await?;
                let Pulled { module, .. } = open.pull(&pinned, None, false, &mut Bars::default()).await?;
                Ok((location.to_string(), module, Some(Artefact { look, verification })))
            });
        }
        (false, false, Err(error)) => {
            let folder = default.display();
            bail!("no file `{text}` and no default module of that name ({folder}); as an artefact: {error}")
        }
    };
    let wasm = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), wasm, None))
}
