//! Overrides: modules that an operator swapped in on this node, and versions that failed and were rolled back.

use std::collections::BTreeMap;
use std::io::Write as _;

use cap_std::fs::Dir;
use qosm_model::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::config::PolicyConfig;
use crate::old_names;
use crate::policy_set::resolved::{RolledBack, Swapped};

/// The file of overrides and of failed versions.
pub(super) const FILE: &str = "swaps.json";

/// Maximum number of failed versions that are remembered for one policy.
const MAX_FAILED: usize = 16;

/// Swapped modules and failed versions, by policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Overrides {
    #[serde(alias = "over")]
    overrides: BTreeMap<String, Override>,
    #[serde(alias = "takenBack")]
    rolled_back: BTreeMap<String, Vec<Failed>>,
}

/// A version that an entry no longer gets. It is stored, because after a restart there is no previous version to go back to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Failed {
    entry: PolicyConfig,
    digest: String,
    why: String,
}

/// The swapped module of one policy. It applies as long as the entry names the module that it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Override {
    /// The module that the entry names.
    instead_of: Option<String>,
    /// The module that runs instead.
    module: Option<String>,
    /// The module that ran before this one.
    before: Option<String>,
}

impl Overrides {
    /// Reads what an earlier agent wrote. A file that cannot be parsed is logged and counts as empty.
    pub(super) fn read(state: &Dir) -> Self {
        match state.read(FILE).map(|text| parse(&text)) {
            Ok(Ok(overrides)) => overrides,
            Ok(Err(error)) => {
                tracing::warn!(file = FILE, %error, "file cannot be read; policies run the modules of their entries");
                Self::default()
            }
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(file = FILE, %error, "file cannot be read; policies run the modules of their entries");
                }
                Self::default()
            }
        }
    }

    /// The entry with its swapped module, if there is one.
    pub(super) fn apply_to(&self, entry: PolicyConfig) -> PolicyConfig {
        match self.overrides.get(&entry.name).filter(|swap| swap.instead_of == entry.module) {
            Some(swap) => PolicyConfig { module: swap.module.clone(), ..entry },
            None => entry,
        }
    }

    /// Replaces the module of an entry; `None` = by the previous one. `running` is the module that runs now.
    pub(super) fn swap(
        &mut self,
        entry: &PolicyConfig,
        module: Option<String>,
        running: Option<String>,
    ) -> Result<Swapped, String> {
        let known = self.overrides.get(&entry.name).filter(|swap| swap.instead_of == entry.module).cloned();
        let now = running;
        let wanted = match (module, &known) {
            (Some(module), _) => Some(module),
            // A swap whose module never ran is undone; the running one stays.
            (None, Some(swap)) if swap.module != now => now.clone(),
            (None, Some(swap)) => swap.before.clone(),
            (None, None) => {
                return Err(format!("policy `{}` was not swapped; there is nothing to go back to", entry.name));
            }
        };
        // The operator asks again, so failed versions may be tried again.
        self.rolled_back.remove(&entry.name);
        // Going back to the entry's module is a swap as well, so that it can be undone.
        let before = known.filter(|_| wanted == now).map_or_else(|| now.clone(), |swap| swap.before);
        let swap = Override { instead_of: entry.module.clone(), module: wanted.clone(), before };
        self.overrides.insert(entry.name.clone(), swap);
        Ok(Swapped { policy: entry.name.clone(), module: wanted, before: now, policy_set: 0 })
    }

    /// Forgets overrides whose entries are gone or name another module by now. Returns whether there were any.
    pub(super) fn prune(&mut self, entries: &[PolicyConfig]) -> bool {
        let before = self.overrides.len();
        self.overrides
            .retain(|name, swap| entries.iter().any(|entry| entry.name == *name && entry.module == swap.instead_of));
        self.overrides.len() != before
    }

    /// Writes the file atomically.
    pub(super) fn write(&self, state: &Dir) -> std::io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let temporary = format!("{FILE}.new");
        let mut file = state.create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        drop(file);
        state.rename(&temporary, state, FILE)
    }

    /// Records a version that failed: its entry no longer gets its module.
    pub(super) fn roll_back(&mut self, rolled_back: RolledBack) {
        let RolledBack { entry, digest, why } = rolled_back;
        let all = self.rolled_back.entry(entry.name.clone()).or_default();
        let failed = Failed { entry, digest: digest.to_string(), why };
        all.retain(|other| (&other.entry, &other.digest) != (&failed.entry, &failed.digest));
        all.push(failed);
        if all.len() > MAX_FAILED {
            all.remove(0);
        }
    }

    /// Why the last version of an entry failed; `None` if none did.
    pub(super) fn failure_of(&self, entry: &PolicyConfig) -> Option<String> {
        let failed = self.rolled_back.get(&entry.name)?.iter().rev().find(|failed| failed.entry == *entry)?;
        Some(failed.why.clone())
    }

    /// Forgets the failed versions of a policy, so that they are tried again. Returns whether there were any.
    pub(super) fn clear_rollback(&mut self, policy: &str) -> bool {
        self.rolled_back.remove(policy).is_some()
    }

    /// Why an entry does not get this module; `None` if it does.
    pub(super) fn rolled_back(&self, entry: &PolicyConfig, digest: &Digest) -> Option<String> {
        let digest = digest.to_string();
        let mut all = self.rolled_back.get(&entry.name)?.iter();
        all.find(|failed| failed.entry == *entry && failed.digest == digest).map(|failed| failed.why.clone())
    }
}

fn parse(text: &[u8]) -> Result<Overrides, serde_json::Error> {
    let mut all: serde_json::Value = serde_json::from_slice(text)?;
    for name in ["rolledBack", "takenBack"] {
        let failed = all.get_mut(name).and_then(serde_json::Value::as_object_mut);
        for version in failed.into_iter().flat_map(|all| all.values_mut()).filter_map(|of| of.as_array_mut()).flatten()
        {
            version.get_mut("entry").map(old_names::update_entry);
        }
    }
    serde_json::from_value(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(module: &str) -> PolicyConfig {
        PolicyConfig { module: Some(module.to_owned()), ..PolicyConfig::builtin("burst") }
    }

    fn failed(entry: &PolicyConfig, module: &[u8]) -> RolledBack {
        RolledBack { entry: entry.clone(), digest: Digest::of(module), why: "it trapped".into() }
    }

    #[test]
    fn several_that_failed_are_remembered_and_cleared_together() {
        let mut overrides = Overrides::default();
        let (one, other) = (entry("file:///one"), entry("file:///other"));
        for version in [&one, &other] {
            overrides.roll_back(failed(version, b"x"));
            overrides.roll_back(failed(version, b"x"));
        }
        let is_known =
            |overrides: &Overrides, entry: &PolicyConfig| overrides.rolled_back(entry, &Digest::of(b"x")).is_some();
        assert!(is_known(&overrides, &one) && is_known(&overrides, &other));
        assert!(overrides.clear_rollback("burst") && !overrides.clear_rollback("burst") && !is_known(&overrides, &one));
    }

    #[test]
    fn a_swap_counts_as_long_as_the_entry_names_what_it_replaces() {
        let mut overrides = Overrides::default();
        let old = entry("file:///old");
        let swapped = overrides.swap(&old, Some("file:///new".into()), old.module.clone()).unwrap();
        assert_eq!(swapped.before.as_deref(), Some("file:///old"));
        assert_eq!(overrides.apply_to(old.clone()).module.as_deref(), Some("file:///new"));
        assert_eq!(overrides.apply_to(entry("file:///other")).module.as_deref(), Some("file:///other"));
        overrides.prune(&[entry("file:///other")]);
        assert_eq!(overrides.apply_to(old.clone()), old);
    }

    #[test]
    fn going_back_leads_to_what_ran_before_and_again_to_what_ran_after() {
        let mut overrides = Overrides::default();
        let old = entry("file:///old");
        let running = |overrides: &Overrides| overrides.apply_to(old.clone()).module;
        let mut swap = |to: Option<&str>| {
            let runs = running(&overrides);
            overrides.swap(&old, to.map(str::to_owned), runs).map(|_| running(&overrides).unwrap_or_default())
        };
        assert!(swap(None).unwrap_err().contains("was not swapped"));
        for (to, expected) in [
            (Some("file:///one"), "file:///one"),
            (Some("file:///two"), "file:///two"),
            (None, "file:///one"),
            (None, "file:///two"),
            (Some("file:///old"), "file:///old"),
            (None, "file:///two"),
        ] {
            assert_eq!(swap(to), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn what_never_came_to_run_is_nothing_to_go_back_to() {
        let mut overrides = Overrides::default();
        let old = entry("file:///old");
        let runs = || old.module.clone();
        overrides.swap(&old, Some("file:///broken".into()), runs()).unwrap();
        assert_eq!(overrides.swap(&old, Some("file:///good".into()), runs()).unwrap().before, runs());
        assert_eq!(overrides.swap(&old, None, Some("file:///good".into())).unwrap().module, runs());
        overrides.swap(&old, Some("file:///broken".into()), runs()).unwrap();
        assert_eq!(overrides.swap(&old, None, runs()).unwrap().module, runs(), "the swap is undone");
    }

    #[test]
    fn what_was_swapped_outlives_the_agent_and_what_cannot_be_read_counts_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).unwrap();
        let mut overrides = Overrides::default();
        overrides.swap(&entry("file:///old"), Some("file:///new".into()), None).unwrap();
        overrides.write(&state).unwrap();
        overrides.roll_back(failed(&entry("file:///new"), b"new"));
        overrides.write(&state).unwrap();
        assert_eq!(Overrides::read(&state), overrides);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Overrides::read(&state), Overrides::default());
    }

    #[test]
    fn what_an_earlier_build_wrote_is_read() {
        let swap = r#"{"instead_of": "file:///old", "module": "file:///new", "before": null}"#;
        let failed = r#"[{"entry": {"name": "burst", "module": "file:///new", "onFailure": "hold"}, "digest": "x", "why": "y"}]"#;
        let old = format!(r#"{{"over": {{"burst": {swap}}}, "takenBack": {{"burst": {failed}}}}}"#);
        let mut read = parse(old.as_bytes()).unwrap();
        assert_eq!(read.apply_to(entry("file:///old")).module.as_deref(), Some("file:///new"));
        assert!(read.clear_rollback("burst"));
    }

    #[test]
    fn a_version_that_failed_is_not_used_again_until_an_operator_asks_for_it() {
        let mut overrides = Overrides::default();
        let (failed, digest) = (entry("file:///new"), Digest::of(b"new"));
        overrides.roll_back(super::RolledBack { entry: failed.clone(), digest, why: "it trapped".into() });
        assert_eq!(overrides.rolled_back(&failed, &digest).as_deref(), Some("it trapped"));
        assert_eq!(overrides.rolled_back(&failed, &Digest::of(b"mended")), None);
        assert_eq!(overrides.rolled_back(&PolicyConfig { priority: 7, ..failed.clone() }, &digest), None);
        overrides.swap(&entry("file:///old"), Some("file:///new".into()), None).unwrap();
        assert_eq!(overrides.rolled_back(&failed, &digest), None);
    }
}
