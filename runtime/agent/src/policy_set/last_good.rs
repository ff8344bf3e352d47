//! What outlives a restart: which specification of a PolicyModule was applied, and which module was verified to work.

use std::collections::BTreeMap;

use cap_std::fs::Dir;
use serde::de::DeserializeOwned;

use super::choice::{AppliedSpec, entry};
use crate::config::PolicyConfig;
use crate::{old_names, state_file};

/// The file of applied specifications of PolicyModules.
const APPLIED: &str = "policy-modules.json";
/// The file of verified modules.
const VERIFIED: &str = "proven.json";

/// The contents of both files.
pub(super) struct LastGood {
    state: Dir,
    pub(super) applied: BTreeMap<String, AppliedSpec>,
    /// Modules, as an entry would name them.
    verified: BTreeMap<String, String>,
    written: (BTreeMap<String, AppliedSpec>, BTreeMap<String, String>),
}

impl LastGood {
    /// Reads what an earlier agent wrote. A file that cannot be parsed is logged and counts as empty.
    pub(super) fn read(state: Dir) -> Self {
        let (applied, verified) = (read(&state, APPLIED), read(&state, VERIFIED));
        Self { state, written: (applied.clone(), verified.clone()), applied, verified }
    }

    /// The folder of both files.
    pub(super) fn state(&self) -> &Dir {
        &self.state
    }

    /// The module of a policy that was verified last.
    pub(super) fn verified(&self, policy: &str) -> Option<String> {
        self.verified.get(policy).cloned()
    }

    /// Records that a module works.
    pub(super) fn set_verified(&mut self, policy: &str, module: Option<String>) {
        match module {
            Some(module) => drop(self.verified.insert(policy.to_owned(), module)),
            None => drop(self.verified.insert(policy.to_owned(), format!("builtin:{policy}"))),
        }
    }

    /// Records the specification of a PolicyModule that is applied.
    pub(super) fn apply(&mut self, policy: &str, now: AppliedSpec) {
        let now = now.over(self.applied.remove(policy));
        self.applied.insert(policy.to_owned(), now);
    }

    /// Records that an entry has shown that it works: its specification replaces the one before for good.
    pub(super) fn works(&mut self, config: &PolicyConfig) {
        if let Some(applied) = self.applied.get_mut(&config.name).filter(|applied| is_of(applied, config)) {
            applied.before = None;
        }
    }

    /// Records that an entry failed: the specification before counts as applied again.
    pub(super) fn failed(&mut self, config: &PolicyConfig) {
        if let Some(applied) = self.applied.get_mut(&config.name).filter(|applied| is_of(applied, config))
            && let Some(before) = applied.before.take()
        {
            *applied = *before;
        }
    }

    /// Writes the files that have changed, each atomically.
    pub(super) fn write(&mut self) {
        if self.written.0 != self.applied && state_file::write(&self.state, APPLIED, &self.applied) {
            self.written.0.clone_from(&self.applied);
        }
        if self.written.1 != self.verified && state_file::write(&self.state, VERIFIED, &self.verified) {
            self.written.1.clone_from(&self.verified);
        }
    }
}

/// Whether an entry is made of this specification.
fn is_of(applied: &AppliedSpec, config: &PolicyConfig) -> bool {
    entry(&config.name, &applied.spec) == *config
}

/// Reads a file. Entries that cannot be read, such as those of another version of the agent, are skipped.
fn read<T: DeserializeOwned>(state: &Dir, file: &str) -> BTreeMap<String, T> {
    let Some(text) = state_file::read(state, file) else { return BTreeMap::new() };
    match serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(&text) {
        Ok(entries) => {
            let entries = entries.into_iter().map(|(name, mut value)| {
                value.get_mut("spec").map(old_names::update_policy_module);
                (name, value)
            });
            entries.filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?))).collect()
        }
        Err(error) => {
            tracing::warn!(file, %error, "file cannot be read; it counts as empty");
            BTreeMap::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_earlier_build_wrote_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).unwrap();
        let taken = |policy: &str| json!({"uid": "1", "generation": 1, "spec": {"module": "builtin:x", "failurePolicy": policy}});
        let content = json!({"old": taken("hold"), "new": taken("keep"), "odd": taken("explode")});
        std::fs::write(folder.path().join(APPLIED), content.to_string()).unwrap();
        let read: BTreeMap<String, AppliedSpec> = read(&state, APPLIED);
        assert_eq!(read.keys().collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!(read["old"], read["new"]);
    }
}
