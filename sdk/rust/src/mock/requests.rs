//! Requests of a policy to the cluster, over a [`MockHost`]: resources of the node, and evictions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::{EvictionRequest, MockHost, ResourceChange};
use crate::{Eviction, EvictionState, NodeResource, Offer, PodId, ResourceState, Target, Urgency};

/// Maximum number of resources that a policy may publish.
const MAX_RESOURCES: usize = 32;
/// Maximum number of NUMA nodes with shares of their own in a resource.
const MAX_ZONES: usize = 64;
/// Range of the time after which resources become invalid without a sign of life from the agent.
const STALE_SECONDS: RangeInclusive<u32> = 60..=86_400;

impl MockHost {
    fn change_published(&mut self) -> &mut BTreeMap<String, Offer> {
        self.staged_published.get_or_insert_with(|| self.published.clone())
    }

    fn resource_name(&mut self, name: &str) {
        let is_between = |text: &str| {
            let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            text.len() <= 63 && is_end(text.as_bytes().first()) && is_end(text.as_bytes().last())
        };
        let is_label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            is_between(label) && label.bytes().all(fits)
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = name.split_once('/').is_some_and(|(domain, own)| {
            let is_domain = domain.len() <= 253 && domain.split('.').all(is_label) && !domain.starts_with("requests.");
            is_domain && is_between(own) && own.bytes().all(fits)
        });
        if !is_name {
            self.refuse(format!(
                "its resource `{name}`: it is no name of an extended resource; write DOMAIN/NAME as Kubernetes does, e.g. \
                 `kubernetes.io/batch-cpu`"
            ));
        }
    }
}

impl NodeResource for MockHost {
    fn publish(&mut self, name: &str, offer: &Offer, reason: &str) {
        self.called("node-resource");
        self.resource_name(name);
        let zones: BTreeSet<u32> = offer.zones.iter().map(|share| share.zone).collect();
        if zones.len() < offer.zones.len() || zones.len() > MAX_ZONES {
            self.refuse(format!(
                "its resource `{name}`: it has shares of {} NUMA nodes; each can have one, and {MAX_ZONES} are allowed",
                offer.zones.len()
            ));
        }
        let shares = offer.zones.iter().map(|share| share.amount);
        let mut amounts = [offer.amount].into_iter().chain(shares).chain(offer.origin);
        if let Some(amount) = amounts.find(|amount| i64::try_from(*amount).is_err()) {
            self.refuse(format!(
                "its resource `{name}`: {amount} is more than Kubernetes counts; give at most {}",
                i64::MAX
            ));
        }
        let published = self.change_published();
        published.insert(name.into(), offer.clone());
        if published.len() > MAX_RESOURCES {
            self.refuse(format!(
                "its resource `{name}`: it is one more than the {MAX_RESOURCES} that a policy may publish; withdraw another"
            ));
        }
        self.resource_changes.push(ResourceChange::Publish {
            name: name.into(),
            offer: offer.clone(),
            reason: reason.into(),
        });
    }

    fn withdraw(&mut self, name: &str) {
        self.called("node-resource");
        self.resource_name(name);
        self.change_published().remove(name);
        self.resource_changes.push(ResourceChange::Withdraw { name: name.into() });
    }

    fn stale_after(&mut self, seconds: u32) {
        self.called("node-resource");
        if !STALE_SECONDS.contains(&seconds) {
            let (least, most) = (STALE_SECONDS.start(), STALE_SECONDS.end());
            self.refuse(format!("its resources are to go stale after {seconds} s; give {least} to {most}"));
        }
        self.resource_changes.push(ResourceChange::StaleAfter { seconds });
    }

    fn resource_states(&mut self) -> Vec<ResourceState> {
        self.column("node-resource", |host| &host.columns.resource_states)
    }
}

impl Eviction for MockHost {
    fn evict(&mut self, pod: PodId, urgency: Urgency, grace_period_sec: Option<u32>, reason: &str, message: &str) {
        self.called("eviction");
        self.require(Target::Pod(pod));
        self.event_reason(reason);
        self.evictions.push(EvictionRequest {
            pod,
            urgency: Some(urgency),
            grace_period_sec,
            reason: reason.into(),
            message: message.into(),
        });
    }

    fn withdraw_eviction(&mut self, pod: PodId) {
        self.called("eviction");
        self.evictions.push(EvictionRequest {
            pod,
            urgency: None,
            grace_period_sec: None,
            reason: String::new(),
            message: String::new(),
        });
    }

    fn evictions(&mut self) -> Vec<EvictionState> {
        self.column("eviction", |host| &host.columns.evictions)
    }
}
