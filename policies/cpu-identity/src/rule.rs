//! The ranks: what a pod or tier wants from the CPU scheduler, by class, annotation and labels.
//!
//! Source: koordinator `pkg/koordlet/runtimehooks/hooks/{groupidentity,coresched}`.

use qosm_sdk::{KubeQos, PodFacts, QosClass, Tier};

use crate::config::{Defaults, PodConfig, Settings};
use crate::strategy::{Class, CpuPolicy, CpuQos, Strategy};

/// Label: pods with the same value may share cores with each other.
const GROUP_LABEL: &str = "koordinator.sh/core-sched-group-id";
/// Label: `none` or `exclusive`.
pub(crate) const POLICY_LABEL: &str = "koordinator.sh/core-sched-policy";
/// Suffix of groups of classes that share no core with others. No label's value has a slash, so no pod can name such a group itself.
const EXPELLER_SUFFIX: &str = "/expeller";

/// The pod's value of [`POLICY_LABEL`] if it is none of the known ones. It then counts as no label.
pub(crate) fn unknown_policy(pod: &PodFacts) -> Option<&str> {
    Some(label(pod, POLICY_LABEL)).filter(|word| !matches!(*word, "" | "none" | "exclusive"))
}

fn label<'a>(pod: &'a PodFacts, key: &str) -> &'a str {
    pod.labels.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str())
}

/// The core scheduling group of one pod alone.
pub(crate) fn own_group(pod: &PodFacts) -> String {
    format!("pod/{}", pod.uid)
}

/// What a pod or tier wants from the CPU scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Group identity, -1 to 2; 0 = none.
    pub identity: i8,
    /// Whether the pod runs only on otherwise idle CPUs.
    pub idle: bool,
    /// The core scheduling group of its threads; `None` = they may share a core with any thread.
    pub core_group: Option<String>,
    /// Where this comes from.
    pub source: Source,
}

/// Where a pod's rank comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// There is no configuration.
    #[default]
    Unset,
    /// The strategy sets it for this class.
    Class(Class),
    /// The strategy does not set it, and pods labelled BE are batch ([`Defaults::Colocation`]).
    Label,
    /// The pod's annotation.
    Annotation,
}

impl Source {
    /// Describes what is wanted together with its source.
    pub(crate) fn of(self, what: &str) -> String {
        match self {
            Self::Class(class) => format!("{what} of class {class}"),
            Self::Label => format!("{what} of pods labelled {}, as colocation has it", Class::Be),
            Self::Annotation => format!("{what}, which the pod asks for"),
            Self::Unset => what.to_owned(),
        }
    }
}

/// A class with all defaults applied.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    is_enabled: bool,
    identity: i8,
    is_idle: bool,
    is_expeller: bool,
}

impl Rank {
    /// Unset fields get the defaults of an enabled class; a class that is not enabled has no rank at all.
    fn new(given: CpuQos, class: Class) -> Self {
        if given.enable != Some(true) {
            return Self::default();
        }
        let (identity, is_expeller) = match class {
            Class::Lsr | Class::Ls => (2, true),
            Class::Be => (BATCH, false),
            Class::System => (0, false),
        };
        Self {
            is_enabled: true,
            identity: given.group_identity.unwrap_or(identity),
            is_idle: given.sched_idle.unwrap_or(false),
            is_expeller: given.core_expeller.unwrap_or(is_expeller),
        }
    }
}

/// The group identity of batch pods.
const BATCH: i8 = -1;

/// The strategy in force.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule {
    policy: CpuPolicy,
    lsr: Rank,
    ls: Rank,
    be: Rank,
    system: Rank,
    /// The identity of pods labelled BE, if the strategy does not configure their class.
    by_label: Option<i8>,
    raises: bool,
}

impl Rule {
    /// Computes the rule from the strategy and the policy's own configuration.
    pub fn new(strategy: &Strategy, settings: Settings) -> Self {
        let rank = |class| Rank::new(strategy.class(class), class);
        let says_nothing = strategy.policy == CpuPolicy::GroupIdentity && strategy.be.enable.is_none();
        let is_batch = settings.defaults == Defaults::Colocation && says_nothing;
        Self {
            policy: strategy.policy,
            lsr: rank(Class::Lsr),
            ls: rank(Class::Ls),
            be: rank(Class::Be),
            system: rank(Class::System),
            by_label: is_batch.then(|| strategy.be.group_identity.unwrap_or(BATCH)),
            raises: settings.raise_by_annotation,
        }
    }

    /// How the scheduler learns ranks; `None` if no class has one.
    pub fn policy(&self) -> Option<CpuPolicy> {
        let is_on = Class::ALL.iter().any(|&class| self.rank(class).is_enabled) || self.by_label.is_some();
        is_on.then_some(self.policy)
    }

    /// What a pod wants; `asked` is its annotation.
    pub fn pod(&self, pod: &PodFacts, asked: Option<PodConfig>) -> Wanted {
        let class = self.class(pod);
        match self.policy() {
            None => Wanted::default(),
            Some(CpuPolicy::GroupIdentity) => self.identity(pod, class, asked),
            Some(CpuPolicy::CoreSched) => self.core(pod, class),
        }
    }

    /// What a tier's own cgroup wants.
    pub fn tier(&self, tier: Tier) -> Wanted {
        let class = match tier {
            Tier::Guaranteed => self.guaranteed(),
            Tier::Burstable => Class::Ls,
            Tier::BestEffort => Class::Be,
        };
        let rank = self.rank(class);
        let wanted = match self.policy {
            // The pods of all classes are below this cgroup, so it has no identity.
            CpuPolicy::GroupIdentity if tier == Tier::Guaranteed => Wanted::default(),
            CpuPolicy::GroupIdentity => Wanted { identity: rank.identity, ..Wanted::default() },
            CpuPolicy::CoreSched => Wanted { idle: rank.is_idle, ..Wanted::default() },
        };
        Wanted { source: if rank.is_enabled { Source::Class(class) } else { Source::Unset }, ..wanted }
    }

    fn rank(&self, class: Class) -> Rank {
        match class {
            Class::Lsr => self.lsr,
            Class::Ls => self.ls,
            Class::Be => self.be,
            Class::System => self.system,
        }
    }

    /// The class whose values apply to a pod.
    fn class(&self, pod: &PodFacts) -> Class {
        match (pod.declared_qos, pod.kube_qos) {
            (Some(QosClass::Lse | QosClass::Lsr), _) => Class::Lsr,
            (Some(QosClass::Ls), _) | (None, KubeQos::Burstable) => Class::Ls,
            (Some(QosClass::Be), _) | (None, KubeQos::BestEffort) => Class::Be,
            (Some(QosClass::System), _) => Class::System,
            (None, KubeQos::Guaranteed) => self.guaranteed(),
        }
    }

    /// The class of Guaranteed pods that declare none.
    fn guaranteed(&self) -> Class {
        if self.lsr.is_enabled { Class::Lsr } else { Class::Ls }
    }

    fn identity(&self, pod: &PodFacts, class: Class, asked: Option<PodConfig>) -> Wanted {
        let rank = self.rank(class);
        let (mut identity, mut source) = (rank.identity, Source::Unset);
        if rank.is_enabled {
            source = Source::Class(class);
        }
        if let Some(by_label) = self.by_label.filter(|_| pod.declared_qos == Some(QosClass::Be)) {
            (identity, source) = (by_label, Source::Label);
        }
        // The annotation applies to pods labelled LS only, and (unless `raises`) may only lower their rank.
        if let Some(asked) = asked.filter(|_| pod.declared_qos == Some(QosClass::Ls)) {
            let own = match (asked.enable, asked.group_identity) {
                (Some(true), own) => own.unwrap_or(identity),
                (Some(false) | None, _) => 0,
            };
            let own = if self.raises { own } else { own.min(identity) };
            if own != identity {
                (identity, source) = (own, Source::Annotation);
            }
        }
        Wanted { identity, source, ..Wanted::default() }
    }

    fn core(&self, pod: &PodFacts, class: Class) -> Wanted {
        let rank = self.rank(class);
        if !rank.is_enabled {
            return Wanted::default();
        }
        let core_group = match label(pod, POLICY_LABEL) {
            // The node's own agents may share a core with any thread.
            _ if class == Class::System => None,
            "none" => None,
            "exclusive" => Some(own_group(pod)),
            _ if rank.is_expeller => Some(format!("{}{EXPELLER_SUFFIX}", label(pod, GROUP_LABEL))),
            _ => Some(label(pod, GROUP_LABEL).to_owned()),
        };
        Wanted { identity: 0, idle: rank.is_idle, core_group, source: Source::Class(class) }
    }
}

#[cfg(test)]
mod tests;
