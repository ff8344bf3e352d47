//! The interfaces of the contract by name, which a module can import and an operator can grant.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use qosm_model::foreign;
use qosm_model::knob::Knob;
use semver::Version;

/// Version of the contract that this host implements. Modules of the same minor version are compatible, unless they
/// import what a later patch version added.
pub const CONTRACT_VERSION: Version = Version::new(0, 1, 3);

/// One interface of the contract. Named as in `sdk/wit`, e.g. `cpu-stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// Log lines for the operator.
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
    /// Usage of caches and memory bandwidth.
    ResctrlMonitor,
    /// The Node object.
    NodeObject,
    /// Further fields of Pod objects.
    PodObject,
    /// The cluster ConfigMap.
    ClusterConfig,
    /// CPUs: cores, sockets, NUMA nodes, and the CPUs that cgroups may use.
    CpuTopology,
    /// CFS quota and burst.
    CpuBandwidth,
    /// CPU weight and `cpu.idle`.
    CpuWeight,
    /// Group identity, and core scheduling groups.
    CpuIdentity,
    /// Memory protection, throttling and reclaim.
    MemoryProtection,
    /// On which CPUs processes may run, and on which NUMA nodes memory may lie.
    Cpuset,
    /// The memory limit of cgroups.
    MemoryLimit,
    /// Settings of the node's own kernel.
    NodeKnobs,
    /// Limits, weights and cost models of block devices.
    BlockIo,
    /// Moving pages between NUMA nodes.
    PageMigration,
    /// Shares of caches and memory bandwidth.
    ResctrlAllocation,
    /// Extended resources of the Kubernetes node.
    NodeResource,
    /// Eviction of pods.
    Eviction,
    /// Events on pods.
    PodEvent,
}

impl Interface {
    /// All interfaces: first those that are always granted, then signals, then controls.
    pub const ALL: [Self; 25] = [
        Self::Log,
        Self::State,
        Self::Node,
        Self::CpuStat,
        Self::MemoryStat,
        Self::Pressure,
        Self::NumaStat,
        Self::ResctrlMonitor,
        Self::NodeObject,
        Self::PodObject,
        Self::ClusterConfig,
        Self::CpuTopology,
        Self::CpuBandwidth,
        Self::CpuWeight,
        Self::CpuIdentity,
        Self::MemoryProtection,
        Self::Cpuset,
        Self::MemoryLimit,
        Self::NodeKnobs,
        Self::BlockIo,
        Self::PageMigration,
        Self::ResctrlAllocation,
        Self::NodeResource,
        Self::Eviction,
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
            Self::NodeObject => "node-object",
            Self::PodObject => "pod-object",
            Self::ClusterConfig => "cluster-config",
            Self::CpuTopology => "cpu-topology",
            Self::CpuBandwidth => "cpu-bandwidth",
            Self::CpuWeight => "cpu-weight",
            Self::CpuIdentity => "cpu-identity",
            Self::MemoryProtection => "memory-protection",
            Self::Cpuset => "cpuset",
            Self::MemoryLimit => "memory-limit",
            Self::NodeKnobs => "node-knobs",
            Self::BlockIo => "block-io",
            Self::PageMigration => "page-migration",
            Self::ResctrlAllocation => "resctrl-allocation",
            Self::NodeResource => "node-resource",
            Self::Eviction => "eviction",
            Self::PodEvent => "pod-event",
        }
    }

    /// The effect of granting the interface, as a verb phrase whose subject is the module.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Log => "writes lines for the operator",
            Self::State => "keeps up to 64 KiB that outlive the instance",
            Self::Node => "reads the node's CPUs, memory and pressure, and the use of the node, its tiers and its pods",
            Self::CpuStat => "reads each container's CPU time, throttling and quota",
            Self::MemoryStat => "reads each container's memory use and events",
            Self::Pressure => "reads each container's pressure: time lost to waiting",
            Self::NumaStat => "reads on which NUMA nodes containers run and have their memory",
            Self::ResctrlMonitor => "reads the use of last-level caches and memory bandwidth",
            Self::NodeObject => "reads the Node object: labels, annotations, and the amount of each resource",
            Self::PodObject => "reads each pod's annotations, age, owner, and whether it is being deleted",
            Self::ClusterConfig => "reads every key of the cluster ConfigMap",
            Self::CpuTopology => "reads the machine's CPUs, and on which of them cgroups may run",
            Self::CpuBandwidth => "sets CFS quota and burst",
            Self::CpuWeight => "sets CPU weights, and which containers run only on otherwise idle CPUs",
            Self::CpuIdentity => {
                "ranks cgroups on CPUs by group identity, and sets which containers share cores, on kernels that have it"
            }
            Self::MemoryProtection => {
                "sets what memory is protected, throttled and reclaimed, and what the OOM killer kills"
            }
            Self::Cpuset => "sets on which CPUs pods may run, and on which NUMA nodes containers may have memory",
            Self::MemoryLimit => "sets memory limits, at which the kernel reclaims and in the end kills",
            Self::NodeKnobs => "sets the node's own watermarks of memory, and switches of its kernel",
            Self::BlockIo => {
                "limits and weighs what pods read from disks and write to them, and says what a disk can do"
            }
            Self::PageMigration => "moves containers' pages between NUMA nodes",
            Self::ResctrlAllocation => {
                "divides the last-level caches and the memory bandwidth among classes of containers"
            }
            Self::NodeResource => "publishes extended resources of the Kubernetes node, which schedulers give out",
            Self::Eviction => "evicts pods from the node",
            Self::PodEvent => "records events on pods, which their owners see",
        }
    }

    /// The control interface that sets a knob.
    pub fn of(knob: Knob) -> Self {
        match knob {
            Knob::CfsQuota | Knob::CfsBurst => Self::CpuBandwidth,
            Knob::CpuWeight | Knob::CpuIdle => Self::CpuWeight,
            Knob::BvtWarp | Knob::CoreGroup => Self::CpuIdentity,
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
            Knob::CpusetMems | Knob::CpusetCpus => Self::Cpuset,
            Knob::MemoryMax => Self::MemoryLimit,
            Knob::MinFreeKbytes
            | Knob::WatermarkScaleFactor
            | Knob::MemcgReaper
            | Knob::GroupIdentity
            | Knob::IdleSaverWmark
            | Knob::PageCacheLimit
            | Knob::SchedCore => Self::NodeKnobs,
            Knob::IoMax(_) | Knob::IoWeight(_) | Knob::IoCostQos(_) | Knob::IoCostModel(_) => Self::BlockIo,
        }
    }

    /// The kinds of knobs that a policy can hold with this interface; none for signals and for controls without knobs.
    pub fn knobs(self) -> impl Iterator<Item = Knob> {
        Knob::ALL.into_iter().filter(move |&knob| Self::of(knob) == self)
    }

    /// Whether the interface only reads.
    pub fn is_signal(self) -> bool {
        matches!(
            self,
            Self::Node
                | Self::CpuStat
                | Self::MemoryStat
                | Self::Pressure
                | Self::NumaStat
                | Self::ResctrlMonitor
                | Self::NodeObject
                | Self::PodObject
                | Self::ClusterConfig
                | Self::CpuTopology
        )
    }

    /// Whether the interface changes something outside the module.
    pub fn is_control(self) -> bool {
        matches!(
            self,
            Self::CpuBandwidth
                | Self::CpuWeight
                | Self::CpuIdentity
                | Self::MemoryProtection
                | Self::Cpuset
                | Self::MemoryLimit
                | Self::NodeKnobs
                | Self::BlockIo
                | Self::PageMigration
                | Self::ResctrlAllocation
                | Self::NodeResource
                | Self::Eviction
                | Self::PodEvent
        )
    }

    /// Whether every module may import the interface without a grant, since it affects nothing but the module's own log
    /// and state.
    pub fn always_granted(self) -> bool {
        matches!(self, Self::Log | Self::State)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is neither an interface of the contract nor a [`Reach`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an interface nor `tiers` or `all-pods`; there are {all}", all = Known)]
pub struct UnknownInterface(pub String);

/// The names of everything that can be granted. Unlike names from a module they need no bound on length.
struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separators = std::iter::once("").chain(std::iter::repeat(", "));
        let names = Interface::ALL.into_iter().map(Interface::as_str).chain(Reach::ALL.into_iter().map(Reach::as_str));
        names.zip(separators).try_for_each(|(name, separator)| write!(f, "{separator}`{name}`"))
    }
}

impl FromStr for Interface {
    type Err = UnknownInterface;

    fn from_str(text: &str) -> Result<Self, UnknownInterface> {
        Self::ALL
            .into_iter()
            .find(|interface| interface.as_str() == text)
            .ok_or_else(|| UnknownInterface(text.to_owned()))
    }
}

/// A part of a signal that costs the host more than the rest of its interface: the host reads it only for modules that
/// import its function, and for Rego policies that declare the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// `node.read-memory`.
    NodeMemory,
    /// `node.read-pressure`.
    NodePressure,
    /// `node.read-use`.
    NodeUse,
    /// `node.read-applications`.
    NodeApplications,
    /// `cpu-topology.read-sets`.
    CpuSets,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::NodeMemory, Self::NodePressure, Self::NodeUse, Self::NodeApplications, Self::CpuSets];

    /// The interface to which the part belongs.
    pub fn interface(self) -> Interface {
        match self {
            Self::NodeMemory | Self::NodePressure | Self::NodeUse | Self::NodeApplications => Interface::Node,
            Self::CpuSets => Interface::CpuTopology,
        }
    }

    /// The function's name in the contract.
    pub fn function(self) -> &'static str {
        match self {
            Self::NodeMemory => "read-memory",
            Self::NodePressure => "read-pressure",
            Self::NodeUse => "read-use",
            Self::NodeApplications => "read-applications",
            Self::CpuSets => "read-sets",
        }
    }
}

/// Targets of a policy's settings beyond the pods that are configured for it. Granted by name like an interface, but not
/// imported: it bounds the targets of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The cgroups above pods: kubepods, burstable and besteffort.
    Tiers,
    /// Pods without a configuration for the policy.
    AllPods,
}

impl Reach {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Tiers, Self::AllPods];

    /// The name as grants spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tiers => "tiers",
            Self::AllPods => "all-pods",
        }
    }

    /// The effect of granting the reach, in half a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Tiers => "may set knobs of tiers, too: of kubepods, burstable and besteffort, which hold all pods",
            Self::AllPods => "may set knobs of every pod, not only of pods that are configured for it",
        }
    }

    /// The reach that a module needs: what it declares, and [`Self::AllPods`] if it acts on pods and has no protocol by
    /// which pods could be configured for it.
    pub fn needed(imports: &BTreeSet<Interface>, declared: &BTreeSet<Self>, has_protocol: bool) -> BTreeSet<Self> {
        let is_of_pods = |import: &Interface| {
            !matches!(import, Interface::PodEvent | Interface::NodeResource | Interface::NodeKnobs)
        };
        let acts_on_pods = imports.iter().any(|import| import.is_control() && is_of_pods(import));
        let unasked = (!has_protocol && acts_on_pods).then_some(Self::AllPods);
        declared.iter().copied().chain(unasked).collect()
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing that an operator can grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// An interface that a module may import.
    Interface(Interface),
    /// Targets that the module's settings may have.
    Reach(Reach),
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(interface) => interface.fmt(f),
            Self::Reach(reach) => reach.fmt(f),
        }
    }
}

impl FromStr for Grant {
    type Err = UnknownInterface;

    fn from_str(text: &str) -> Result<Self, UnknownInterface> {
        match Reach::ALL.into_iter().find(|reach| reach.as_str() == text) {
            Some(reach) => Ok(Self::Reach(reach)),
            None => text.parse().map(Self::Interface),
        }
    }
}

/// What an operator grants one policy. [`Interface::always_granted`] interfaces need no mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    interfaces: BTreeSet<Interface>,
    reach: BTreeSet<Reach>,
}

impl Grants {
    /// Whether a module may import the interface.
    pub fn contains(&self, interface: Interface) -> bool {
        interface.always_granted() || self.interfaces.contains(&interface)
    }

    /// Whether a module's settings may have the targets of this reach.
    pub fn reaches(&self, reach: Reach) -> bool {
        self.reach.contains(&reach)
    }

    /// Grants one more interface.
    pub fn insert(&mut self, interface: Interface) {
        self.interfaces.insert(interface);
    }

    /// The interfaces that were granted by name, in the order of [`Interface::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = Interface> {
        self.interfaces.iter().copied()
    }
}

impl FromIterator<Interface> for Grants {
    fn from_iter<I: IntoIterator<Item = Interface>>(interfaces: I) -> Self {
        Self { interfaces: interfaces.into_iter().collect(), reach: BTreeSet::new() }
    }
}

impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(granted: I) -> Self {
        let mut grants = Self::default();
        for grant in granted {
            match grant {
                Grant::Interface(interface) => {
                    grants.interfaces.insert(interface);
                }
                Grant::Reach(reach) => {
                    grants.reach.insert(reach);
                }
            }
        }
        grants
    }
}

/// Number of items that a message lists.
const MAX_LISTED: usize = 20;

/// Names in back-quotes, with commas between them.
pub(crate) struct Listed<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names may come from a third party.
        for (index, item) in self.0.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}`{}`", if index == 0 { "" } else { ", " }, foreign::name(&item.to_string()))?;
        }
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The meaning of an import's or export's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExternName {
    /// The shared types, which have no functions and need no grant.
    Types,
    /// The lifecycle interface, which a policy must export.
    Lifecycle,
    /// An interface of the contract.
    Interface(Interface),
    /// An item of the contract's package in an incompatible version.
    OtherVersion(String),
    /// An item of another package.
    Foreign,
}

impl ExternName {
    /// Parses `qosm:policy/NAME@VERSION`. Versions are compatible as in Wasm linkers: the minor version must be equal
    /// while the major version is 0.
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
    #[test]
    fn very_many_very_long_names_are_cut() {
        let names: Vec<String> = (0..50).map(|number| format!("{number}\u{1b}{}", "n".repeat(90_000))).collect();
        let listed = super::Listed(&names).to_string();
        assert!(listed.len() < 4_000 && listed.ends_with(" and 30 more") && !listed.contains('\u{1b}'), "{listed}");
    }

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
            Err("`blkio` is neither an interface nor `tiers` or `all-pods`; there are `log`, `state`, `node`, `cpu-stat`, \
                 `memory-stat`, `pressure`, `numa-stat`, `resctrl-monitor`, `node-object`, `pod-object`, `cluster-config`, `cpu-topology`, \
                 `cpu-bandwidth`, `cpu-weight`, `cpu-identity`, \
                 `memory-protection`, `cpuset`, `memory-limit`, `node-knobs`, `block-io`, `page-migration`, `resctrl-allocation`, `node-resource`, \
                 `eviction`, `pod-event`, `tiers`, `all-pods`"
                .to_owned())
        );
    }

    #[test]
    fn versions_fit_within_the_minor_version() {
        for (name, expected) in [
            ("qosm:policy/cpu-stat@0.1.0", ExternName::Interface(Interface::CpuStat)),
            ("qosm:policy/cpu-stat@0.1.7", ExternName::Interface(Interface::CpuStat)),
            ("qosm:policy/types@0.1.0", ExternName::Types),
            ("qosm:policy/lifecycle@0.1.3", ExternName::Lifecycle),
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
    fn reach_is_granted_by_name_beside_interfaces() {
        let grants: Grants =
            ["cpu-weight", "tiers"].into_iter().filter_map(|name| name.parse::<Grant>().ok()).collect();
        assert!(grants.contains(Interface::CpuWeight) && !grants.contains(Interface::CpuBandwidth));
        assert_eq!(Reach::ALL.map(|reach| grants.reaches(reach)), [true, false]);
        for reach in Reach::ALL {
            assert_eq!(reach.to_string().parse(), Ok(Grant::Reach(reach)));
            assert!(reach.as_str().parse::<Interface>().is_err(), "no module imports it");
        }
    }

    #[test]
    fn who_acts_on_pods_without_a_protocol_needs_all_pods() {
        let needed = |imports: &[Interface], has_protocol| {
            Reach::needed(&imports.iter().copied().collect(), &BTreeSet::new(), has_protocol)
        };
        assert_eq!(needed(&[Interface::CpuWeight], false), [Reach::AllPods].into());
        assert_eq!(needed(&[Interface::CpuWeight], true), [].into());
        assert_eq!(needed(&[Interface::CpuStat, Interface::PodEvent], false), [].into(), "events are no settings");
    }

    #[test]
    fn log_and_state_need_no_grant() {
        let grants: Grants = [Interface::CpuStat].into_iter().collect();
        let granted: Vec<_> = Interface::ALL.into_iter().filter(|&interface| grants.contains(interface)).collect();
        assert_eq!(granted, [Interface::Log, Interface::State, Interface::CpuStat]);
    }
}
