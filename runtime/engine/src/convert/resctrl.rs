//! Conversion of shares of caches and memory bandwidth between the contract's types and the model's.

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{
    BandwidthShare, CacheShare, ClassName, ClassState, Domain, DomainId, NotAClassName, Share, Shares, Usage,
};

use crate::bindings::qosm::policy::{resctrl_allocation, resctrl_monitor};
use crate::error::Rule;
use crate::staging::printable;

pub(crate) fn domain(domain: &Domain) -> resctrl_monitor::Domain {
    resctrl_monitor::Domain {
        id: domain.id.0,
        cache_ways: domain.cache_ways,
        cache_bytes: domain.cache.map(|bytes| bytes.0),
        divides_bandwidth: domain.divides_bandwidth,
    }
}

pub(crate) fn usage(usage: &Usage) -> resctrl_monitor::Usage {
    resctrl_monitor::Usage {
        domain: usage.domain.0,
        occupancy_bytes: usage.occupancy.map(|bytes| bytes.0),
        local_bytes: usage.local.map(|bytes| bytes.0),
        total_bytes: usage.total.map(|bytes| bytes.0),
    }
}

pub(crate) fn class((class, usages): &(ClassName, Vec<Usage>)) -> resctrl_monitor::ClassSample {
    resctrl_monitor::ClassSample { class: class.to_string(), usage: usages.iter().map(usage).collect() }
}

pub(crate) fn container((container, usages): &(ContainerId, Vec<Usage>)) -> resctrl_monitor::ContainerSample {
    resctrl_monitor::ContainerSample { container: container.0, usage: usages.iter().map(usage).collect() }
}

pub(crate) fn state(state: &ClassState) -> resctrl_allocation::ClassState {
    resctrl_allocation::ClassState { class: state.class.to_string(), in_force: state.in_force, why: state.why.clone() }
}

pub(crate) fn name(text: &str) -> Result<ClassName, Rule> {
    text.parse().map_err(|error: NotAClassName| Rule::ClassName { why: printable(error.to_string()) })
}

/// The shares of a class. If a domain is listed twice, the last entry counts.
pub(crate) fn shares(
    class: &ClassName,
    all: &resctrl_allocation::Share,
    domains: &[(u32, resctrl_allocation::Share)],
) -> Result<Shares, Rule> {
    let domains = domains.iter().map(|(id, own)| Ok((DomainId(*id), share(class, Some(*id), own)?)));
    Ok(Shares { all: share(class, None, all)?, domains: domains.collect::<Result<_, Rule>>()? })
}

fn share(class: &ClassName, domain: Option<u32>, raw: &resctrl_allocation::Share) -> Result<Share, Rule> {
    let cache = raw.cache.map(|cache| match cache {
        resctrl_allocation::CacheShare::Percent((start, end)) => CacheShare::Percent { start, end },
        resctrl_allocation::CacheShare::Mask(mask) => CacheShare::Mask(mask),
    });
    let bandwidth = raw.bandwidth.map(|bandwidth| match bandwidth {
        resctrl_allocation::BandwidthShare::Percent(percent) => BandwidthShare::Percent(percent),
        resctrl_allocation::BandwidthShare::Megabytes(most) => BandwidthShare::Megabytes(most),
    });
    let share = Share { cache, bandwidth };
    share.check().map_err(|error| Rule::Share { class: class.to_string(), domain, why: error.to_string() })
}
