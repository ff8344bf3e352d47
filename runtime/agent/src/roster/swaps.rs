//! Swaps: modules that an operator put in another's place on this node, and versions that failed and were taken back.

use std::collections::BTreeMap;
use std::io::Write as _;

use cap_std::fs::Dir;
use qosm_model::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::config::PolicyConfig;

/// The file of what was swapped and what was taken back.
pub(super) const FILE: &str = "swaps.json";

/// A version that failed its trial or its probation.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenBack {
    /// What asked for it.
    pub entry: PolicyConfig,
    /// The module.
    pub digest: Digest,
    /// What went wrong.
    pub why: String,
}

/// What a swap came to, before anything was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Swapped {
    /// The policy.
    pub policy: String,
    /// The module that it is to run.
    pub module: Option<String>,
    /// What it was to run before.
    pub before: Option<String>,
    /// The roster from which on this counts: reports of earlier ones say nothing about it.
    pub roster: u64,
}

/// Versions of one policy that are remembered as failed.
const MOST_FAILED: usize = 16;

/// What was swapped, and what was taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Swaps {
    over: BTreeMap<String, Swap>,
    taken_back: BTreeMap<String, Vec<Failed>>,
}

/// A version that an entry does not get any more. It outlives the agent: at a start nothing runs that could be come back to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Failed {
    entry: PolicyConfig,
    digest: String,
    why: String,
}

/// One policy's other module. It counts as long as the entry names the one that it stands in for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Swap {
    /// What the entry names.
    instead_of: Option<String>,
    /// What runs.
    module: Option<String>,
    /// What ran before this one.
    before: Option<String>,
}

impl Swaps {
    /// What an earlier agent kept; a file that cannot be read is told and counts as none.
    pub(super) fn read(state: &Dir) -> Self {
        match state.read(FILE).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(swaps)) => swaps,
            Ok(Err(error)) => {
                tracing::warn!(file = FILE, %error, "it cannot be read; policies run what their entries name");
                Self::default()
            }
            Err(_) => Self::default(),
        }
    }

    /// The entry with what was swapped.
    pub(super) fn over(&self, entry: PolicyConfig) -> PolicyConfig {
        match self.over.get(&entry.name).filter(|swap| swap.instead_of == entry.module) {
            Some(swap) => PolicyConfig { module: swap.module.clone(), ..entry },
            None => entry,
        }
    }

    /// Puts another module in an entry's place; `None` = the one before comes back. `running` is what runs now.
    pub(super) fn swap(
        &mut self,
        entry: &PolicyConfig,
        module: Option<String>,
        running: Option<String>,
    ) -> Result<Swapped, String> {
        let known = self.over.get(&entry.name).filter(|swap| swap.instead_of == entry.module).cloned();
        let now = running;
        let wanted = match (module, &known) {
            (Some(module), _) => Some(module),
            // One that never came to run is given up; what runs stays.
            (None, Some(swap)) if swap.module != now => now.clone(),
            (None, Some(swap)) => swap.before.clone(),
            (None, None) => {
                return Err(format!("policy `{}` was not swapped; there is nothing to go back to", entry.name));
            }
        };
        // Whoever asks again wants it to be tried again.
        self.taken_back.remove(&entry.name);
        // Back to what the entry names is a swap as well: there may be a way forward again.
        let before = known.filter(|_| wanted == now).map_or_else(|| now.clone(), |swap| swap.before);
        let swap = Swap { instead_of: entry.module.clone(), module: wanted.clone(), before };
        self.over.insert(entry.name.clone(), swap);
        Ok(Swapped { policy: entry.name.clone(), module: wanted, before: now, roster: 0 })
    }

    /// Forgets swaps whose entries are gone or name something else by now; says whether there were any.
    pub(super) fn tidy(&mut self, entries: &[PolicyConfig]) -> bool {
        let before = self.over.len();
        self.over
            .retain(|name, swap| entries.iter().any(|entry| entry.name == *name && entry.module == swap.instead_of));
        self.over.len() != before
    }

    /// Writes down what was swapped, in one piece.
    pub(super) fn keep(&self, state: &Dir) -> std::io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let temporary = format!("{FILE}.new");
        let mut file = state.create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        drop(file);
        state.rename(&temporary, state, FILE)
    }

    /// Notes a version that failed: this entry does not get this module any more.
    pub(super) fn note(&mut self, taken_back: TakenBack) {
        let TakenBack { entry, digest, why } = taken_back;
        let all = self.taken_back.entry(entry.name.clone()).or_default();
        let failed = Failed { entry, digest: digest.to_string(), why };
        all.retain(|other| (&other.entry, &other.digest) != (&failed.entry, &failed.digest));
        all.push(failed);
        if all.len() > MOST_FAILED {
            all.remove(0);
        }
    }

    /// Forgets what failed of a policy: somebody wants it to be tried again. Says whether there was anything.
    pub(super) fn forgive(&mut self, policy: &str) -> bool {
        self.taken_back.remove(policy).is_some()
    }

    /// Why an entry does not get this module.
    pub(super) fn taken_back(&self, entry: &PolicyConfig, digest: &Digest) -> Option<String> {
        let digest = digest.to_string();
        let mut all = self.taken_back.get(&entry.name)?.iter();
        all.find(|failed| failed.entry == *entry && failed.digest == digest).map(|failed| failed.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(module: &str) -> PolicyConfig {
        PolicyConfig { module: Some(module.to_owned()), ..PolicyConfig::builtin("burst") }
    }

    fn failed(entry: &PolicyConfig, module: &[u8]) -> TakenBack {
        TakenBack { entry: entry.clone(), digest: Digest::of(module), why: "it trapped".into() }
    }

    #[test]
    fn several_that_failed_are_remembered_and_forgiven_together() {
        let mut swaps = Swaps::default();
        let (one, other) = (entry("file:///one"), entry("file:///other"));
        for version in [&one, &other] {
            swaps.note(failed(version, b"x"));
            swaps.note(failed(version, b"x"));
        }
        let is_known = |swaps: &Swaps, entry: &PolicyConfig| swaps.taken_back(entry, &Digest::of(b"x")).is_some();
        assert!(is_known(&swaps, &one) && is_known(&swaps, &other));
        assert!(swaps.forgive("burst") && !swaps.forgive("burst") && !is_known(&swaps, &one));
    }

    #[test]
    fn a_swap_counts_as_long_as_the_entry_names_what_it_stands_in_for() {
        let mut swaps = Swaps::default();
        let old = entry("file:///old");
        let swapped = swaps.swap(&old, Some("file:///new".into()), old.module.clone()).unwrap();
        assert_eq!(swapped.before.as_deref(), Some("file:///old"));
        assert_eq!(swaps.over(old.clone()).module.as_deref(), Some("file:///new"));
        assert_eq!(swaps.over(entry("file:///other")).module.as_deref(), Some("file:///other"));
        swaps.tidy(&[entry("file:///other")]);
        assert_eq!(swaps.over(old.clone()), old);
    }

    #[test]
    fn going_back_leads_to_what_ran_before_and_again_to_what_ran_after() {
        let mut swaps = Swaps::default();
        let old = entry("file:///old");
        let running = |swaps: &Swaps| swaps.over(old.clone()).module;
        let mut swap = |to: Option<&str>| {
            let runs = running(&swaps);
            swaps.swap(&old, to.map(str::to_owned), runs).map(|_| running(&swaps).unwrap_or_default())
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
        let mut swaps = Swaps::default();
        let old = entry("file:///old");
        let runs = || old.module.clone();
        swaps.swap(&old, Some("file:///broken".into()), runs()).unwrap();
        assert_eq!(swaps.swap(&old, Some("file:///good".into()), runs()).unwrap().before, runs());
        assert_eq!(swaps.swap(&old, None, Some("file:///good".into())).unwrap().module, runs());
        swaps.swap(&old, Some("file:///broken".into()), runs()).unwrap();
        assert_eq!(swaps.swap(&old, None, runs()).unwrap().module, runs(), "it is given up");
    }

    #[test]
    fn what_was_swapped_outlives_the_agent_and_what_cannot_be_read_counts_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).unwrap();
        let mut swaps = Swaps::default();
        swaps.swap(&entry("file:///old"), Some("file:///new".into()), None).unwrap();
        swaps.keep(&state).unwrap();
        swaps.note(failed(&entry("file:///new"), b"new"));
        swaps.keep(&state).unwrap();
        assert_eq!(Swaps::read(&state), swaps);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Swaps::read(&state), Swaps::default());
    }

    #[test]
    fn a_version_that_failed_is_not_taken_again_until_somebody_asks_for_it() {
        let mut swaps = Swaps::default();
        let (failed, digest) = (entry("file:///new"), Digest::of(b"new"));
        swaps.note(super::TakenBack { entry: failed.clone(), digest, why: "it trapped".into() });
        assert_eq!(swaps.taken_back(&failed, &digest).as_deref(), Some("it trapped"));
        assert_eq!(swaps.taken_back(&failed, &Digest::of(b"mended")), None);
        assert_eq!(swaps.taken_back(&PolicyConfig { priority: 7, ..failed.clone() }, &digest), None);
        swaps.swap(&entry("file:///old"), Some("file:///new".into()), None).unwrap();
        assert_eq!(swaps.taken_back(&failed, &digest), None);
    }
}
