//! Memory locality as a qosm policy: pages of a CPU-pinned container on remote NUMA nodes are moved to the nodes of its CPUs.
//!
//! A pod with `bestEffort` gets a round: the policy decides for each of its containers which nodes are local, the host moves the pages that
//! are elsewhere, and when all are done an event informs the pod's owner. With `migrateIntervalMinutes` rounds repeat. The host and the
//! operator decide how fast pages move and when they must not.
//!
//! Reading order: `protocol` (configuration), `nodes` (choice of nodes), `round` (the containers of one pod in progress), `pods`
//! (scheduling of rounds), `report` (events), `keep` (new pages), `saved_state` (what survives a restart).
//!
//! ```
//! use memory_locality::MemoryLocality;
//! use qosm_sdk::{NumaNode, NumaSample, NumaShare, PodFacts, Session, mock};
//!
//! let mut host = mock::MockHost::default();
//! let mut policy = Session::<MemoryLocality>::default();
//! policy.configure(&mut host, "{}")?;
//! let web = PodFacts {
//!     config: r#"{"policy": "bestEffort"}"#.into(),
//!     containers: vec![mock::container(7, "app")],
//!     ..mock::pod(1, "default", "web")
//! };
//! policy.pods(&mut host, vec![web], &[])?;
//!
//! let node = |id, distances| NumaNode {
//!     id, cpus: 2, memory_bytes: 1 << 34, free_bytes: 1 << 33, available_bytes: 1 << 33, distances,
//! };
//! host.columns.numa_nodes = vec![node(0, vec![10, 20]), node(1, vec![20, 10])];
//! host.columns.numa = vec![NumaSample {
//!     container: 7,
//!     identity: 1,
//!     cpu_nodes: vec![1],
//!     memory_nodes: vec![0, 1],
//!     pages: vec![NumaShare { node: 0, pages: 57_000 }, NumaShare { node: 1, pages: 43_000 }],
//! }];
//! policy.evaluate(&mut host, mock::tick(1_000))?;
//! assert_eq!(host.take_migrations()[0].way, Some((vec![0], vec![1])));
//! # Ok::<(), String>(())
//! ```

mod keep;
mod nodes;
mod pods;
mod protocol;
mod report;
mod round;
mod saved_state;

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{Description, Host, Level, Pod, PodId, Policy, Rejection, Tick};

use crate::pods::{Done, Tracked};
pub use crate::protocol::{Config, PodConfig, Settings};
use crate::round::{Tokens, View};

qosm_sdk::export!(MemoryLocality);

/// Time for which digests from before the start wait for their containers to appear.
const RESTORED_KEPT_USEC: u64 = 600_000_000;

/// Maximum number of events per evaluation that the host accepts.
const EVENTS: usize = 256;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct MemoryLocality {
    settings: Settings,
    pods: BTreeMap<PodId, Tracked>,
    tokens: Tokens,
    /// Time since the start: the sum of the ticks' windows.
    now_usec: u64,
    done: Done,
    is_restored: bool,
    /// Whether stale digests from before the start have been dropped.
    has_dropped_stale: bool,
    saved: Vec<u8>,
}

impl Policy for MemoryLocality {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
        self.settings = config.policy;
        if !std::mem::replace(&mut self.is_restored, true) {
            let bytes = host.load_state();
            match saved_state::decode(&bytes) {
                Some(digests) => {
                    self.done.extend(digests);
                    self.saved = bytes;
                }
                None => host.log(Level::Warn, "what was moved before cannot be read: single migrations are repeated"),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        for id in removed {
            self.pods.remove(id);
        }
        for pod in upserted {
            match self.pods.get_mut(&pod.id) {
                Some(tracked) => tracked.update(pod),
                None => drop(self.pods.insert(pod.id, Tracked::new(pod))),
            }
        }
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.now_usec = self.now_usec.saturating_add(tick.window_usec);
        let keeps = self.settings.keep_local;
        if !self.pods.values().any(|tracked| tracked.has_work(self.now_usec, keeps)) {
            // No column is read, and no container is bound.
            return Ok(());
        }
        self.pods.values_mut().for_each(|tracked| tracked.drop_unwanted(keeps, host));
        let (nodes, samples, migrations) = (host.numa_nodes(), host.numa(), host.migrations());
        self.tokens.skip(migrations.iter().map(|progress| progress.token));
        let settings = self.settings.clone();
        let view = View { settings: &settings, nodes: &nodes, samples: &samples, migrations: &migrations };
        let (count, mut events_left) = (self.done.len(), EVENTS);
        for tracked in self.pods.values_mut().filter(|tracked| tracked.has_work(self.now_usec, keeps)) {
            tracked.step(&view, &mut self.tokens, &mut self.done, self.now_usec, &mut events_left, host);
        }
        self.pods.values().for_each(|tracked| tracked.declare(host));
        if self.done.len() != count {
            self.drop_stale(&view);
            self.save(host);
        }
        Ok(())
    }
}

impl MemoryLocality {
    /// Drops digests of containers that do not exist, once all containers from before the start should have appeared.
    fn drop_stale(&mut self, view: &View<'_>) {
        if self.now_usec < RESTORED_KEPT_USEC && !self.has_dropped_stale {
            return;
        }
        self.has_dropped_stale = true;
        let mut alive = BTreeSet::new();
        for tracked in self.pods.values() {
            let Some(config) = tracked.effective_config() else { continue };
            for container in &tracked.pod.containers {
                let identity = view.sample(container.id).map_or(0, |sample| sample.identity);
                for identity in [identity, 0] {
                    let digest = saved_state::digest(&tracked.pod.uid, &container.name, identity, config);
                    alive.extend([digest, saved_state::without_target(digest)]);
                }
            }
        }
        self.done.retain(|digest| alive.contains(digest));
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        let digests: Vec<u64> = self.done.iter().copied().collect();
        let bytes = saved_state::encode(&digests);
        if bytes != self.saved {
            match host.save_state(&bytes) {
                Ok(()) => self.saved = bytes,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{NumaNode, PodFacts, Session, mock};

    use super::*;

    #[test]
    fn more_pods_than_events_are_told_one_evaluation_after_the_other() {
        let mut host = mock::MockHost::default();
        let mut policy = Session::<MemoryLocality>::default();
        policy.configure(&mut host, "{}").unwrap();
        let pod = |id| PodFacts {
            config: r#"{"policy": "bestEffort"}"#.into(),
            containers: vec![mock::container(id, "app")],
            ..mock::pod(id, "default", &format!("web-{id}"))
        };
        policy.pods(&mut host, (1..=600).map(pod).collect(), &[]).unwrap();
        let node = NumaNode {
            id: 0,
            cpus: 2,
            memory_bytes: 1 << 34,
            free_bytes: 1 << 33,
            available_bytes: 1 << 33,
            distances: vec![10],
        };
        host.columns.numa_nodes = vec![node];
        let mut reported = BTreeSet::new();
        for expected in [256, 256, 88, 0] {
            policy.evaluate(&mut host, mock::tick(1_000)).unwrap();
            let events = std::mem::take(&mut host.events);
            assert_eq!(events.len(), expected);
            reported.extend(events.iter().map(|event| event.pod));
        }
        assert_eq!(reported.len(), 600, "each once");
    }
}
