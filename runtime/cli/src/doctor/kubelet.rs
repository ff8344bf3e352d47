//! `qosm doctor`: the kubelet's configuration, and the assignments of its managers.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use qosm_cluster::kubelet::{KubeletConfiguration, MemoryManagerState};
use qosm_host::{CpuManagerState, CpuOwner, Driver, HostFacts};
use qosm_model::cpu_topology::CpuManager;
use qosm_model::numa::list_text;
use serde_json::{Value, json};

/// The kubelet's usual folder.
const FOLDER: &str = "/var/lib/kubelet";
/// Maximum size of the kubelet's files.
const MAX_BYTES: u64 = 4 << 20;

/// The kubelet's configuration and state with their source, or why they could not be read.
pub(super) struct Kubelet {
    source: String,
    configuration: Result<KubeletConfiguration, String>,
    /// Whether no configuration was named, and none exists at the usual place.
    is_absent: bool,
    /// `None` if the file does not exist.
    cpu_manager: Option<Result<CpuManagerState, String>>,
    memory_manager: Option<Result<MemoryManagerState, String>>,
}

/// Reads the state files in the kubelet's folder, and the configuration from `named` or from the usual place.
///
/// # Errors
///
/// A configuration that was named cannot be used. For one at the usual place, the table shows the reason instead.
pub(super) fn read(folder: Option<&Path>, named: Option<&Path>) -> anyhow::Result<Kubelet> {
    let folder = folder.unwrap_or(Path::new(FOLDER));
    let mut is_absent = false;
    let (source, configuration) = match named {
        Some(path) => {
            let text = if path == Path::new("-") { standard_input() } else { text(path) };
            let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
            let parsed = text
                .map_err(anyhow::Error::from)
                .and_then(|text| Ok(KubeletConfiguration::parse(&text)?))
                .with_context(|| format!("the kubelet's configuration in {name} cannot be used"))?;
            (name, Ok(parsed))
        }
        None => {
            let path = folder.join("config.yaml");
            let text = text(&path);
            is_absent = text.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            let parsed = text
                .map_err(|error| error.to_string())
                .and_then(|text| KubeletConfiguration::parse(&text).map_err(|error| error.to_string()));
            (path.display().to_string(), parsed)
        }
    };
    Ok(Kubelet {
        source,
        configuration,
        is_absent,
        cpu_manager: state(folder.join("cpu_manager_state"), |text| CpuManagerState::parse(text.as_bytes())),
        memory_manager: state(folder.join("memory_manager_state"), MemoryManagerState::parse),
    })
}

fn text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn standard_input() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn state<T, E: std::fmt::Display>(path: PathBuf, parse: impl Fn(&str) -> Result<T, E>) -> Option<Result<T, String>> {
    match text(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(format!("{}: {error}", path.display()))),
        Ok(text) => Some(parse(&text).map_err(|error| format!("{}: {error}", path.display()))),
    }
}

/// A contradiction between the kubelet's configuration and the cgroup directories; the directories count.
fn disagreement(configuration: &KubeletConfiguration, facts: &HostFacts) -> Option<String> {
    let driver = match configuration.cgroup_driver.as_deref()? {
        "systemd" => Driver::Systemd,
        "cgroupfs" => Driver::Cgroupfs,
        _ => return None,
    };
    (facts.has_kubepods && driver != facts.driver).then(|| {
        format!(
            "the configuration says {}, the directories say {}: the runtime decides since Kubernetes 1.31, or the directories are of an \
             earlier configuration",
            driver.as_str(),
            facts.driver.as_str()
        )
    })
}

/// The rows of the table.
pub(super) fn rows(kubelet: &Kubelet, facts: &HostFacts) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    match &kubelet.configuration {
        Err(_) if kubelet.is_absent && !facts.has_kubepods => {
            row("kubelet", format!("none seen: there is neither kubepods nor {}", kubelet.source));
        }
        Err(why) => row(
            "kubelet",
            format!(
                "its configuration is not known ({}: {why}): driver and kubepods are those of the cgroups. \
                 `kubectl get --raw /api/v1/nodes/NODE/proxy/configz | qosm doctor --kubelet-config -` reads it",
                kubelet.source
            ),
        ),
        Ok(configuration) => {
            let default = |value: &Option<String>| value.clone().unwrap_or_else(|| "not said".to_owned());
            let root = configuration.cgroup_root.as_deref().filter(|root| !root.is_empty()).unwrap_or("/");
            row(
                "kubelet",
                format!(
                    "cgroupDriver {}, cgroupRoot {root} ({})",
                    default(&configuration.cgroup_driver),
                    kubelet.source
                ),
            );
            if let Some(disagreement) = disagreement(configuration, facts) {
                row("  but", disagreement);
            }
            row("  reserves", reserved(configuration));
            row("  MemoryQoS", memory_qos(configuration));
            row(
                "  managers",
                format!(
                    "CPU {}, memory {}, topology {}",
                    default(&configuration.cpu_manager_policy),
                    default(&configuration.memory_manager_policy),
                    default(&configuration.topology_manager_policy)
                ),
            );
        }
    }
    match &kubelet.cpu_manager {
        Some(Ok(state)) if state.manager == CpuManager::Static => {
            let cpus: BTreeSet<u32> = state.exclusive.iter().flat_map(|(_, cpus)| cpus.iter().copied()).collect();
            let cpus = list_text(cpus);
            let whose = match state.exclusive.len() {
                0 => "no container has CPUs of its own".to_owned(),
                1 => format!("{cpus} are one container's alone"),
                count => format!("{cpus} are given to {count} containers alone"),
            };
            row("  CPUs", whose);
        }
        Some(Err(why)) => row("  CPUs", format!("their assignment to containers is not known: {why}")),
        Some(Ok(_)) | None => {}
    }
    match &kubelet.memory_manager {
        Some(Ok(state)) if state.policy == "Static" => {
            row("  memory", format!("containers that are bound to NUMA nodes: {}", state.pinned));
        }
        Some(Err(why)) => row("  memory", format!("its assignment to containers is not known: {why}")),
        Some(Ok(_)) | None => {}
    }
    rows
}

fn reserved(configuration: &KubeletConfiguration) -> String {
    let amounts = |of: &std::collections::BTreeMap<String, Value>| {
        let one = |(name, amount): (&String, &Value)| {
            format!("{name} {}", amount.as_str().map_or_else(|| amount.to_string(), str::to_owned))
        };
        of.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let parts = [
        ("for the system: ", amounts(&configuration.system_reserved)),
        ("for the kubelet: ", amounts(&configuration.kube_reserved)),
        ("CPUs ", configuration.reserved_system_cpus.clone().unwrap_or_default()),
    ];
    let said: Vec<_> =
        parts.into_iter().filter(|(_, what)| !what.is_empty()).map(|(name, what)| format!("{name}{what}")).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join("; ") }
}

/// The state of MemoryQoS, by which the kubelet also writes `memory.min`, `memory.low` and `memory.high`.
fn memory_qos(configuration: &KubeletConfiguration) -> String {
    let gate = match configuration.memory_qos() {
        Some(true) => "on",
        Some(false) => return "off".to_owned(),
        None => "as by default: off up to Kubernetes 1.36, on from 1.37",
    };
    let writes = match configuration.memory_reservation_policy.as_deref() {
        Some("TieredReservation") => "; it writes memory.min of Guaranteed and memory.low of Burstable pods",
        _ => "",
    };
    let factor = configuration.memory_throttling_factor;
    let high = factor.map_or_else(String::new, |factor| format!("; memory.high by the factor {factor}"));
    format!("{gate}{writes}{high}")
}

/// The JSON document; unknown values are `null`.
pub(super) fn document(kubelet: &Kubelet, facts: &HostFacts) -> Value {
    let configuration = kubelet.configuration.as_ref().ok();
    let cpu = kubelet.cpu_manager.as_ref().and_then(|state| state.as_ref().ok());
    let memory = kubelet.memory_manager.as_ref().and_then(|state| state.as_ref().ok());
    json!({
        "source": kubelet.source,
        "error": kubelet.configuration.as_ref().err(),
        "cgroupDriver": configuration.and_then(|of| of.cgroup_driver.clone()),
        "cgroupRoot": configuration.and_then(|of| of.cgroup_root.clone()),
        "disagreement": configuration.and_then(|of| disagreement(of, facts)),
        "systemReserved": configuration.map(|of| &of.system_reserved),
        "kubeReserved": configuration.map(|of| &of.kube_reserved),
        "reservedSystemCPUs": configuration.and_then(|of| of.reserved_system_cpus.clone()),
        "cpuManagerPolicy": configuration.and_then(|of| of.cpu_manager_policy.clone()),
        "memoryManagerPolicy": configuration.and_then(|of| of.memory_manager_policy.clone()),
        "topologyManagerPolicy": configuration.and_then(|of| of.topology_manager_policy.clone()),
        "memoryQos": configuration.and_then(KubeletConfiguration::memory_qos),
        "memoryThrottlingFactor": configuration.and_then(|of| of.memory_throttling_factor),
        "memoryReservationPolicy": configuration.and_then(|of| of.memory_reservation_policy.clone()),
        "cpuManager": cpu.map(|state| json!({
            "policy": state.manager.as_str(),
            "exclusive": state.exclusive.iter().map(|(owner, cpus)| exclusive(owner, cpus)).collect::<Vec<_>>(),
        })),
        "memoryManager": memory.map(|state| json!({"policy": state.policy, "pinned": state.pinned})),
    })
}

fn exclusive(owner: &CpuOwner, cpus: &[u32]) -> Value {
    let cpus = list_text(cpus.iter().copied());
    match owner {
        CpuOwner::Runtime(id) => json!({"containerId": id, "cpus": cpus}),
        CpuOwner::Named { pod_uid, container } => json!({"podUid": pod_uid, "container": container, "cpus": cpus}),
    }
}
