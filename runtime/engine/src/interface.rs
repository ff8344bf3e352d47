//! The interfaces of the contract, by name: what a module can import and an operator can grant.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use qosm_model::knob::Knob;
use semver::Version;

/// Version of the contract that this host speaks. Modules of the same minor version fit, unless they import what a later patch
/// version brought.
pub const CONTRACT_VERSION: Version = Version::new(0, 1, 2);

/// One interface of the contract. Named as in `sdk/wit`, e.g. `cpu-stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// What the module has to say.
    Log,
    /// Memory that outlives the instance.
    State,
    /// Facts about the node.
    Node,
    /// CPU time, throttling and quotas.
    CpuStat,
    /// Memory use and events.
    MemoryStat,
    /// Pressure stall information.
    Pressure,
    /// NUMA nodes, and where memory lies.
    NumaStat,
    /// Who uses caches and memory bandwidth.
    ResctrlMonitor,
    /// CFS quota and burst.
    CpuBandwidth,
    /// CPU weight and `cpu.idle`.
    CpuWeight,
    /// Memory protection, throttling and reclaim.
    MemoryProtection,
    /// On which NUMA nodes memory may lie.
    Cpuset,
    /// Moving pages between NUMA nodes.
    PageMigration,
    /// Shares of caches and memory bandwidth.
    ResctrlAllocation,
    /// Events on pods.
    PodEvent,
}

impl Interface {
    /// All interfaces: first those that are always granted, then signals, then controls.
    pub const ALL: [Self; 15] = [
        Self::Log,
        Self::State,
        Self::Node,
        Self::CpuStat,
        Self::MemoryStat,
        Self::Pressure,
        Self::NumaStat,
        Self::ResctrlMonitor,
        Self::CpuBandwidth,
        Self::CpuWeight,
        Self::MemoryProtection,
        Self::Cpuset,
        Self::PageMigration,
        Self::ResctrlAllocation,
        Self::PodEvent,
    ];

    /// The name in the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::State => "state",
            Self::Node => "node",
            Self::CpuStat => "cpu-stat",
            Self::MemoryStat => "memory-stat",
            Self::Pressure => "pressure",
            Self::NumaStat => "numa-stat",
            Self::ResctrlMonitor => "resctrl-monitor",
            Self::CpuBandwidth => "cpu-bandwidth",
            Self::CpuWeight => "cpu-weight",
            Self::MemoryProtection => "memory-protection",
            Self::Cpuset => "cpuset",
            Self::PageMigration => "page-migration",
            Self::ResctrlAllocation => "resctrl-allocation",
            Self::PodEvent => "pod-event",
        }
    }

    /// What an operator who grants it allows, in half a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Log => "writes lines for the operator",
            Self::State => "keeps up to 64 KiB that outlive the instance",
            Self::Node => "reads the node's CPUs, memory and CPU use",
            Self::CpuStat => "reads each container's CPU time, throttling and quota",
            Self::MemoryStat => "reads each container's memory use and events",
            Self::Pressure => "reads each container's pressure: time lost to waiting",
            Self::NumaStat => "reads on which NUMA nodes containers run and have their memory",
            Self::ResctrlMonitor => "reads who uses the last-level caches and the memory bandwidth",
            Self::CpuBandwidth => "sets CFS quota and burst",
            Self::CpuWeight => "sets CPU weights, and which containers get a CPU only when nobody else wants it",
            Self::MemoryProtection => {
                "sets what memory is protected, throttled and reclaimed, and whom the OOM killer takes"
            }
            Self::Cpuset => "sets on which NUMA nodes containers may have memory",
            Self::PageMigration => "moves containers' pages between NUMA nodes",
            Self::ResctrlAllocation => {
                "divides the last-level caches and the memory bandwidth among classes of containers"
            }
            Self::PodEvent => "records events on pods, which their owners see",
        }
    }

    /// The control that sets a knob.
    pub fn of(knob: Knob) -> Self {
        match knob {
            Knob::CfsQuota | Knob::CfsBurst => Self::CpuBandwidth,
            Knob::CpuWeight | Knob::CpuIdle => Self::CpuWeight,
            Knob::MemoryMin
            | Knob::MemoryLow
            | Knob::MemoryHigh
            | Knob::WmarkRatio
            | Knob::WmarkScale
            | Knob::WmarkMinAdj
            | Knob::OomPriority
            | Knob::UseOomPriority
            | Knob::OomGroup
            | Knob::PageCacheLimitEnable
            | Knob::PageCacheLimitSize
            | Knob::PageCacheReclaimSync => Self::MemoryProtection,
            Knob::CpusetMems => Self::Cpuset,
        }
    }

    /// The knobs that it can hold; none for signals, and for controls whose effects are no settings.
    pub fn knobs(self) -> impl Iterator<Item = Knob> {
        Knob::ALL.into_iter().filter(move |&knob| Self::of(knob) == self)
    }

    /// Whether it only reads the node.
    pub fn is_signal(self) -> bool {
        matches!(
            self,
            Self::Node | Self::CpuStat | Self::MemoryStat | Self::Pressure | Self::NumaStat | Self::ResctrlMonitor
        )
    }

    /// Whether it changes something outside the module.
    pub fn is_control(self) -> bool {
        matches!(
            self,
            Self::CpuBandwidth
                | Self::CpuWeight
                | Self::MemoryProtection
                | Self::Cpuset
                | Self::PageMigration
                | Self::ResctrlAllocation
                | Self::PodEvent
        )
    }

    /// Whether every module may import it, since it touches nothing but the module's own memory of itself.
    pub fn always_granted(self) -> bool {
        matches!(self, Self::Log | Self::State)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Not the name of an interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an interface of the contract; there are {all}", all = Listed(&Interface::ALL))]
pub struct UnknownInterface(pub String);

impl FromStr for Interface {
    type Err = UnknownInterface;

    fn from_str(text: &str) -> Result<Self, UnknownInterface> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.as_str() == text)
            .ok_or_else(|| UnknownInterface(text.to_owned()))
    }
}

/// What an operator allows one policy. [`Interface::always_granted`] interfaces need no mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeSet<Interface>);

impl Grants {
    /// Whether a module may import the interface.
    pub fn contains(&self, interface: Interface) -> bool {
        interface.always_granted() || self.0.contains(&interface)
    }

    /// Allows one more.
    pub fn insert(&mut self, interface: Interface) {
        self.0.insert(interface);
    }

    /// What was granted by name, in the order of [`Interface::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = Interface> {
        self.0.iter().copied()
    }
}

impl FromIterator<Interface> for Grants {
    fn from_iter<I: IntoIterator<Item = Interface>>(interfaces: I) -> Self {
        Self(interfaces.into_iter().collect())
    }
}

/// Names in back-quotes, with commas between them.
pub(crate) struct Listed<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            write!(f, "{}`{item}`", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What the name of an import or export stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExternName {
    /// The shared types: nothing to call, nothing to grant.
    Types,
    /// What a module must export.
    Lifecycle,
    /// An interface of the contract.
    Interface(Interface),
    /// An item of the contract's package, but of a version that does not fit.
    OtherVersion(String),
    /// None of ours.
    Foreign,
}

impl ExternName {
    /// Reads `qosm:policy/NAME@VERSION`. Versions fit as in Wasm linkers: the same minor version while the major one is 0.
    pub(crate) fn parse(name: &str) -> (Self, Option<Version>) {
        let Some((interface, version)) = name.strip_prefix("qosm:policy/").and_then(|rest| rest.split_once('@')) else {
            return (Self::Foreign, None);
        };
        let known = match interface {
            "types" => Self::Types,
            "lifecycle" => Self::Lifecycle,
            other => match other.parse() {
                Ok(interface) => Self::Interface(interface),
                Err(UnknownInterface(_)) => Self::Foreign,
            },
        };
        match Version::parse(version) {
            Ok(version) if !fits(&version) => (Self::OtherVersion(version.to_string()), Some(version)),
            Ok(version) => (known, Some(version)),
            Err(_) => (Self::Foreign, None),
        }
    }
}

fn fits(version: &Version) -> bool {
    version.pre.is_empty() && version.major == CONTRACT_VERSION.major && version.minor == CONTRACT_VERSION.minor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        for interface in Interface::ALL {
            assert_eq!(interface.to_string().parse(), Ok(interface));
            let kinds = [interface.is_signal(), interface.is_control(), interface.always_granted()];
            assert_eq!(kinds.into_iter().filter(|&kind| kind).count(), 1, "{interface}");
        }
    }

    #[test]
    fn an_unknown_interface_is_answered_with_the_known_ones() {
        let error = "blkio".parse::<Interface>().map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("`blkio` is not an interface of the contract; there are `log`, `state`, `node`, `cpu-stat`, \
                 `memory-stat`, `pressure`, `numa-stat`, `resctrl-monitor`, `cpu-bandwidth`, `cpu-weight`, \
                 `memory-protection`, `cpuset`, `page-migration`, `resctrl-allocation`, `pod-event`"
                .to_owned())
        );
    }

    #[test]
    fn versions_fit_within_the_minor_version() {
        for (name, expected) in [
            ("qosm:policy/cpu-stat@0.1.0", ExternName::Interface(Interface::CpuStat)),
            ("qosm:policy/cpu-stat@0.1.7", ExternName::Interface(Interface::CpuStat)),
            ("qosm:policy/types@0.1.0", ExternName::Types),
            ("qosm:policy/lifecycle@0.1.2", ExternName::Lifecycle),
            ("qosm:policy/cpu-stat@0.2.0", ExternName::OtherVersion("0.2.0".to_owned())),
            ("qosm:policy/cpu-stat@1.1.0", ExternName::OtherVersion("1.1.0".to_owned())),
            ("qosm:policy/cpu-stat@0.1.0-rc.1", ExternName::OtherVersion("0.1.0-rc.1".to_owned())),
            ("qosm:policy/blkio@0.1.0", ExternName::Foreign),
            ("qosm:policy/cpu-stat@latest", ExternName::Foreign),
            ("qosm:policy/cpu-stat", ExternName::Foreign),
            ("wasi:cli/environment@0.2.0", ExternName::Foreign),
            ("", ExternName::Foreign),
        ] {
            assert_eq!(ExternName::parse(name).0, expected, "{name}");
        }
    }

    #[test]
    fn log_and_state_need_no_grant() {
        let grants: Grants = [Interface::CpuStat].into_iter().collect();
        let granted: Vec<_> = Interface::ALL.into_iter().filter(|&interface| grants.contains(interface)).collect();
        assert_eq!(granted, [Interface::Log, Interface::State, Interface::CpuStat]);
    }
}
