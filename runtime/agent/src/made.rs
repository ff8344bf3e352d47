//! Cgroups that qosm makes where there is no kubelet. Each is written down before it is made, so that none is left behind, whoever
//! ends the agent.

use qosm_model::pod::PodId;
use qosm_model::problem::chain;

use crate::agent::Agent;
use crate::journal::Entries;
use crate::table::PodEntry;

/// Whether one cgroup is another, or below it.
pub(crate) fn is_within(cgroup: &str, above: &str) -> bool {
    cgroup.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Agent {
    /// Makes the cgroups that a kubelet would have made, with the bounds that it would have set.
    pub(crate) fn make_pod(&mut self, id: PodId) {
        let Some(entry) = self.pods.get(id) else { return };
        let given = entry.given.clone();
        let missing = match self.host.unprovisioned(&given) {
            Ok(missing) => missing,
            Err(error) => {
                tracing::warn!(pod = given.key(), error = chain(&error), "cgroups cannot be made");
                return;
            }
        };
        if !missing.is_empty() {
            if let Some(journal) = &self.journal
                && let Err(error) = journal.commit(&Entries { made: missing.clone(), ..Entries::default() })
            {
                tracing::error!(
                    pod = given.key(),
                    error = chain(&error),
                    "no cgroup is made that cannot be written down"
                );
                return;
            }
            self.made.extend(missing);
            if let Err(error) = self.host.provision(&given) {
                tracing::warn!(pod = given.key(), error = chain(&error), "cgroups cannot be made");
            }
        }
        let is_made = self.made.contains(&self.host.pod_path(&given));
        if let Some(entry) = self.pods.get_mut(id) {
            entry.made = is_made;
        }
    }

    /// Removes the cgroups that were made for a pod.
    pub(crate) fn remove_pod(&mut self, entry: &PodEntry) {
        let pod = self.host.pod_path(&entry.given);
        self.remove_made(|cgroup| is_within(cgroup, &pod));
    }

    /// Removes cgroups that were made for pods which are no longer known: an earlier agent's.
    pub(crate) fn remove_unclaimed(&mut self) {
        let pods: Vec<String> = self.pods.iter().map(|entry| self.host.pod_path(&entry.given)).collect();
        self.remove_made(|cgroup| !pods.iter().any(|pod| is_within(cgroup, pod) || is_within(pod, cgroup)));
    }

    /// Removes some of the cgroups that were made, the innermost first. What is in use stays, and stays written down.
    pub(crate) fn remove_made(&mut self, which: impl Fn(&str) -> bool) {
        let mut removed = Vec::new();
        for cgroup in self.made.iter().rev().filter(|cgroup| which(cgroup)) {
            match self.host.remove(cgroup) {
                Ok(()) => removed.push(cgroup.clone()),
                Err(error) => {
                    tracing::warn!(cgroup, error = chain(&error), "a cgroup that qosm made stays: it is in use")
                }
            }
        }
        if removed.is_empty() {
            return;
        }
        for cgroup in &removed {
            self.made.remove(cgroup);
        }
        if let Some(journal) = &self.journal
            && let Err(error) = journal.commit(&Entries { removed, ..Entries::default() })
        {
            tracing::error!(error = chain(&error), "removed cgroups could not be struck out of the journal");
        }
    }
}
