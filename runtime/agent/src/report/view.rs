//! A read-only view of the agent's parts.

use qosm_host::Host;

use crate::config::AgentConfig;
use crate::controls::Controls;
use crate::cpusets::Cpusets;
use crate::ledger::Ledger;
use crate::nri::RuntimeLink;
use crate::objects::Objects;
use crate::policies::Policies;
use crate::sources::Sources;
use crate::table::PodTable;

/// The parts of the agent at this moment.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) host: &'a Host,
    pub(crate) pods: &'a PodTable,
    pub(crate) policies: &'a Policies,
    pub(crate) ledger: &'a Ledger,
    pub(crate) controls: &'a Controls,
    pub(crate) cpusets: &'a Cpusets,
    pub(crate) objects: &'a Objects,
    pub(crate) config: &'a AgentConfig,
    pub(crate) sources: &'a Sources,
    pub(crate) has_api_server: bool,
    pub(crate) runtime_link: &'a RuntimeLink,
}
