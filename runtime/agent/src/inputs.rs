//! The state of other parts of the agent that the ledger and controls read during a step.

use qosm_cluster::node_report::ControllerAnswer;
use qosm_model::unit::Bytes;

use crate::config::AgentConfig;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policies::Policies;
use crate::step::Mode;
use crate::table::PodTable;

/// The state of the other parts in this step.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) pods: &'a PodTable,
    pub(crate) policies: &'a Policies,
    pub(crate) config: &'a AgentConfig,
    pub(crate) metrics: &'a Metrics,
    /// The node's allocatable memory, as the API server reports it; `None` = not known.
    pub(crate) memory_allocatable: Option<Bytes>,
    /// The controller's answer to the node's last report.
    pub(crate) answer: Option<&'a ControllerAnswer>,
    /// Whether an API server is connected.
    pub(crate) has_api_server: bool,
    pub(crate) mode: Mode,
    pub(crate) now: Now,
    /// Ticks since the agent began.
    pub(crate) ticks: u64,
}
