//! Alarms in the format of a recording.

use qosm_host::Fired;
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::{Pod, Tier};
use qosm_model::unit::Micros;
use serde::{Deserialize, Serialize};

use crate::replay_fixture_error::ReplayFixtureError;
use crate::table::PodTable;

/// A trigger that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AlarmLine {
    /// The trigger.
    pub trigger: TriggerLine,
    /// `namespace/name` of the pod; `None` for the node, or for all pods.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<String>,
    /// Whether the alarm is about all pods of the node as a whole.
    #[serde(skip_serializing_if = "is_false", default)]
    pub all_pods: bool,
    /// Name of the container; `None` for the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// Whether the container was throttled for the first time since it was idle. Such an alarm makes an evaluation due sooner.
    #[serde(skip_serializing_if = "is_false", default)]
    pub after_rest: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What the trigger watches: `throttling`, `memoryEvents`, or a `pressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum TriggerLine {
    /// A container used up its quota.
    Throttling,
    /// Pressure above a threshold.
    Pressure(PressureTriggerLine),
    /// `memory.high`, the limit, or the OOM killer.
    MemoryEvents,
}

/// A threshold of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PressureTriggerLine {
    /// `cpu`, `memory` or `io`.
    pub resource: ResourceWord,
    /// Whether all tasks had to wait at once.
    pub full: bool,
    /// Stall time within the window, in microseconds.
    pub stall_usec: u64,
    /// Length of the window, in microseconds.
    pub window_usec: u64,
}

/// The resource that tasks waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceWord {
    /// A CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Input or output.
    Io,
}

impl AlarmLine {
    /// # Errors
    ///
    /// [`ReplayFixtureError`] names the pod or container that is not in `pods`.
    pub(crate) fn check(&self, pods: &[Pod]) -> Result<(), ReplayFixtureError> {
        let Some(key) = &self.pod else { return Ok(()) };
        let pod = pods.iter().find(|pod| pod.key() == *key);
        let pod = pod.ok_or_else(|| ReplayFixtureError::unknown_pod("alarms.pod", key, pods))?;
        match &self.container {
            Some(name) if pod.containers.iter().all(|container| container.name != *name) => {
                Err(ReplayFixtureError::unknown_container("alarms.container", name, pod))
            }
            _ => Ok(()),
        }
    }
}

/// Converts an alarm to a line. Returns `None` if a replay derives the alarm by itself, or if the target is gone.
pub(crate) fn alarm_line(pods: &PodTable, fired: &Fired) -> Option<AlarmLine> {
    let Fired { alarm, after_rest } = *fired;
    let trigger = match alarm.trigger {
        Trigger::Throttling => TriggerLine::Throttling,
        Trigger::MemoryEvents => TriggerLine::MemoryEvents,
        Trigger::Pressure(Pressure { scope: _, resource, full, stall, window }) => {
            let resource = match resource {
                Resource::Cpu => ResourceWord::Cpu,
                Resource::Memory => ResourceWord::Memory,
                Resource::Io => ResourceWord::Io,
            };
            let (stall_usec, window_usec) = (stall.0, window.0);
            TriggerLine::Pressure(PressureTriggerLine { resource, full, stall_usec, window_usec })
        }
        Trigger::ContainerStarted => return None,
    };
    let (pod, container) = match alarm.target {
        None => (None, None),
        Some(Target::Container(id)) => {
            let (entry, place) = pods.owner(id)?;
            (Some(entry.pod.key()), Some(entry.pod.containers.get(place)?.name.clone()))
        }
        Some(Target::Node | Target::Tier(_)) => (None, None),
        Some(target) => (Some(pods.of(target)?.pod.key()), None),
    };
    let all_pods = matches!(alarm.target, Some(Target::Tier(_)));
    Some(AlarmLine { trigger, pod, all_pods, container, after_rest })
}

/// Converts a line of a recording to an alarm.
///
/// # Errors
///
/// [`ReplayFixtureError`] names the pod or container that does not exist.
pub(crate) fn fired(pods: &PodTable, line: &AlarmLine) -> Result<Fired, ReplayFixtureError> {
    let target = match &line.pod {
        None => line.all_pods.then_some(Target::Tier(Tier::Guaranteed)),
        Some(key) => Some(alarmed(pods, key, line.container.as_deref())?),
    };
    let trigger = match line.trigger {
        TriggerLine::Throttling => Trigger::Throttling,
        TriggerLine::MemoryEvents => Trigger::MemoryEvents,
        TriggerLine::Pressure(PressureTriggerLine { resource, full, stall_usec, window_usec }) => {
            Trigger::Pressure(Pressure {
                scope: match target {
                    None => Scope::Node,
                    Some(Target::Container(_)) => Scope::Container,
                    Some(_) => Scope::Pod,
                },
                resource: match resource {
                    ResourceWord::Cpu => Resource::Cpu,
                    ResourceWord::Memory => Resource::Memory,
                    ResourceWord::Io => Resource::Io,
                },
                full,
                stall: Micros(stall_usec),
                window: Micros(window_usec),
            })
        }
    };
    Ok(Fired { alarm: Alarm { trigger, target }, after_rest: line.after_rest })
}

fn alarmed(pods: &PodTable, key: &str, container: Option<&str>) -> Result<Target, ReplayFixtureError> {
    let entry = pods.iter().find(|entry| entry.pod.key() == key);
    let entry = entry.ok_or_else(|| {
        ReplayFixtureError::unknown_pod(
            "alarms.pod",
            key,
            &pods.iter().map(|entry| entry.pod.clone()).collect::<Vec<_>>(),
        )
    })?;
    let Some(name) = container else { return Ok(Target::Pod(entry.id)) };
    let place = entry.pod.containers.iter().position(|given| given.name == name);
    let known = place.and_then(|place| entry.containers.get(place));
    known
        .map(|known| Target::Container(known.id))
        .ok_or_else(|| ReplayFixtureError::unknown_container("alarms.container", name, &entry.pod))
}
