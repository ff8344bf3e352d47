//! The machine's CPUs in case files.

use serde::Deserialize;

use crate::CpuManager;

/// The machine's CPUs in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: two cores with two threads each, one of them given away
///     pods: [{name: default/db, kubeQos: Guaranteed, containers: [{name: app}]}]
///     ticks:
///       - cpuTopology:
///           cpus: [{id: 0}, {id: 1}, {id: 2, core: 0}, {id: 3, core: 1}]
///           manager: static
///           exclusive: [{container: default/db/app, cpus: [1, 3]}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].cpu_topology.as_ref().map(|topology| topology.cpus.len()), Some(4));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CpuTopologyRow {
    /// All CPUs that are present.
    pub cpus: Vec<CpuPlaceRow>,
    /// `none`, `static` or `unknown` (the default).
    pub manager: CpuManagerWord,
    /// CPUs that no pod may use.
    pub reserved: Vec<u32>,
    /// CPUs that are assigned to containers exclusively.
    pub exclusive: Vec<ExclusiveRow>,
}

/// The policy of the kubelet's CPU manager.
///
/// ```
/// use qosm_sdk::testing::{Case, CpuManagerWord};
///
/// let case = Case::parse(
///     "
///     about: it leaves CPUs alone
///     ticks:
///       - cpuTopology: {manager: none}
///     ",
/// )?;
/// let Some(topology) = &case.ticks[0].cpu_topology else { return Ok(()) };
/// assert!(matches!(topology.manager, CpuManagerWord::None));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CpuManagerWord {
    /// No exclusive CPUs.
    None,
    /// The CPU manager assigns CPUs to containers exclusively.
    Static,
    /// The policy is not known.
    #[default]
    Unknown,
}

impl From<CpuManagerWord> for CpuManager {
    fn from(word: CpuManagerWord) -> Self {
        match word {
            CpuManagerWord::None => Self::None,
            CpuManagerWord::Static => Self::Static,
            CpuManagerWord::Unknown => Self::Unknown,
        }
    }
}

/// A logical CPU.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: one CPU on the second socket
///     ticks:
///       - cpuTopology: {cpus: [{id: 5, socket: 1, numaNode: 1, online: false}]}
///     ",
/// )?;
/// let Some(topology) = &case.ticks[0].cpu_topology else { return Ok(()) };
/// assert_eq!((topology.cpus[0].core, topology.cpus[0].online), (None, Some(false)));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuPlaceRow {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Number of its core; by default the CPU's own number.
    pub core: Option<u32>,
    /// Number of its socket; 0 by default.
    #[serde(default)]
    pub socket: u32,
    /// Number of its NUMA node; 0 by default.
    #[serde(default)]
    pub numa_node: u32,
    /// Whether the CPU is online; the default is yes.
    pub online: Option<bool>,
}

/// CPUs that are assigned to one container exclusively.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: the kubelet's state speaks of a container that is gone
///     ticks:
///       - cpuTopology: {exclusive: [{cpus: [1, 3]}]}
///     ",
/// )?;
/// let Some(topology) = &case.ticks[0].cpu_topology else { return Ok(()) };
/// assert_eq!(topology.exclusive[0].container, None);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExclusiveRow {
    /// The container, as `namespace/pod/container`; unknown when left out.
    pub container: Option<String>,
    /// Numbers of the CPUs.
    pub cpus: Vec<u32>,
}
