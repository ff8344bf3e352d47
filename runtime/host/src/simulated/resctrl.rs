//! Resctrl on a simulated node: what a recording contains. Its rules are not simulated here; the emulation
//! (`qosm-resctrl-fuse`) is a file system as the kernel's is.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassName, ClassOutcome, Domain, ResctrlReading, Usage, WantedClass, sum};

use super::Simulation;

/// Resctrl in a tick of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlayedResctrl {
    /// The domains that are online.
    pub domains: Vec<Domain>,
    /// How classes fare, and what was counted of them.
    pub classes: Vec<PlayedClass>,
    /// Usage of all that is in no class.
    pub rest: Vec<Usage>,
}

/// A class in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedClass {
    /// The policy.
    pub policy: Arc<str>,
    /// The policy's own name for it.
    pub class: ClassName,
    /// How it fares.
    pub outcome: ClassOutcome,
    /// What was counted of it.
    pub usage: Vec<Usage>,
}

/// What is shown, and what was counted and not read yet.
#[derive(Debug, Default)]
pub(crate) struct Played {
    domains: Vec<Domain>,
    outcomes: BTreeMap<(Arc<str>, ClassName), ClassOutcome>,
    classes: BTreeMap<(Arc<str>, ClassName), Vec<Usage>>,
    containers: BTreeMap<String, Vec<Usage>>,
    rest: Vec<Usage>,
    wanted_classes: Vec<(Arc<str>, ClassName)>,
    /// The containers that are counted, each with its cgroup.
    counted: Vec<(ContainerId, String)>,
}

/// Adds a sample; unread traffic adds up.
fn count(known: &mut Vec<Usage>, now: &[Usage]) {
    *known = sum(known, now);
}

/// Traffic is read once.
fn read(known: &mut Vec<Usage>) -> Vec<Usage> {
    let counted = known.clone();
    for usage in known {
        (usage.local, usage.total) = (None, None);
    }
    counted
}

impl Simulation {
    /// What there is of resctrl from now on, and what was counted since the last time.
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

    /// What was counted of the container in this cgroup since the last time.
    pub fn play_resctrl_of(&mut self, cgroup: &str, now: &[Usage]) {
        count(self.resctrl.containers.entry(cgroup.to_owned()).or_default(), now);
    }
}

impl Played {
    /// `counted` are containers, each with its cgroup.
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
