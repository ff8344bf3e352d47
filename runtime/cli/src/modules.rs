//! The policies that are named by flags and the agent's file.

use qosm_agent::config::PolicyConfig;
use qosm_open_module::DEFAULTS;
use qosm_terminal::{Usage, document};

use crate::args::ModuleArgs;

/// The policies to run: those of the flags, else those of the file, else the default ones; with the settings in the flags.
pub(crate) fn entries(args: &ModuleArgs, from_file: Vec<PolicyConfig>) -> Result<Vec<PolicyConfig>, Usage> {
    entries_with_shadows(args, &[], from_file, true)
}

/// As [`entries`], with the shadows beside them, and with or without default policies.
pub(crate) fn entries_with_shadows(
    args: &ModuleArgs,
    shadows: &[String],
    from_file: Vec<PolicyConfig>,
    with_defaults: bool,
) -> Result<Vec<PolicyConfig>, Usage> {
    let mut entries: Vec<PolicyConfig> = if !args.policies.is_empty() {
        args.policies
            .iter()
            .map(|text| {
                let (name, file) = match text.split_once('=') {
                    Some((name, file)) => (name, Some(file.to_owned())),
                    None => (text.as_str(), None),
                };
                // The file's settings for a policy of that name (priority, grants, bounds) stay.
                let known = from_file.iter().find(|entry| entry.name == name).cloned();
                let mut entry = known.unwrap_or_else(|| PolicyConfig::builtin(name));
                if file.is_some() {
                    entry.module = file;
                }
                entry
            })
            .collect()
    } else if from_file.is_empty() && with_defaults {
        DEFAULTS.map(PolicyConfig::builtin).into()
    } else {
        from_file
    };
    for text in shadows {
        let (name, file) = split(text, "--shadow", "NAME=FILE")?;
        entries.push(PolicyConfig::shadow(name, file));
    }
    for text in &args.policy_config {
        let (name, json) = split(text, "--policy-config", "NAME=JSON")?;
        let config = document::object(json, &format!("--policy-config {name}"))?;
        entry_of(&mut entries, name, "--policy-config")?.config = config;
    }
    for text in &args.grants {
        let (name, grants) = split(text, "--grant", "NAME=INTERFACE,…")?;
        let grants = grants.split(',').map(str::trim).filter(|grant| !grant.is_empty()).map(str::to_owned);
        entry_of(&mut entries, name, "--grant")?.grants.get_or_insert_default().extend(grants);
    }
    Ok(entries)
}

/// Whether a flag's value is a module's file rather than a policy's name.
pub(crate) fn is_file(text: &str) -> bool {
    !text.contains('=') && (text.contains('/') || text.ends_with(".wasm") || text.ends_with(".tar.gz"))
}

fn split<'a>(text: &'a str, flag: &str, form: &str) -> Result<(&'a str, &'a str), Usage> {
    text.split_once('=').ok_or_else(|| Usage(format!("{flag} `{text}`: expected {form}")))
}

fn entry_of<'a>(entries: &'a mut [PolicyConfig], name: &str, flag: &str) -> Result<&'a mut PolicyConfig, Usage> {
    let known: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    entries
        .iter_mut()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Usage(format!("{flag} {name}: no policy of that name runs; there are: {}", known.join(", "))))
}
