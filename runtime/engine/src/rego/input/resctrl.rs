//! Usage of caches and memory bandwidth, and the state of the policy's classes.

use std::collections::BTreeMap;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassState, Domain, ResctrlColumn, Usage};

use super::Column;
use crate::interface::Interface;

/// The parts of both resctrl interfaces; the part of an interface that the policy does not declare is left out.
#[derive(Default, serde::Serialize)]
pub(super) struct ResctrlRow<'a> {
    #[serde(flatten)]
    usage: Option<MonitorRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<BTreeMap<&'a str, StateRow<'a>>>,
}

#[derive(serde::Serialize)]
struct MonitorRow<'a> {
    domains: Vec<DomainRow>,
    classes: BTreeMap<&'a str, Vec<UsageRow>>,
    containers: Column<'a, (ContainerId, Vec<Usage>), Vec<UsageRow>>,
    rest: Vec<UsageRow>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct DomainRow {
    id: u32,
    cache_ways: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
    divides_bandwidth: bool,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageRow {
    domain: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    occupancy_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct StateRow<'a> {
    in_force: bool,
    why: &'a str,
}

impl<'a> ResctrlRow<'a> {
    /// The parts of a column that a policy sees; `None` if it declares neither interface.
    pub(super) fn of(column: &'a ResctrlColumn, declares: impl Fn(Interface) -> bool) -> Option<Self> {
        let (monitors, allocates) = (declares(Interface::ResctrlMonitor), declares(Interface::ResctrlAllocation));
        (monitors || allocates).then(|| Self {
            usage: monitors.then(|| MonitorRow {
                domains: column.domains.iter().map(domain).collect(),
                classes: column.classes.iter().map(|(class, own)| (class.as_str(), usages(own))).collect(),
                containers: Column(&column.containers, |(container, own)| (*container, usages(own))),
                rest: usages(&column.rest),
            }),
            states: allocates.then(|| column.states.iter().map(state).collect()),
        })
    }
}

fn domain(domain: &Domain) -> DomainRow {
    DomainRow {
        id: domain.id.0,
        cache_ways: domain.cache_ways,
        cache_bytes: domain.cache.map(|bytes| bytes.0),
        divides_bandwidth: domain.divides_bandwidth,
    }
}

fn usages(usages: &[Usage]) -> Vec<UsageRow> {
    let row = |usage: &Usage| UsageRow {
        domain: usage.domain.0,
        occupancy_bytes: usage.occupancy.map(|bytes| bytes.0),
        local_bytes: usage.local.map(|bytes| bytes.0),
        total_bytes: usage.total.map(|bytes| bytes.0),
    };
    usages.iter().map(row).collect()
}

fn state(state: &ClassState) -> (&str, StateRow<'_>) {
    (state.class.as_str(), StateRow { in_force: state.in_force, why: &state.why })
}
