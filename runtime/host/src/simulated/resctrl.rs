//! resctrl on a simulated node: replays the content of a recording. The rules of resctrl are not simulated here; the
//! emulation (`qosm-resctrl-fuse`) is a file system like the kernel's.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassName, ClassOutcome, Domain, ResctrlReading, Usage, WantedClass, sum};

use super::Simulation;

/// resctrl in a tick of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlayedResctrl {
    /// The online domains.
    pub domains: Vec<Domain>,
    /// Outcomes and usage of the classes.
    pub classes: Vec<PlayedClass>,
    /// Usage of all threads in no class.
    pub rest: Vec<Usage>,
}

/// A class in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedClass {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// The policy's name of the class.
    pub class: ClassName,
    /// The outcome of reconciling the class.
    pub outcome: ClassOutcome,
    /// The usage of the class.
    pub usage: Vec<Usage>,
}

/// The recorded state, and usage that was not read yet.
#[derive(Debug, Default)]
pub(crate) struct Played {
    domains: Vec<Domain>,
    outcomes: BTreeMap<(Arc<str>, ClassName), ClassOutcome>,
    classes: BTreeMap<(Arc<str>, ClassName), Vec<Usage>>,
    containers: BTreeMap<String, Vec<Usage>>,
    rest: Vec<Usage>,
    wanted_classes: Vec<(Arc<str>, ClassName)>,
    /// The counted containers, each with its cgroup.
    counted: Vec<(ContainerId, String)>,
}

/// Adds a sample to the unread ones; traffic is summed.
fn count(known: &mut Vec<Usage>, now: &[Usage]) {
    *known = sum(known, now);
}

/// Takes a usage: traffic is only returned once.
fn read(known: &mut Vec<Usage>) -> Vec<Usage> {
    let counted = known.clone();
    for usage in known {
        (usage.local, usage.total) = (None, None);
    }
    counted
}

impl Simulation {
    /// Sets the domains and outcomes from now on, and adds the usage since the last call.
    pub fn play_resctrl(&mut self, now: &PlayedResctrl) {
        let played = &mut self.resctrl;
        played.domains.clone_from(&now.domains);
        for class in &now.classes {
            let place = (Arc::clone(&class.policy), class.class.clone());
            count(played.classes.entry(place.clone()).or_default(), &class.usage);
            played.outcomes.insert(place, class.outcome.clone());
        }
        count(&mut played.rest, &now.rest);
    }

    /// Adds the usage since the last call of the container in this cgroup.
    pub fn play_resctrl_of(&mut self, cgroup: &str, now: &[Usage]) {
        count(self.resctrl.containers.entry(cgroup.to_owned()).or_default(), now);
    }
}

impl Played {
    /// Returns the recorded outcomes. `counted` are containers, each with its cgroup.
    pub(crate) fn reconcile(
        &mut self,
        wanted: &[WantedClass],
        counted: Vec<(ContainerId, String)>,
    ) -> Vec<ClassOutcome> {
        self.counted = counted;
        self.wanted_classes = wanted.iter().map(|class| (Arc::clone(&class.policy), class.class.clone())).collect();
        let outcome = |place| {
            self.outcomes.get(place).cloned().unwrap_or_else(|| ClassOutcome {
                in_force: !self.domains.is_empty(),
                why: if self.domains.is_empty() { "this machine has no resctrl".to_owned() } else { String::new() },
                ..ClassOutcome::default()
            })
        };
        self.wanted_classes.iter().map(outcome).collect()
    }

    pub(crate) fn domains(&self) -> Vec<Domain> {
        self.domains.clone()
    }

    pub(crate) fn read(&mut self) -> ResctrlReading {
        let classes = &mut self.classes;
        let of_class = |place| classes.get_mut(place).map(read).unwrap_or_default();
        let classes = self.wanted_classes.iter().map(of_class).collect();
        let counted = &mut self.containers;
        let of_container = |(id, cgroup): &(ContainerId, String)| Some((*id, read(counted.get_mut(cgroup)?)));
        ResctrlReading {
            classes,
            containers: self.counted.iter().filter_map(of_container).collect(),
            rest: read(&mut self.rest),
        }
    }
}
