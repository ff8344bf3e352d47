//! Alarms as the lines of a recording have them.

use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::Pod;
use qosm_model::unit::Micros;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::policy::Now;
use crate::stage::StageError;

/// A trigger that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AlarmLine {
    /// Which.
    pub trigger: TriggerLine,
    /// `namespace/name` of the pod that it is about; none = the node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<String>,
    /// The container of that pod; none = the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
}

/// What was watched: `throttling`, `memoryEvents`, or a `pressure`.
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
    /// Time lost.
    pub stall_usec: u64,
    /// Within so much time.
    pub window_usec: u64,
}

/// What there was too little of.
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
    /// [`StageError`] names the pod or container that is none of these.
    pub(crate) fn check(&self, pods: &[Pod]) -> Result<(), StageError> {
        let Some(key) = &self.pod else { return Ok(()) };
        let pod = pods.iter().find(|pod| pod.key() == *key);
        let pod = pod.ok_or_else(|| StageError::unknown_pod("alarms.pod", key, pods))?;
        match &self.container {
            Some(name) if pod.containers.iter().all(|container| container.name != *name) => {
                Err(StageError::unknown_container("alarms.container", name, pod))
            }
            _ => Ok(()),
        }
    }
}

impl Agent {
    /// An alarm as a line; `None` for what a replay finds out by itself, or is about nobody that is still there.
    pub(crate) fn alarm_line(&self, alarm: &Alarm) -> Option<AlarmLine> {
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
                let (entry, place) = self.pods.owner(id)?;
                (Some(entry.given.key()), Some(entry.given.containers.get(place)?.name.clone()))
            }
            Some(target) => (Some(self.pods.of(target)?.given.key()), None),
        };
        Some(AlarmLine { trigger, pod, container })
    }

    /// Takes an alarm of a recording.
    ///
    /// # Errors
    ///
    /// [`StageError`] names the pod or container that is not there.
    pub(crate) fn hear_line(&mut self, line: &AlarmLine, now: Now) -> Result<(), StageError> {
        let target = match &line.pod {
            None => None,
            Some(key) => Some(self.alarmed(key, line.container.as_deref())?),
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
        self.hear(Alarm { trigger, target }, now);
        Ok(())
    }

    fn alarmed(&self, key: &str, container: Option<&str>) -> Result<Target, StageError> {
        let entry = self.pods.iter().find(|entry| entry.given.key() == key);
        let entry = entry.ok_or_else(|| StageError::unknown_pod("alarms.pod", key, &self.sources.pods))?;
        let Some(name) = container else { return Ok(Target::Pod(entry.id)) };
        let place = entry.given.containers.iter().position(|given| given.name == name);
        let known = place.and_then(|place| entry.containers.get(place));
        known
            .map(|known| Target::Container(known.id))
            .ok_or_else(|| StageError::unknown_container("alarms.container", name, &entry.given))
    }
}
