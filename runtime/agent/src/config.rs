//! The agent's own configuration file: which modules run, with which grants, and what no module may do.

mod resctrl;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qosm_engine::{Grants, Interface, Limits};
use qosm_host::MigrationLimits;
use qosm_model::lease::Priority;
use qosm_model::unit::{Bytes, Micros};
use qosm_registry::trust::{Require, Trust, TrustKey, TrustPolicy, TrustRule};
use qosm_registry::{ReferenceError, RegistryError, RegistrySettings, trust_of};
use serde::{Deserialize, Serialize};

pub use self::resctrl::{MountPoint, NoMountPoint, ResctrlConfig};
use crate::module_reference::ModuleReference;

/// The file as a whole. Unknown fields are errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct AgentConfig {
    /// The modules to run.
    pub policies: Vec<PolicyConfig>,
    /// What no module may do.
    pub guard_rails: GuardRails,
    /// What becomes of held knobs when the agent ends.
    pub on_shutdown: OnShutdown,
    /// How the agent treats other writers.
    pub drift: DriftConfig,
    /// How much of the machine moving pages may take.
    pub page_migration: PageMigrationConfig,
    /// Where resctrl is, and what its shares are shares of.
    pub resctrl: ResctrlConfig,
    /// Where artefacts are had, and whom to believe.
    pub registries: RegistrySettings,
    /// How one version of a policy takes the place of another.
    pub swaps: SwapConfig,
}

/// How one version of a policy takes the place of another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct SwapConfig {
    /// A version that fails within so many seconds gives way to the one before.
    pub probation_seconds: u32,
}

impl Default for SwapConfig {
    fn default() -> Self {
        Self { probation_seconds: 60 }
    }
}

impl SwapConfig {
    pub(crate) fn probation(self) -> Micros {
        Micros(u64::from(self.probation_seconds) * 1_000_000)
    }
}

/// One CFS period: what was done about an alarm shows after so long.
const ALARM_GAP_MILLIS: u32 = 100;

/// One module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicyConfig {
    /// Name of the policy; leases, metrics and explanations carry it.
    pub name: String,
    /// The component: a path, `file:///PATH`, `builtin:NAME` for a default module, `oci://REGISTRY/REPOSITORY` with `:TAG` or
    /// `@sha256:DIGEST`, `oci-layout:PATH[:TAG]`; `None` = the default module of that name.
    #[serde(default)]
    pub module: Option<String>,
    /// For an artefact: who must have signed it, beside what `registries.verification` asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<ModuleVerification>,
    /// For an artefact that is named by a tag: seconds between two looks at what the tag stands for; `None` = it is looked up once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u32>,
    /// Whether its settings count.
    #[serde(default, skip_serializing_if = "PolicyMode::is_active")]
    pub mode: PolicyMode,
    /// For a shadow: the active policy that it is compared with; `None` = the one whose module gives itself the same name, or
    /// whatever is in force if there is none. A shadow without a module of its own runs the default module of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow_of: Option<String>,
    /// Interfaces that it may import; `None` = those that the default module of that name needs.
    #[serde(default)]
    pub grants: Option<Vec<String>>,
    /// Weight of its leases; the higher wins.
    #[serde(default = "PolicyConfig::default_priority")]
    pub priority: i32,
    /// The policy-level configuration, handed to the module as it is.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What becomes of its leases when it is parked after repeated failure.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Milliseconds between evaluations; `None` = what the module asks for.
    #[serde(default)]
    pub interval_millis: Option<u32>,
    /// Whether the triggers that the module asks for are watched.
    #[serde(default = "PolicyConfig::default_alarms", skip_serializing_if = "Clone::clone")]
    pub alarms: bool,
    /// Least milliseconds between two evaluations that triggers bring about; `None` = 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm_gap_millis: Option<u32>,
    /// Memory that an instance may use, in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Time that one call may take, in milliseconds.
    #[serde(default)]
    pub evaluation_millis: Option<u64>,
}

impl PolicyConfig {
    /// A default module under its own name.
    pub fn builtin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            module: None,
            verification: None,
            poll_seconds: None,
            mode: PolicyMode::default(),
            shadow_of: None,
            grants: None,
            priority: Self::default_priority(),
            config: serde_json::Map::new(),
            on_failure: OnFailure::default(),
            interval_millis: None,
            alarms: Self::default_alarms(),
            alarm_gap_millis: None,
            memory_mib: None,
            evaluation_millis: None,
        }
    }

    /// A component that is tried out beside the policies that count.
    pub fn shadow(name: &str, module: &str) -> Self {
        Self { module: Some(module.to_owned()), mode: PolicyMode::Shadow, ..Self::builtin(name) }
    }

    fn default_alarms() -> bool {
        true
    }

    pub(crate) fn alarm_gap(&self) -> Micros {
        Micros(u64::from(self.alarm_gap_millis.unwrap_or(ALARM_GAP_MILLIS)) * 1000)
    }

    fn default_priority() -> i32 {
        100
    }

    /// Where its module comes from.
    pub(crate) fn reference(&self) -> Result<ModuleReference, ReferenceError> {
        match &self.module {
            Some(text) => ModuleReference::parse(text),
            None => Ok(ModuleReference::Builtin(self.default_module().to_owned())),
        }
    }

    /// The default module that stands in where the entry names none.
    fn default_module(&self) -> &str {
        self.shadow_of.as_deref().filter(|_| !self.mode.is_active()).unwrap_or(&self.name)
    }

    pub(crate) fn lease_priority(&self) -> Priority {
        Priority(self.priority)
    }

    /// The interfaces to link.
    ///
    /// # Errors
    ///
    /// [`UnknownGrant`] names the first that does not exist.
    pub fn granted(&self) -> Result<Grants, UnknownGrant> {
        let Some(names) = &self.grants else {
            // Another component under a default module's name stands in for it.
            let name = match self.reference() {
                Ok(ModuleReference::Builtin(name)) => name,
                Ok(ModuleReference::File(_) | ModuleReference::Artifact(_)) | Err(_) => {
                    self.default_module().to_owned()
                }
            };
            return Ok(default_grants(&name).into_iter().collect());
        };
        names
            .iter()
            .map(|name| {
                name.parse().map_err(|_| UnknownGrant {
                    policy: self.name.clone(),
                    grant: name.clone(),
                    known: Interface::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                })
            })
            .collect()
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if let Some(mib) = self.memory_mib {
            limits.memory = Bytes(mib.saturating_mul(1 << 20));
        }
        if let Some(millis) = self.evaluation_millis {
            limits.evaluation = Duration::from_millis(millis);
        }
        limits
    }
}

/// Who must have signed one policy's artefact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ModuleVerification {
    /// The keys.
    pub keys: Vec<TrustKey>,
    /// How many of them.
    #[serde(default)]
    pub require: Require,
    /// What a signature must say to count, among its signed annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ModuleVerification {
    /// The rules that it comes to, with their keys read.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Settings`] names the key.
    pub(crate) fn trust(&self) -> Result<Trust, RegistryError> {
        let Self { keys, require, annotations } = self.clone();
        let rule =
            TrustRule { pattern: "*".to_owned(), keys, require, annotations, docker_reference: false, unsigned: false };
        trust_of(&TrustPolicy { rules: vec![rule] })
    }
}

/// Whether a policy's settings count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// They become leases, and leases are written.
    #[default]
    Active,
    /// It is evaluated on the same columns, and what it asks for is compared with what an active policy asks for; nothing that it
    /// does reaches the kernel, the journal's records or the owners of pods.
    Shadow,
}

impl PolicyMode {
    /// Whether they do.
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active)
    }

    /// The word for it in files, reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Shadow => "shadow",
        }
    }
}

/// What the default modules import; a policy of another name is granted nothing unless its entry says so.
fn default_grants(name: &str) -> BTreeSet<Interface> {
    match name {
        "cpu-burst" => [Interface::Node, Interface::CpuStat, Interface::CpuBandwidth].into(),
        "llc-mba" => [Interface::ResctrlMonitor, Interface::ResctrlAllocation, Interface::PodEvent].into(),
        "memory-locality" => {
            [Interface::NumaStat, Interface::Cpuset, Interface::PageMigration, Interface::PodEvent].into()
        }
        "memory-qos" => [Interface::Node, Interface::MemoryProtection].into(),
        _ => BTreeSet::new(),
    }
}

/// A grant that is no interface.
#[derive(Debug, thiserror::Error)]
#[error("policy `{policy}`: grants: `{grant}` is not an interface of qosm; there are: {known}")]
pub struct UnknownGrant {
    policy: String,
    grant: String,
    known: String,
}

/// What becomes of a parked policy's leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They stay until the policy works again.
    #[default]
    Hold,
    /// They are released; what lies beneath comes back.
    Release,
}

/// What becomes of all leases when the agent ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnShutdown {
    /// Every knob gets its baseline back.
    #[default]
    Restore,
    /// The values stay; the next start takes them over, or `qosm restore` undoes them.
    Keep,
    /// In Kubernetes: kept while the DaemonSet that the agent belongs to wants it on this node, so that an update does not
    /// unsettle pods, and restored when it is deleted or no longer selects the node. Elsewhere: restored.
    Auto,
}

/// Bounds that hold whatever a module says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GuardRails {
    /// Namespaces whose pods are never touched.
    pub protected_namespaces: BTreeSet<String>,
    /// Highest CFS quota, in percent of the baseline; `None` = no bound but the module's own.
    pub max_quota_percent: Option<u32>,
    /// Highest `memory.min` of the kubepods group, in percent of the node's memory: it bounds the protection of all below it.
    pub max_memory_min_percent: u32,
}

impl Default for GuardRails {
    fn default() -> Self {
        Self { protected_namespaces: BTreeSet::new(), max_quota_percent: None, max_memory_min_percent: 100 }
    }
}

/// How the agent treats other writers of its knobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct DriftConfig {
    /// How long a knob is left alone after a person wrote it.
    pub hands_off_seconds: u32,
    /// Held knobs are read back over so many ticks (held CFS quotas at each tick).
    pub verify_over_ticks: u32,
}

impl Default for DriftConfig {
    fn default() -> Self {
        Self { hands_off_seconds: 600, verify_over_ticks: 10 }
    }
}

/// How much of the machine moving pages between NUMA nodes may take.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PageMigrationConfig {
    /// At most so much is moved in a second, in MiB.
    pub mib_per_second: u32,
    /// At most so much of one CPU is spent on it, in percent, 1 to 100.
    pub cpu_percent: u32,
    /// So much stays free on the target, above the kernel's own watermark, in MiB.
    pub reserve_mib: u32,
    /// It waits while some tasks are short of memory for more than this share of time, in percent (PSI, 10 s average).
    pub pressure_percent: u32,
}

impl Default for PageMigrationConfig {
    fn default() -> Self {
        Self { mib_per_second: 256, cpu_percent: 10, reserve_mib: 64, pressure_percent: 20 }
    }
}

impl PageMigrationConfig {
    pub(crate) fn limits(&self) -> MigrationLimits {
        MigrationLimits {
            bytes_per_second: Bytes(u64::from(self.mib_per_second) << 20),
            cpu_percent: self.cpu_percent,
            reserve: Bytes(u64::from(self.reserve_mib) << 20),
            pressure_percent: self.pressure_percent,
        }
    }
}
