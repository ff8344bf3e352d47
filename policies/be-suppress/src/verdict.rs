//! The reasons for a decision, as values and in English.

use std::fmt;

use qosm_sdk::PodId;
use serde::{Deserialize, Serialize};

use crate::CpuSet;
use crate::allowed::Allowed;
use crate::config::{Profile, Settings};
use crate::pressure;

/// The outcome of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The strategy is not enabled: everything is released.
    Off,
    /// An input is missing, so nothing changes.
    Unchanged(Missing),
    /// CPUs of batch pods are managed by NUMA node, within this set.
    ByNumaNode(CpuSet),
    /// Batch pods are suppressed.
    Suppressed {
        /// CPU that batch pods may use.
        allowed: Allowed,
        /// How pressure bounds it.
        pressure: pressure::Bound,
        /// How it is enforced.
        how: How,
    },
}

/// An input that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Missing {
    /// The Kubernetes node, or its capacity.
    Node,
    /// The pods.
    Pods,
    /// The CPU use of pods.
    PodsUsed,
    /// The CPU use of the node.
    NodeUsed,
    /// The machine's CPUs.
    Cpus,
    /// The CPUs in force for the BestEffort tier.
    TierCpus,
    /// The quota in force for the BestEffort tier.
    TierQuota,
}

/// How batch pods are suppressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By a cpuset.
    Cpus {
        /// The CPUs.
        cpus: CpuSet,
        /// Number of CPUs from the pool that LSR pods are pinned to.
        from_lsr: usize,
        /// Number of CPUs that the formula allows.
        wanted: u64,
        /// Number of CPUs that batch pods had before.
        old: u64,
    },
    /// Both pools are empty: batch pods keep their last set and get this quota.
    NoCpus {
        /// The set that they keep; `None` if there is none.
        kept: Option<CpuSet>,
        /// CFS quota in microseconds; `None` if it cannot be set or stays unlimited.
        quota_usec: Option<u64>,
    },
    /// By a CFS quota.
    Quota {
        /// The quota in microseconds per period; `None` = it stays unlimited.
        quota_usec: Option<u64>,
        /// The quota before; `None` = unlimited.
        old_usec: Option<u64>,
        /// Length of the period, in microseconds.
        period_usec: u64,
    },
    /// Batch pods run only on otherwise idle CPUs (`cpu.idle`).
    Idle,
    /// Batch pods have the smallest CPU weight.
    Weight,
    /// Not at all: no knob can be written.
    Nothing,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "the node's capacity is not known",
            Self::Pods => "the node's pods are not known",
            Self::PodsUsed => "the CPU use of pods is not measured",
            Self::NodeUsed => "the CPU use of the node is not measured, or too long ago",
            Self::Cpus => "the machine's CPUs are not known",
            Self::TierCpus => "the CPUs of the BestEffort tier cannot be read",
            Self::TierQuota => "the CFS quota of the BestEffort tier cannot be read",
        })
    }
}

impl Verdict {
    /// The verdict in words; `name` maps a pod to its name.
    pub fn text(&self, name: &dyn Fn(PodId) -> String) -> String {
        let mut text = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut text, name);
        text
    }

    /// Why batch pods do not get the CPU that would be theirs; `None` if they do. `name` maps a pod to its name.
    pub fn unmet(&self, name: &dyn Fn(PodId) -> String) -> Option<String> {
        let waits = |waiting: &pressure::Waiting| {
            let mut text = "no more than now, since ".to_owned();
            // Writing to a string never fails.
            let _ = waiting.write(&mut text, name);
            text
        };
        match self {
            Self::Off | Self::ByNumaNode(_) => None,
            Self::Unchanged(missing) => Some(format!("nothing is changed: {missing}")),
            Self::Suppressed { how: how @ (How::NoCpus { .. } | How::Idle | How::Weight | How::Nothing), .. } => {
                Some(how.to_string())
            }
            Self::Suppressed { pressure: pressure::Bound::Hold(Some(waiting)), .. } => Some(waits(waiting)),
            Self::Suppressed { pressure: pressure::Bound::Hold(None), .. } => {
                Some("no more than now, until latency-sensitive pods have been calm for a while".to_owned())
            }
            Self::Suppressed { .. } => None,
        }
    }

    fn write(&self, f: &mut impl fmt::Write, name: &dyn Fn(PodId) -> String) -> fmt::Result {
        match self {
            Self::Off => f.write_str("suppression is not enabled"),
            Self::Unchanged(missing) => write!(f, "nothing is changed: {missing}"),
            Self::ByNumaNode(cpus) => write!(f, "CPUs of batch pods are managed by NUMA node, within {cpus}"),
            Self::Suppressed { allowed, pressure, how } => {
                write!(f, "{allowed}")?;
                match pressure {
                    pressure::Bound::Free => {}
                    pressure::Bound::Hold(None) => {
                        f.write_str("; no more than now, until latency-sensitive pods have been calm for a while")?
                    }
                    pressure::Bound::Hold(Some(waiting)) => {
                        f.write_str("; no more than now, since ")?;
                        waiting.write(f, name)?;
                    }
                    pressure::Bound::Cut(waiting) => {
                        f.write_str("; less than now, since ")?;
                        waiting.write(f, name)?;
                    }
                    pressure::Bound::Risen => {
                        f.write_str("; less than now, since latency-sensitive pods suddenly use more")?
                    }
                }
                write!(f, "; {how}")
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|id| format!("pod {id}")))
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { cpus, wanted, old, .. } => {
                let count = cpus.len();
                write!(f, "CPUs {cpus}: {count}, {old} before")?;
                match u64::try_from(count).unwrap_or(u64::MAX) {
                    count if count < *wanted && count > *old => write!(f, ", on the way to {wanted}"),
                    count if count < *wanted => write!(f, ", of {wanted} that could be used"),
                    _ => Ok(()),
                }
            }
            Self::NoCpus { kept, quota_usec } => {
                f.write_str("too few CPUs are left for batch pods")?;
                if let Some(kept) = kept {
                    write!(f, "; they keep {kept}")?;
                }
                quota_usec.map_or(Ok(()), |quota| write!(f, "; CFS quota {quota} us"))
            }
            Self::Quota { quota_usec, old_usec, period_usec } => {
                match quota_usec {
                    Some(quota) => write!(f, "CFS quota {quota} us of {period_usec} us, ")?,
                    None => f.write_str("no CFS quota, ")?,
                }
                match old_usec {
                    Some(old) if quota_usec == old_usec => write!(f, "as before ({old} us)"),
                    Some(old) => write!(f, "{old} us before"),
                    None => f.write_str("unlimited before"),
                }
            }
            Self::Idle => f.write_str("batch pods run when nobody else wants to (cpu.idle)"),
            Self::Weight => f.write_str("batch pods have the least CPU weight"),
            Self::Nothing => f.write_str("nothing can be written here"),
        }
    }
}

/// A condition that is reported when it begins and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// Both pools are empty.
    NoCpus,
    /// Fewer CPUs are left than the minimum of batch pods.
    FewCpus,
    /// Cpusets cannot be written, so a quota is used.
    NoCpuset,
    /// Quotas cannot be written, so a cpuset is used.
    NoQuota,
    /// Neither cpusets nor quotas can be written.
    NoControl,
    /// An input is missing.
    Missing(Missing),
}

/// A condition that began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The condition.
    pub condition: Condition,
    /// Whether it began (`true`) or ended.
    pub has_begun: bool,
}

impl Report {
    /// The report in words. What batch pods get where CPUs are lacking depends on the policy's configuration.
    pub fn text(&self, settings: &Settings) -> String {
        let is_responsive = settings.profile == Profile::Responsive;
        let text = match (self.condition, self.has_begun) {
            (Condition::NoCpus, true) if !is_responsive || settings.be_cpu_manager => {
                "all CPUs are reserved or belong to others alone: batch pods keep the CPUs that they had; reserve fewer CPUs, or move batch \
                 pods away"
            }
            (Condition::NoCpus, true) => {
                "all CPUs are reserved or belong to others alone: batch pods keep the CPUs that they had and are bounded by a quota; \
                 reserve fewer CPUs, or move batch pods away"
            }
            (Condition::NoCpus, false) => "batch pods have CPUs of their own again",
            (Condition::FewCpus, true) if !is_responsive => {
                "fewer CPUs are left than batch pods are to keep: they keep the CPUs that they had"
            }
            (Condition::FewCpus, true) => {
                "fewer CPUs are left than batch pods are to keep: they get all that there are"
            }
            (Condition::FewCpus, false) => "there are CPUs enough for batch pods again",
            (Condition::NoCpuset, true) => {
                "cpusets cannot be written here, so batch pods are held back by a CFS quota; enable the cpuset controller down to the \
                 containers, or set cpuSuppressPolicy to cfsQuota"
            }
            (Condition::NoCpuset, false) => "cpusets can be written again",
            (Condition::NoQuota, true) => "CFS quotas cannot be written here, so batch pods are held back by cpusets",
            (Condition::NoQuota, false) => "CFS quotas can be written again",
            (Condition::NoControl, true) => {
                "neither cpusets nor CFS quotas can be written here: batch pods only yield by weight"
            }
            (Condition::NoControl, false) => "batch pods can be held back again",
            (Condition::Missing(missing), true) => return format!("{missing}: what batch pods may use stays as it is"),
            (Condition::Missing(missing), false) => return format!("ended: {missing}"),
        };
        text.to_owned()
    }
}
