//! Observe: the optional parts of the node's signals, which are memory, pressure, and the usage of tiers, pods and all else.

use std::sync::Arc;

use qosm_engine::Part;
use qosm_host::{Host, HostError};
use qosm_model::application::{Application, ApplicationSample};
use qosm_model::column::PressureCounters;
use qosm_model::knob::Target;
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, NodeMemory};
use qosm_model::pod::Tier;
use qosm_model::unit::Micros;

use crate::applications::ApplicationReading;

/// The readings of one tick; a field is `None` if no due policy reads it, or if it cannot be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReadings {
    pub(crate) memory: Option<NodeMemory>,
    /// Running totals.
    pub(crate) pressure: Option<PressureCounters>,
    /// Running totals of tiers and pods, sorted by group.
    groups: Option<Arc<Vec<(Group, GroupCounters)>>>,
    /// Running totals of applications beside Kubernetes.
    pub(crate) applications: Option<ApplicationReading>,
    /// Memory of all processes of the node.
    root_memory: Option<GroupMemory>,
}

impl NodeReadings {
    /// Reads these parts. Usage is read for all tiers, and for the pods in `groups`.
    pub(super) fn read(host: &mut Host, parts: &[Part], groups: &[Target]) -> Self {
        let mut readings = Self::default();
        for part in parts {
            match part {
                Part::NodeMemory => match host.node_memory_in_full() {
                    Ok(memory) => readings.memory = Some(memory),
                    Err(error) => tracing::debug!(%error, "the node's memory cannot be read"),
                },
                Part::NodePressure => readings.pressure = host.node_pressure(),
                // `Applications` reads the former; the latter is part of another signal.
                Part::NodeApplications | Part::CpuSets => {}
                Part::NodeUse => {
                    readings.groups = Some(Arc::new(read_groups(host, groups)));
                    readings.root_memory = host.root_memory();
                }
            }
        }
        readings
    }

    /// The readings from which the next differences are taken: these, or `earlier` for parts that were not read.
    pub(super) fn carrying(&self, earlier: &Self) -> Self {
        Self {
            memory: None,
            pressure: self.pressure.or(earlier.pressure),
            groups: self.groups.clone().or_else(|| earlier.groups.clone()),
            applications: self.applications.clone().or_else(|| earlier.applications.clone()),
            root_memory: None,
        }
    }

    /// What each group, and all else, used since `earlier`. `busy` is the node's CPU time meanwhile. `None` if groups were not read.
    pub(super) fn groups_since(&self, earlier: &Self, busy: Option<Micros>) -> Option<Arc<[GroupSample]>> {
        let groups = self.groups.as_ref()?;
        let before = earlier.groups.as_deref().map(Vec::as_slice).unwrap_or_default();
        let sample = |&(group, now): &(Group, GroupCounters)| {
            let place = before.binary_search_by_key(&group, |&(group, _)| group);
            let then = place.ok().and_then(|place| before.get(place));
            GroupSample { group, used: now.since(then.map_or_else(GroupCounters::default, |&(_, then)| then)) }
        };
        let mut samples: Vec<GroupSample> = groups.iter().map(sample).collect();
        let pods = samples.iter().find(|sample| sample.group == Group::ALL_PODS).map(|sample| sample.used);
        let pods = pods.unwrap_or_default();
        let used = GroupCounters {
            cpu_usage: busy.zip(pods.cpu_usage).map(|(busy, pods)| Micros(busy.0.saturating_sub(pods.0))),
            memory: self.root_memory.zip(pods.memory).map(|(root, pods)| root.without(pods)),
            ..GroupCounters::default()
        };
        samples.push(GroupSample { group: Group::Outside, used });
        Some(samples.into())
    }

    /// What each application used since `earlier`. `None` if applications were not read.
    pub(super) fn applications_since(&self, earlier: &Self) -> Option<Arc<[ApplicationSample]>> {
        let before = earlier.applications.as_deref().map(Vec::as_slice).unwrap_or_default();
        let sample = |(application, now): &(Arc<Application>, GroupCounters)| {
            // An application of the same name with another cgroup is a different one.
            let then = before.iter().find(|(other, _)| other == application).map(|(_, then)| *then);
            ApplicationSample { application: Arc::clone(application), used: now.since(then.unwrap_or_default()) }
        };
        Some(self.applications.as_ref()?.iter().map(sample).collect())
    }
}

fn read_groups(host: &mut Host, groups: &[Target]) -> Vec<(Group, GroupCounters)> {
    let tiers = Tier::ALL.map(|tier| (Group::Tier(tier), Target::Tier(tier)));
    let pods = groups.iter().filter_map(|&target| match target {
        Target::Pod(pod) => Some((Group::Pod(pod), target)),
        Target::Node | Target::Tier(_) | Target::Container(_) => None,
    });
    let mut rows = Vec::with_capacity(tiers.len() + groups.len());
    for (group, target) in tiers.into_iter().chain(pods) {
        match host.group_counters(target) {
            Ok(counters) => rows.push((group, counters)),
            // A tier that is not there yet, or a pod that has just gone.
            Err(HostError::NotAttached { .. } | HostError::Gone { .. }) => {}
            Err(error) => tracing::debug!(?group, %error, "the group's use cannot be read"),
        }
    }
    rows.sort_unstable_by_key(|&(group, _)| group);
    rows
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::PodId;
    use qosm_model::unit::Bytes;

    use super::*;

    fn readings(rows: &[(Group, u64)], root: u64) -> NodeReadings {
        let memory = |usage| GroupMemory { usage: Bytes(usage), ..GroupMemory::default() };
        let row = |&(group, number): &(Group, u64)| {
            let counters = GroupCounters {
                cpu_usage: Some(Micros(number)),
                memory: Some(memory(number)),
                ..GroupCounters::default()
            };
            (group, counters)
        };
        NodeReadings {
            groups: Some(Arc::new(rows.iter().map(row).collect())),
            root_memory: Some(memory(root)),
            ..NodeReadings::default()
        }
    }

    fn shown(samples: Option<Arc<[GroupSample]>>) -> Vec<(Group, Option<u64>, Option<u64>)> {
        let samples = samples.unwrap_or_default();
        let row = |sample: &GroupSample| {
            let used = sample.used;
            (sample.group, used.cpu_usage.map(|micros| micros.0), used.memory.map(|memory| memory.usage.0))
        };
        samples.iter().map(row).collect()
    }

    const PODS: Group = Group::ALL_PODS;

    #[test]
    fn what_is_outside_is_what_is_left_of_the_nodes_time_and_the_roots_memory() {
        let (one, two) = (Group::Pod(PodId(1)), Group::Pod(PodId(2)));
        let then = readings(&[(PODS, 100), (one, 60)], 500);
        let now = readings(&[(PODS, 180), (one, 90), (two, 50)], 900);
        let rows = shown(now.groups_since(&then, Some(Micros(200))));
        // The second pod was not read before: its memory is known, its time is not.
        let expected = [
            (PODS, Some(80), Some(180)),
            (one, Some(30), Some(90)),
            (two, None, Some(50)),
            (Group::Outside, Some(120), Some(720)),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_is_not_known_is_not_invented() {
        let now = readings(&[(PODS, 180)], 900);
        for (earlier, busy, cpu) in [
            (NodeReadings::default(), Some(Micros(9)), None),
            (readings(&[(PODS, 180)], 0), None, None),
            // The clocks differ in granularity: the difference is never negative.
            (readings(&[(PODS, 100)], 0), Some(Micros(9)), Some(0)),
        ] {
            let rows = shown(now.groups_since(&earlier, busy));
            assert_eq!(rows.last(), Some(&(Group::Outside, cpu, Some(720))));
        }
        // Without a kubepods group, the usage outside of it is unknown.
        assert_eq!(
            shown(readings(&[], 9).groups_since(&readings(&[], 9), Some(Micros(9)))),
            [(Group::Outside, None, None)]
        );
        assert!(NodeReadings::default().groups_since(&now, None).is_none(), "nobody reads groups");
    }

    #[test]
    fn who_does_not_read_in_a_tick_keeps_what_differences_are_taken_from() {
        let then = readings(&[(PODS, 100)], 500);
        let carried = NodeReadings::default().carrying(&then);
        let rows = shown(readings(&[(PODS, 130)], 500).groups_since(&carried, None));
        assert_eq!(rows[0], (PODS, Some(30), Some(130)));
    }
}
