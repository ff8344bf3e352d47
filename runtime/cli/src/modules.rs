//! The policies that are named by flags and the agent's file.

use std::collections::BTreeSet;

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
                if is_file(text) {
                    return Err(Usage(format!(
                        "--policy `{text}`: write NAME={text}, with the name of the policy here"
                    )));
                }
                let (name, file) = match text.split_once('=') {
                    Some((name, file)) => (name, Some(file.to_owned())),
                    None => (text.as_str(), None),
                };
                if name.is_empty() || file.as_deref() == Some("") {
                    return Err(Usage(format!("--policy `{text}`: expected NAME or NAME=FILE")));
                }
                // The file's settings for a policy of that name (priority, grants, bounds) stay.
                let known = from_file.iter().find(|entry| entry.name == name).cloned();
                let mut entry = known.unwrap_or_else(|| PolicyConfig::builtin(name));
                if file.is_some() {
                    entry.module = file;
                }
                Ok(entry)
            })
            .collect::<Result<_, _>>()?
    } else if from_file.is_empty() && with_defaults {
        DEFAULTS.map(PolicyConfig::builtin).into()
    } else {
        from_file
    };
    for text in shadows {
        let (name, file) = split(text, "--shadow", "NAME=FILE")?;
        entries.push(PolicyConfig::shadow(name, file));
    }
    let mut configured = BTreeSet::new();
    for text in &args.policy_config {
        let (name, json) = split(text, "--policy-config", "NAME=JSON")?;
        if !configured.insert(name) {
            return Err(Usage(format!("--policy-config {name} is there twice: write one object with all fields")));
        }
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
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    parts.ok_or_else(|| Usage(format!("{flag} `{text}`: expected {form}")))
}

fn entry_of<'a>(entries: &'a mut [PolicyConfig], name: &str, flag: &str) -> Result<&'a mut PolicyConfig, Usage> {
    let known: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    entries
        .iter_mut()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Usage(format!("{flag} {name}: no policy of that name runs; there are: {}", known.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries_of(policy: &str) -> Result<Vec<PolicyConfig>, Usage> {
        let policies = vec![policy.to_owned()];
        entries(&ModuleArgs { policies, policy_config: Vec::new(), grants: Vec::new(), module_dir: None }, Vec::new())
    }

    #[test]
    fn a_file_has_a_name() {
        let named = entries_of("mine=./x.wasm").unwrap();
        assert_eq!((named[0].name.as_str(), named[0].module.as_deref()), ("mine", Some("./x.wasm")));
        let refused = entries_of("./x.wasm").unwrap_err();
        assert_eq!(refused.0, "--policy `./x.wasm`: write NAME=./x.wasm, with the name of the policy here");
        for nameless in ["=x.wasm", "x=", ""] {
            let refused = entries_of(nameless).unwrap_err();
            assert_eq!(refused.0, format!("--policy `{nameless}`: expected NAME or NAME=FILE"));
        }
    }

    #[test]
    fn a_policy_is_configured_once() {
        let policy_config = vec!["cpu-burst={}".to_owned(), r#"cpu-burst={"profile": "koordinator"}"#.to_owned()];
        let args = ModuleArgs { policies: Vec::new(), policy_config, grants: Vec::new(), module_dir: None };
        let refused = entries(&args, Vec::new()).unwrap_err();
        assert_eq!(refused.0, "--policy-config cpu-burst is there twice: write one object with all fields");
    }
}
