//! Cgroups that qosm creates where there is no kubelet. The journal records each before it is created, so that none is left behind,
//! however the agent ends.

use qosm_host::Host;
use qosm_model::pod::PodId;
use qosm_model::problem::chain;

use crate::journal::Entries;
use crate::ledger::Ledger;
use crate::path::is_within;
use crate::refused_limit;
use crate::table::{PodEntry, PodTable};

impl Ledger {
    /// Creates the cgroups that a kubelet would create, with the limits that it would set. Returns `true` if the kernel refuses a limit,
    /// which is a new problem of the pod.
    pub(crate) fn create_pod(&mut self, host: &mut Host, pods: &mut PodTable, id: PodId) -> bool {
        if !self.created.is_enabled {
            return false;
        }
        let Some(entry) = pods.get(id) else { return false };
        let given = entry.pod.clone();
        let missing = match host.unprovisioned(&given) {
            Ok(missing) => missing,
            Err(error) => {
                tracing::warn!(pod = given.key(), error = chain(&error), "cgroups cannot be made");
                return false;
            }
        };
        let mut refused = None;
        if !missing.is_empty() {
            if let Some(journal) = &self.journal
                && let Err(error) = journal.commit(&Entries { created: missing.clone(), ..Entries::default() })
            {
                tracing::error!(pod = given.key(), error = chain(&error), "cgroup not made: the journal does not work");
                return false;
            }
            self.created.all.extend(missing);
            if let Err(error) = host.provision(&given) {
                refused = refused_limit::problem(&given, &error);
                if refused.is_none() {
                    tracing::warn!(pod = given.key(), error = chain(&error), "cgroups cannot be made");
                }
            }
        }
        let is_created = self.created.all.contains(&host.pod_path(&given));
        let Some(entry) = pods.get_mut(id) else { return false };
        entry.is_created = is_created;
        // Further limits that the kernel refuses have the same cause; the first stands until the specification changes.
        let is_news = refused.is_some() && entry.refused_limit.is_none();
        if is_news {
            entry.refused_limit = refused;
        }
        is_news
    }

    /// Removes the cgroups that were created for a pod.
    pub(crate) fn remove_pod(&mut self, host: &mut Host, entry: &PodEntry) {
        let pod = host.pod_path(&entry.pod);
        self.remove_created(host, |cgroup| is_within(cgroup, &pod));
    }

    /// Removes cgroups that an earlier agent created for pods that are no longer known.
    pub(crate) fn remove_unclaimed(&mut self, host: &mut Host, pods: &PodTable) {
        let pods: Vec<String> = pods.iter().map(|entry| host.pod_path(&entry.pod)).collect();
        self.remove_created(host, |cgroup| !pods.iter().any(|pod| is_within(cgroup, pod) || is_within(pod, cgroup)));
    }

    /// Removes the created cgroups that `which` selects, innermost first. A cgroup in use stays, and stays in the journal.
    pub(crate) fn remove_created(&mut self, host: &mut Host, which: impl Fn(&str) -> bool) {
        let mut removed = Vec::new();
        for cgroup in self.created.all.iter().rev().filter(|cgroup| which(cgroup)) {
            match host.remove(cgroup) {
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
            self.created.all.remove(cgroup);
        }
        if let Some(journal) = &self.journal
            && let Err(error) = journal.commit(&Entries { removed, ..Entries::default() })
        {
            tracing::error!(error = chain(&error), "removed cgroups could not be deleted from the journal");
        }
    }
}
