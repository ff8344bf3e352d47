//! The agent's own configuration file: which modules run, with which grants, and what no module may do.

mod confinement;
mod nri;
mod requests;
mod resctrl;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use qosm_engine::{Grant, Grants, Interface, Limits, Reach};
use qosm_host::MigrationLimits;
use qosm_model::lease::Priority;
use qosm_model::namespace;
use qosm_model::unit::{Bytes, Micros};
use qosm_registry::trust::{Require, Trust, TrustFault, TrustKey, TrustPolicy, TrustProblem, TrustRule};
use qosm_registry::{Location, ReferenceError, RegistryError, RegistrySettings};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::confinement::{CapabilityName, ConfinementConfig, ConfinementMode};
pub use self::nri::{NoPluginIndex, NriConfig, NriMode, PluginIndex};
pub use self::requests::EvictionRails;
pub use self::resctrl::{MountPoint, NoMountPoint, ResctrlConfig};
use crate::module_reference::ModuleReference;

/// The file as a whole. Unknown fields are errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct AgentConfig {
    /// The modules to run.
    pub policies: Vec<PolicyConfig>,
    /// Bounds that hold for every module.
    pub guard_rails: GuardRails,
    /// What happens to held knobs when the agent ends.
    pub on_shutdown: OnShutdown,
    /// How the agent treats other writers.
    pub drift: DriftConfig,
    /// Limits of page migration.
    pub page_migration: PageMigrationConfig,
    /// Where resctrl is mounted, and the bandwidth that its shares refer to.
    pub resctrl: ResctrlConfig,
    /// Registries, their credentials and signature rules.
    pub registries: RegistrySettings,
    /// How one version of a policy replaces another.
    pub swaps: SwapConfig,
    /// How the agent drops privileges after its start.
    pub confinement: ConfinementConfig,
    /// Whether and where the agent is a plug-in of the container runtime.
    pub nri: NriConfig,
}

/// How one version of a policy replaces another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct SwapConfig {
    /// Length of the rollback window, in seconds: a version that fails within it is rolled back to the one before.
    pub rollback_seconds: u32,
}

impl Default for SwapConfig {
    fn default() -> Self {
        Self { rollback_seconds: 60 }
    }
}

impl SwapConfig {
    pub(crate) fn rollback_window(self) -> Micros {
        Micros(u64::from(self.rollback_seconds) * 1_000_000)
    }
}

/// Default of `alarmGapMillis`: one CFS period, after which the effect of an evaluation shows.
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
    /// For an artefact: the signatures that it must have, beside those that `registries.verification` asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<ModuleVerification>,
    /// For an artefact that is named by a tag: seconds between two lookups of the tag; `None` = it is looked up once.
    #[serde(default, deserialize_with = "within::<10, 86_400, _, _>", skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u32>,
    /// Whether the policy is active or a shadow.
    #[serde(default, skip_serializing_if = "PolicyMode::is_active")]
    pub mode: PolicyMode,
    /// For a shadow: the active policy that it is compared with; `None` = the one whose module has the same name, or
    /// the values in force if there is none. A shadow without a module of its own runs the default module of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow_of: Option<String>,
    /// Interfaces that the module may import, and how far its settings may reach (`tiers`, `all-pods`); `None` = what the default module of
    /// that name needs.
    #[serde(default)]
    pub grants: Option<Vec<String>>,
    /// Priority of its leases; the highest wins.
    #[serde(default = "PolicyConfig::default_priority")]
    pub priority: i32,
    /// The policy-level configuration, handed to the module as it is.
    #[serde(default)]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What happens to its leases when it is parked after repeated failure.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Milliseconds between evaluations; `None` = what the module asks for.
    #[serde(default, deserialize_with = "within::<100, 3_600_000, _, _>")]
    pub interval_millis: Option<u32>,
    /// Whether the triggers that the module asks for are watched.
    #[serde(default = "PolicyConfig::default_alarms", skip_serializing_if = "Clone::clone")]
    pub alarms: bool,
    /// Least milliseconds between two evaluations caused by triggers; `None` = 100.
    #[serde(default, deserialize_with = "within::<5, 60_000, _, _>", skip_serializing_if = "Option::is_none")]
    pub alarm_gap_millis: Option<u32>,
    /// Memory that an instance may use, in MiB.
    #[serde(default, deserialize_with = "within::<1, 1024, _, _>")]
    pub memory_mib: Option<u64>,
    /// Time that one call may take, in milliseconds.
    #[serde(default, deserialize_with = "within::<1, 10_000, _, _>")]
    pub evaluation_millis: Option<u64>,
}

impl PolicyConfig {
    /// The entry of a default module under its own name.
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

    /// The entry of a shadow that runs this component.
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

    /// The file or folder of this node that the module is read from; `None` for a module from a registry, for a default module, and for an
    /// invalid reference.
    pub fn module_path(&self) -> Option<PathBuf> {
        match self.reference().ok()? {
            ModuleReference::File(path) => Some(path),
            ModuleReference::Artifact(Location::Layout { path, .. }) => Some(path),
            ModuleReference::Artifact(Location::Registry(_)) | ModuleReference::Builtin(_) => None,
        }
    }

    /// Where its module comes from.
    pub(crate) fn reference(&self) -> Result<ModuleReference, ReferenceError> {
        match &self.module {
            Some(text) => ModuleReference::parse(text),
            None => Ok(ModuleReference::Builtin(self.default_module().to_owned())),
        }
    }

    /// Name of the default module that runs if the entry names no module.
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
    /// [`UnknownGrant`] names the first grant that does not exist.
    pub fn granted(&self) -> Result<Grants, UnknownGrant> {
        let Some(names) = &self.grants else {
            // A component under the name of a default module replaces that module, and gets its grants.
            let name = match self.reference() {
                Ok(ModuleReference::Builtin(name)) => name,
                Ok(ModuleReference::File(_) | ModuleReference::Artifact(_)) | Err(_) => {
                    self.default_module().to_owned()
                }
            };
            return Ok(default_grants(&name));
        };
        names
            .iter()
            .map(|name| {
                name.parse::<Grant>().map_err(|_| UnknownGrant {
                    policy: self.name.clone(),
                    grant: name.clone(),
                    known: known_grants(),
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

/// Deserializes a number, within the same range as in a PolicyModule.
fn within<'de, const MIN: u64, const MAX: u64, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Copy + Into<u64> + Deserialize<'de>,
    D: Deserializer<'de>,
{
    let number = Option::<T>::deserialize(deserializer)?;
    match number.map(Into::<u64>::into) {
        Some(number) if !(MIN..=MAX).contains(&number) => {
            Err(D::Error::custom(format!("{number} is not from {MIN} to {MAX}")))
        }
        _ => Ok(number),
    }
}

/// The signatures that a policy's artefact must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ModuleVerification {
    /// Public keys of the signers.
    pub keys: Vec<TrustKey>,
    /// How many of the keys must have signed.
    #[serde(default)]
    pub require: Require,
    /// Signed annotations that a signature must have to count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ModuleVerification {
    /// Builds the trust rules, and reads their keys.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Verification`] names all wrong fields.
    pub(crate) fn trust(&self) -> Result<Trust, RegistryError> {
        let Self { keys, require, annotations } = self.clone();
        let rule =
            TrustRule { pattern: "*".to_owned(), keys, require, annotations, docker_reference: false, unsigned: false };
        Trust::load(&TrustPolicy { rules: vec![rule] }).map_err(|error| {
            let faults: Vec<_> = error.faults.iter().map(verification_fault).collect();
            RegistryError::Verification { message: faults.join("; ") }
        })
    }
}

/// A fault by its field of `verification`, which has neither rules nor patterns.
fn verification_fault(fault: &TrustFault) -> String {
    let field = match (&fault.key, fault.field) {
        // The key's name, or its number counted from 1: in brackets it would read as an index.
        (Some(key), field) => format!("keys: key `{key}`, `{field}`"),
        (None, "require") => "atLeast".to_owned(),
        (None, field) => field.to_owned(),
    };
    let problem = match &fault.problem {
        TrustProblem::NoKeys => "there is none; list keys, or remove `verification`".to_owned(),
        TrustProblem::Nothing => {
            "0 signatures would let everything in; write at least 1, or remove `verification`".to_owned()
        }
        problem => problem.to_string(),
    };
    format!("verification.{field}: {problem}")
}

/// Whether a policy's settings are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// Settings become leases, and leases are written to the kernel.
    #[default]
    Active,
    /// The policy is evaluated on the same columns, and its settings are compared with those of an active policy. Nothing that it
    /// does reaches the kernel, the journal's records or the owners of pods.
    Shadow,
}

impl PolicyMode {
    /// Whether the policy's settings are applied.
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active)
    }

    /// Name of the mode in files, reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Shadow => "shadow",
        }
    }
}

/// What the default modules need; a policy of another name is granted nothing unless its entry says so.
fn default_grants(name: &str) -> Grants {
    let (interfaces, reach): (&[Interface], &[Reach]) = match name {
        // It holds the tier, and under the kubelet's static CPU manager containers of pods that are not configured for it.
        "be-suppress" => (
            &[
                Interface::Node,
                Interface::CpuStat,
                Interface::CpuTopology,
                Interface::NodeObject,
                Interface::PodObject,
                Interface::ClusterConfig,
                Interface::CpuBandwidth,
                Interface::CpuWeight,
                Interface::Cpuset,
            ],
            &[Reach::Tiers, Reach::AllPods],
        ),
        "cpu-burst" => (&[Interface::Node, Interface::CpuStat, Interface::CpuBandwidth], &[]),
        // Pods are batch by their class, whether or not they are configured for it.
        "cpu-identity" => (
            &[Interface::ClusterConfig, Interface::CpuWeight, Interface::CpuIdentity, Interface::NodeKnobs],
            &[Reach::Tiers, Reach::AllPods],
        ),
        // A scheduler's choice is carried out for whichever pod has it, and the others share what is left.
        "cpu-topology" => (
            &[
                Interface::CpuTopology,
                Interface::NodeObject,
                Interface::PodObject,
                Interface::Cpuset,
                Interface::CpuBandwidth,
                Interface::PodEvent,
            ],
            &[Reach::AllPods],
        ),
        // It holds the tier BestEffort, and says at the others' tiers what it does not do.
        "block-io" => (&[Interface::ClusterConfig, Interface::BlockIo], &[Reach::Tiers]),
        // No pod is configured for it; the guard rails of evictions limit which pods it may choose.
        "eviction" => (
            &[
                Interface::Node,
                Interface::CpuStat,
                Interface::MemoryStat,
                Interface::NodeObject,
                Interface::PodObject,
                Interface::ClusterConfig,
                Interface::CpuTopology,
                Interface::Eviction,
            ],
            &[Reach::AllPods],
        ),
        "llc-mba" => (&[Interface::ResctrlMonitor, Interface::ResctrlAllocation, Interface::PodEvent], &[]),
        "memory-locality" => {
            (&[Interface::NumaStat, Interface::Cpuset, Interface::PageMigration, Interface::PodEvent], &[])
        }
        // The memory protection of a pod takes effect only as far as the tiers above it grant it.
        "memory-qos" => (&[Interface::Node, Interface::MemoryProtection], &[Reach::Tiers]),
        // It holds the node's own settings, and the tier BestEffort where batch waits for memory.
        "node-memory" => (
            &[Interface::Node, Interface::ClusterConfig, Interface::MemoryProtection, Interface::NodeKnobs],
            &[Reach::Tiers],
        ),
        // It takes no configuration from pods.
        "reclaimed-resources" => (
            &[
                Interface::Node,
                Interface::CpuStat,
                Interface::MemoryStat,
                Interface::NodeObject,
                Interface::PodObject,
                Interface::ClusterConfig,
                Interface::CpuBandwidth,
                Interface::CpuWeight,
                Interface::MemoryLimit,
                Interface::NodeResource,
            ],
            &[Reach::AllPods],
        ),
        _ => (&[], &[]),
    };
    let interfaces = interfaces.iter().copied().map(Grant::Interface);
    interfaces.chain(reach.iter().copied().map(Grant::Reach)).collect()
}

fn known_grants() -> String {
    let interfaces = Interface::ALL.iter().map(ToString::to_string);
    interfaces.chain(Reach::ALL.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", ")
}

/// A grant that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("policy `{policy}`: grants: `{grant}` is not an interface of qosm; there are: {known}")]
pub struct UnknownGrant {
    policy: String,
    grant: String,
    known: String,
}

/// What happens to a parked policy's leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They stay until the policy works again.
    #[default]
    Keep,
    /// They are released; the next lease or the baseline comes back.
    Release,
}

/// What happens to all leases when the agent ends.
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

/// Bounds that hold for every module.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GuardRails {
    /// Namespaces whose pods are never changed. Settings of the tiers above them take nothing from these pods.
    #[serde(deserialize_with = "namespaces")]
    pub protected_namespaces: BTreeSet<String>,
    /// Highest CFS quota, in percent of the baseline; `None` = no bound but the module's own. At least 100: less would turn a setting that
    /// raises a quota into one that lowers it.
    #[serde(deserialize_with = "within::<100, 4_294_967_295, _, _>")]
    pub max_quota_percent: Option<u32>,
    /// Lowest CFS quota, in percent of the baseline, or of the node's CPUs if there was no quota before; `None` = no bound but the
    /// kernel's. At most 100: more would turn a setting that lowers a quota into one that raises it.
    #[serde(deserialize_with = "within::<0, 100, _, _>")]
    pub min_quota_percent: Option<u32>,
    /// Highest `memory.min` of the kubepods group, in percent of the node's memory: it bounds the protection of all below it.
    pub max_memory_min_percent: u32,
    /// Whether `memory.high` is set on kernels before Linux 5.9 too, where processes above it may never come back from reclaim.
    pub memory_high_before_linux59: bool,
    /// Bounds of evictions.
    pub evictions: EvictionRails,
    /// Names of the extended resources that may be published on the node.
    pub publishable_resources: BTreeSet<String>,
}

impl Default for GuardRails {
    fn default() -> Self {
        Self {
            protected_namespaces: BTreeSet::from(["kube-system".to_owned()]),
            max_quota_percent: None,
            min_quota_percent: None,
            max_memory_min_percent: 100,
            memory_high_before_linux59: false,
            evictions: EvictionRails::default(),
            publishable_resources: requests::publishable(),
        }
    }
}

/// Deserializes names of namespaces. An invalid name is an error that names it: a guard rail that protects nothing is worse than none.
fn namespaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let names = BTreeSet::<String>::deserialize(deserializer)?;
    match names.iter().find_map(|name| namespace::fault(name)) {
        Some(fault) => Err(D::Error::custom(fault)),
        None => Ok(names),
    }
}

/// How the agent treats other writers of its knobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct DriftConfig {
    /// Seconds for which a knob is left alone after an operator wrote it.
    pub hands_off_seconds: u32,
    /// Number of ticks within which each held knob, and each CFS quota that is not held, is read back once (held CFS quotas at each tick).
    /// If the kernel notifies of other writers, a written knob is read back at the next tick, and all knobs within 180 times as many ticks.
    pub verify_over_ticks: u32,
}

impl DriftConfig {
    /// Factor by which knobs are read back less often if the kernel notifies of writes: with the defaults and a tick a second, each in
    /// half an hour. After lost notifications everything is read at the next tick, so these reads find only what inotify does not see (a
    /// write through the mount of another cgroup namespace), and each opens and closes a file.
    const SELDOM: u64 = 180;

    /// Number of ticks within which every held knob is read back once. `detects_writes`: whether the kernel notifies of other writers.
    pub fn verify_interval_ticks(&self, detects_writes: bool) -> u64 {
        let ticks = u64::from(self.verify_over_ticks.max(1));
        if detects_writes { ticks.saturating_mul(Self::SELDOM) } else { ticks }
    }
}

impl Default for DriftConfig {
    fn default() -> Self {
        Self { hands_off_seconds: 600, verify_over_ticks: 10 }
    }
}

/// Limits of page migration between NUMA nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PageMigrationConfig {
    /// Maximum amount of memory that is moved per second, in MiB.
    pub mib_per_second: u32,
    /// Maximum CPU time that is spent on moving, in percent of one CPU, 1 to 100.
    pub cpu_percent: u32,
    /// Memory that stays free on the target NUMA node, above the kernel's own watermark, in MiB.
    pub reserve_mib: u32,
    /// Migration waits while some tasks stall on memory for more than this share of time, in percent (PSI, 10 s average).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_verification_name_its_fields() {
        // Known from RFC 8410, section 10.1.
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----";
        let key = |name: &str, pem: &str| TrustKey { name: name.to_owned(), pem: Some(pem.to_owned()), path: None };
        let fault = |keys: &[TrustKey], require| {
            let verification = ModuleVerification { keys: keys.to_vec(), require, ..ModuleVerification::default() };
            verification.trust().unwrap_err().to_string()
        };
        for (error, expected) in [
            (fault(&[], Require::Any), "verification.keys: there is none; list keys, or remove `verification`"),
            (
                fault(&[key("ci", "ssh-ed25519 AAAA")], Require::Any),
                "verification.keys: key `ci`, `pem`: this is no PEM: a public key begins with `-----BEGIN PUBLIC KEY-----`, \
                 as `cosign generate-key-pair` writes it to `cosign.pub`",
            ),
            (
                fault(&[key("", pem)], Require::Any),
                "verification.keys: key `1`, `name`: each key needs a name, for reports of signatures",
            ),
            (
                fault(&[key("ci", pem)], Require::AtLeast(0)),
                "verification.atLeast: 0 signatures would let everything in; write at least 1, or remove `verification`",
            ),
            (
                fault(&[key("ci", pem)], Require::AtLeast(2)),
                "verification.atLeast: 2 signatures by different keys are wanted, and 1 are listed; add keys, or lower \
                 `atLeast`",
            ),
        ] {
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_number_out_of_its_range_is_an_error() {
        for (field, good, bad, range) in [
            ("pollSeconds", 10, 0, "10 to 86400"),
            ("intervalMillis", 100, 5, "100 to 3600000"),
            ("alarmGapMillis", 5, 0, "5 to 60000"),
            ("memoryMib", 1024, 1025, "1 to 1024"),
            ("evaluationMillis", 10_000, 0, "1 to 10000"),
        ] {
            let read = |number: u32| {
                let entry = serde_json::json!({"name": "cpu-burst", field: number});
                serde_json::from_value::<PolicyConfig>(entry).map(drop).map_err(|error| error.to_string())
            };
            assert_eq!(read(good), Ok(()), "{field}");
            assert_eq!(read(bad), Err(format!("{bad} is not from {range}")), "{field}");
        }
    }

    #[test]
    fn held_knobs_are_read_back_seldom_where_writes_are_reported_and_as_often_as_configured_elsewhere() {
        for (verify_over_ticks, polled, reported) in [(10, 10, 1800), (1, 1, 180), (0, 1, 180)] {
            let drift = DriftConfig { verify_over_ticks, ..DriftConfig::default() };
            assert_eq!(drift.verify_interval_ticks(false), polled, "{verify_over_ticks}");
            assert_eq!(drift.verify_interval_ticks(true), reported, "{verify_over_ticks}");
        }
    }
}
