//! What a roster remembers across restarts: which specification of a PolicyModule was taken, and which module was shown to work.

use std::collections::BTreeMap;
use std::io::Write as _;

use cap_std::fs::Dir;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::choice::Taken;

/// The file of what PolicyModules were taken.
const TAKEN: &str = "policy-modules.json";
/// The file of what works.
const PROVEN: &str = "proven.json";

/// Two files, and what stands in them.
pub(super) struct Kept {
    state: Dir,
    pub(super) taken: BTreeMap<String, Taken>,
    /// Modules, as an entry would name them.
    proven: BTreeMap<String, String>,
    written: (BTreeMap<String, Taken>, BTreeMap<String, String>),
}

impl Kept {
    /// What an earlier agent kept; what cannot be read is told and counts as nothing.
    pub(super) fn read(state: Dir) -> Self {
        let (taken, proven) = (read(&state, TAKEN), read(&state, PROVEN));
        Self { state, written: (taken.clone(), proven.clone()), taken, proven }
    }

    /// The folder of both.
    pub(super) fn state(&self) -> &Dir {
        &self.state
    }

    /// The module that worked last.
    pub(super) fn proven(&self, policy: &str) -> Option<String> {
        self.proven.get(policy).cloned()
    }

    /// Notes that a module works.
    pub(super) fn prove(&mut self, policy: &str, module: Option<String>) {
        match module {
            Some(module) => drop(self.proven.insert(policy.to_owned(), module)),
            None => drop(self.proven.insert(policy.to_owned(), format!("builtin:{policy}"))),
        }
    }

    /// Writes down what has changed, each file in one piece.
    pub(super) fn write(&mut self) {
        if self.written.0 != self.taken && write(&self.state, TAKEN, &self.taken) {
            self.written.0.clone_from(&self.taken);
        }
        if self.written.1 != self.proven && write(&self.state, PROVEN, &self.proven) {
            self.written.1.clone_from(&self.proven);
        }
    }
}

/// One entry that cannot be read, of an agent of another version, does not cost the others.
fn read<T: DeserializeOwned>(state: &Dir, file: &str) -> BTreeMap<String, T> {
    let Ok(text) = state.read(file) else { return BTreeMap::new() };
    match serde_json::from_slice::<BTreeMap<String, serde_json::Value>>(&text) {
        Ok(entries) => {
            let entries = entries.into_iter();
            entries.filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?))).collect()
        }
        Err(error) => {
            tracing::warn!(file, %error, "it cannot be read; what it held counts as never known");
            BTreeMap::new()
        }
    }
}

fn write<T: Serialize>(state: &Dir, file: &str, content: &BTreeMap<String, T>) -> bool {
    let written = || -> std::io::Result<()> {
        let text = serde_json::to_vec(content)?;
        let temporary = format!("{file}.new");
        let mut fresh = state.create(&temporary)?;
        fresh.write_all(&text)?;
        fresh.sync_all()?;
        drop(fresh);
        state.rename(&temporary, state, file)
    };
    let written = written();
    if let Err(error) = &written {
        tracing::warn!(file, %error, "not written; after a restart it is as it was written last");
    }
    written.is_ok()
}
