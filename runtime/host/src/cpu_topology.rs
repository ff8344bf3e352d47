//! The machine's CPUs: cores, sockets, NUMA nodes; the CPUs that the kubelet's CPU manager has assigned; and the CPUs that cgroups may use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use qosm_model::cpu_topology::{Cpu, CpuManager};
use qosm_model::knob::Target;
use qosm_model::pod::{Container, Pod};
use serde_json::Value;

use crate::backend::{Area, Backend as _};
use crate::error::{self, HostError};
use crate::targets::CgroupFile;
use crate::{Host, parse};

/// Name of the state file in the kubelet's folder.
const STATE_FILE: &str = "cpu_manager_state";

/// Cached CPUs, and the texts that they were parsed from: CPUs rarely change.
#[derive(Default)]
pub(crate) struct KnownCpus {
    /// Content of `present` and `online`.
    of: Option<(Vec<u8>, Vec<u8>)>,
    places: BTreeMap<u32, Place>,
    cpus: Arc<[Cpu]>,
    /// Content of the state file, and the parsed state.
    state: Option<(Vec<u8>, Arc<CpuManagerState>)>,
}

/// The position of a CPU. A CPU that goes offline keeps its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    socket: u32,
    die: u32,
    /// `core_id`: unique within its die only.
    core: u32,
    numa_node: u32,
}

/// The container to which the kubelet assigned CPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuOwner {
    /// A container by the runtime's ID, as kubelets before 1.18 wrote.
    Runtime(String),
    /// A container by its name and its pod's UID.
    Named {
        /// The pod's UID.
        pod_uid: String,
        /// The container's name.
        container: String,
    },
}

/// The state of the kubelet's CPU manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuManagerState {
    /// Its policy.
    pub manager: CpuManager,
    /// CPUs assigned exclusively to one container, sorted by owner.
    pub exclusive: Vec<(CpuOwner, Vec<u32>)>,
}

impl CpuManagerState {
    /// Parses the file's text, in either format.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let state: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let policy = state.get("policyName").and_then(Value::as_str).ok_or("`policyName` is missing")?;
        let manager = match policy {
            "none" => CpuManager::None,
            "static" => CpuManager::Static,
            _ => CpuManager::Unknown,
        };
        let mut exclusive = Vec::new();
        let mut add = |owner: CpuOwner, cpus: &Value, place: &str| {
            let list = cpus.as_str().and_then(|text| parse::numa::list(text.as_bytes()));
            let list = list.ok_or_else(|| format!("`entries.{place}` is no list of CPUs"))?;
            exclusive.push((owner, list));
            Ok::<_, String>(())
        };
        let entries = match state.get("entries") {
            None | Some(Value::Null) => return Ok(Self { manager, exclusive }),
            Some(entries) => entries.as_object().ok_or("`entries` is no object")?,
        };
        for (key, entry) in entries {
            match entry.as_object() {
                Some(containers) => {
                    for (container, cpus) in containers {
                        let owner = CpuOwner::Named { pod_uid: key.clone(), container: container.clone() };
                        add(owner, cpus, &format!("{key}.{container}"))?;
                    }
                }
                None => add(CpuOwner::Runtime(key.clone()), entry, key)?,
            }
        }
        exclusive.retain(|(_, cpus)| !cpus.is_empty());
        exclusive.sort();
        Ok(Self { manager, exclusive })
    }

    /// Whether the manager assigned CPUs to this container exclusively.
    pub fn names(&self, pod: &Pod, container: &Container) -> bool {
        self.exclusive.iter().any(|(owner, _)| match owner {
            CpuOwner::Named { pod_uid, container: name } => *pod_uid == pod.uid && *name == container.name,
            CpuOwner::Runtime(id) => container.cgroup.runtime_id() == Some(id),
        })
    }
}

impl Host {
    /// All present CPUs, sorted by id; read again when CPUs come or go.
    pub fn cpu_list(&mut self) -> Arc<[Cpu]> {
        let of = (self.cpu_file("present"), self.cpu_file("online"));
        if self.known_cpus.of.as_ref() != Some(&of) {
            let mut places = std::mem::take(&mut self.known_cpus.places);
            self.known_cpus.cpus = self.read_cpus(&mut places).into();
            self.known_cpus.places = places;
            self.known_cpus.of = Some(of);
        }
        Arc::clone(&self.known_cpus.cpus)
    }

    /// The CPUs as [`Host::cpu_list`] returns them, without caching.
    pub fn cpus_now(&self) -> Vec<Cpu> {
        self.read_cpus(&mut self.known_cpus.places.clone())
    }

    fn cpu_file(&self, name: &str) -> Vec<u8> {
        self.backend.read_once(Area::Sys, &format!("devices/system/cpu/{name}")).unwrap_or_default()
    }

    fn read_cpus(&self, places: &mut BTreeMap<u32, Place>) -> Vec<Cpu> {
        let online = self.online_cpus();
        let present = parse::numa::list(&self.cpu_file("present")).unwrap_or_default();
        let present: BTreeSet<u32> = present.into_iter().chain(online.iter().copied()).collect();
        let topology = self.numa_topology();
        for &id in &online {
            let number = |name: &str| {
                let number = parse::number(&self.cpu_file(&format!("cpu{id}/topology/{name}")))?;
                u32::try_from(number).ok()
            };
            // On a kernel that reports no cores, each CPU is its own core.
            let place = Place {
                socket: number("physical_package_id").unwrap_or(0),
                die: number("die_id").unwrap_or(0),
                core: number("core_id").unwrap_or(id),
                numa_node: topology.of_cpus(&[id]).first().map_or(0, |node| node.0),
            };
            places.insert(id, place);
        }
        let core = |place: &Place| (place.socket, place.die, place.core);
        let cores: BTreeSet<_> = present.iter().filter_map(|id| places.get(id)).map(core).collect();
        let rank = |place: &Place| cores.range(..core(place)).count();
        let mut unknown = cores.len();
        let cpu = |id: &u32| {
            let place = places.get(id);
            let number = place.map_or_else(
                || {
                    unknown += 1;
                    unknown - 1
                },
                rank,
            );
            Cpu {
                id: *id,
                core: u32::try_from(number).unwrap_or(u32::MAX),
                socket: place.map_or(0, |place| place.socket),
                numa_node: place.map_or(0, |place| place.numa_node),
                online: online.binary_search(id).is_ok(),
            }
        };
        present.iter().map(cpu).collect()
    }

    /// The state of the kubelet's CPU manager; `None` without a kubelet folder or without the file.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`], and [`HostError::Parse`] for a file that is not what the kubelet writes.
    pub fn cpu_manager_state(&mut self) -> Result<Option<Arc<CpuManagerState>>, HostError> {
        let text = match self.backend.read_once(Area::Kubelet, STATE_FILE) {
            Ok(text) => text,
            Err(source) if error::is_absent(&source) || source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(HostError::Read { path: STATE_FILE.to_owned(), source }),
        };
        if let Some((known, state)) = &self.known_cpus.state
            && *known == text
        {
            return Ok(Some(Arc::clone(state)));
        }
        let state = CpuManagerState::parse(&text).map_err(|why| HostError::Parse {
            path: STATE_FILE.to_owned(),
            expected: "the state of the kubelet's CPU manager",
            text: why,
        })?;
        let state = Arc::new(state);
        self.known_cpus.state = Some((text, Arc::clone(&state)));
        Ok(Some(state))
    }

    /// The text of the state file, for recordings; `None` if it cannot be read.
    pub fn cpu_manager_text(&self) -> Option<Vec<u8>> {
        self.backend.read_once(Area::Kubelet, STATE_FILE).ok()
    }

    /// The CPUs that a cgroup's processes may run on, whatever was requested. `None` without the cpuset controller.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`], [`HostError::NotAttached`], [`HostError::Read`], [`HostError::Parse`].
    pub fn cpus_of_group(&mut self, target: Target) -> Result<Option<Vec<u32>>, HostError> {
        self.cpuset(target, CgroupFile::EffectiveCpus, CgroupFile::Cpuset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pod_uid: &str, container: &str) -> CpuOwner {
        CpuOwner::Named { pod_uid: pod_uid.to_owned(), container: container.to_owned() }
    }

    #[test]
    fn both_formats_of_the_kubelets_state_are_read() {
        for (text, manager, exclusive) in [
            (r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#, CpuManager::None, vec![]),
            (
                r#"{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"u-1":{"app":"2-3","log":""},"u-0":{"a":"9"}},"checksum":1}"#,
                CpuManager::Static,
                vec![(named("u-0", "a"), vec![9]), (named("u-1", "app"), vec![2, 3])],
            ),
            (
                r#"{"policyName":"static","defaultCpuSet":"0","entries":{"8f3a":"1,3"}}"#,
                CpuManager::Static,
                vec![(CpuOwner::Runtime("8f3a".to_owned()), vec![1, 3])],
            ),
            (r#"{"policyName":"static","entries":null}"#, CpuManager::Static, vec![]),
            (r#"{"policyName":"next","entries":{}}"#, CpuManager::Unknown, vec![]),
        ] {
            assert_eq!(CpuManagerState::parse(text.as_bytes()), Ok(CpuManagerState { manager, exclusive }), "{text}");
        }
    }

    #[test]
    fn a_state_that_no_kubelet_writes_is_refused_with_the_place() {
        for (text, part) in [
            ("", "EOF"),
            ("{}", "policyName"),
            (r#"{"policyName":"static","entries":[]}"#, "`entries`"),
            (r#"{"policyName":"static","entries":{"u-1":{"app":"2-"}}}"#, "`entries.u-1.app`"),
            (r#"{"policyName":"static","entries":{"u-1":{"app":7}}}"#, "`entries.u-1.app`"),
            (r#"{"policyName":"static","entries":{"8f3a":"x"}}"#, "`entries.8f3a`"),
        ] {
            let error = CpuManagerState::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
