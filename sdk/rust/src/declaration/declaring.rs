//! The host that a policy sees: it forwards only changes to the node's host.

mod block_io;
mod forwarded;

use std::sync::Arc;

use super::{Declaration, Kind, RELEASED, Release, ReleaseKnob, Setting, StaleAfter, Undefine};
use crate::host::CallHooks;
use crate::{
    ClassState, ContainerId, CpuBandwidth, CpuIdentity, CpuWeight, Cpuset, Declare, Eviction, EvictionState, Host,
    MemoryLimit, MemoryProtection, NodeKnob, NodeKnobState, NodeKnobs, NodeResource, Offer, PodFacts, PodId,
    Protection, ResctrlAllocation, ResourceState, Share, Target, Urgency,
};

/// A host that forwards only differences to what was declared before.
pub(crate) struct Declaring<'a, H> {
    host: &'a mut H,
    declaration: &'a mut Declaration,
}

impl<'a, H: Host + 'static> Declaring<'a, H> {
    pub(crate) fn new(host: &'a mut H, declaration: &'a mut Declaration, is_evaluation: bool) -> Self {
        host.begin(is_evaluation);
        declaration.begin(is_evaluation);
        Self { host, declaration }
    }

    /// Ends a call with the policy's result. After an error the host holds what it held before.
    pub(crate) fn finish<T>(self, result: Result<T, String>) -> Result<T, String> {
        if result.is_ok() {
            self.declaration.release_rest(self.host);
            if self.declaration.is_evaluation && !self.declaration.has_evaluated {
                self.host.release_undeclared();
            }
        }
        let result = self.host.end(result);
        match &result {
            Ok(_) => self.declaration.commit(),
            Err(_) => self.declaration.discard(),
        }
        result
    }
}

impl<H: Host + 'static> CallHooks for Declaring<'_, H> {
    fn give(&mut self, upserted: &[PodFacts], removed: &[PodId]) {
        self.host.give(upserted, removed);
        self.declaration.give(upserted, removed);
    }
}

impl<H: Host + 'static> Declare for Declaring<'_, H> {
    fn keep(&mut self, target: Target) {
        self.declaration.keep(target);
    }

    fn keep_all(&mut self) {
        self.declaration.keep_all();
    }
}

impl<H: Host + 'static> CpuBandwidth for Declaring<'_, H> {
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
        let send = || self.host.set_quota(target, quota_usec, reason);
        self.declaration.set::<H>(target, Setting::Quota(quota_usec), reason, H::release_quota, send);
    }

    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
        let send = || self.host.set_burst(target, burst_usec, reason);
        self.declaration.set::<H>(target, Setting::Burst(burst_usec), reason, H::release_burst, send);
    }

    fn release_quota(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Quota);
    }

    fn release_burst(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Burst);
    }
}

impl<H: Host + 'static> CpuWeight for Declaring<'_, H> {
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
        let send = || self.host.set_weight(target, weight, reason);
        self.declaration.set::<H>(target, Setting::Weight(weight), reason, H::release_weight, send);
    }

    fn release_weight(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Weight);
    }

    fn set_shares(&mut self, target: Target, shares: u32, reason: &str) {
        let send = || self.host.set_shares(target, shares, reason);
        self.declaration.set::<H>(target, Setting::Shares(shares), reason, H::release_weight, send);
    }

    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
        let send = || self.host.set_idle(container, idle, reason);
        let release: Release<H> = |host, target| {
            if let Target::Container(container) = target {
                host.release_idle(container);
            }
        };
        self.declaration.set(Target::Container(container), Setting::Idle(idle), reason, release, send);
    }

    fn release_idle(&mut self, container: ContainerId) {
        self.declaration.unset(Target::Container(container), Kind::Idle);
    }
}

impl<H: Host + 'static> CpuIdentity for Declaring<'_, H> {
    fn identity_support(&mut self) -> Result<(), String> {
        self.host.identity_support()
    }

    fn set_identity(&mut self, target: Target, identity: i8, reason: &str) {
        let send = || self.host.set_identity(target, identity, reason);
        self.declaration.set::<H>(target, Setting::Identity(identity), reason, H::release_identity, send);
    }

    fn release_identity(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Identity);
    }

    fn core_scheduling_support(&mut self) -> Result<(), String> {
        self.host.core_scheduling_support()
    }

    fn set_core_group(&mut self, container: ContainerId, group: u64, reason: &str) {
        let send = || self.host.set_core_group(container, group, reason);
        let release: Release<H> = |host, target| {
            if let Target::Container(container) = target {
                host.release_core_group(container);
            }
        };
        self.declaration.set::<H>(Target::Container(container), Setting::CoreGroup(group), reason, release, send);
    }

    fn release_core_group(&mut self, container: ContainerId) {
        self.declaration.unset(Target::Container(container), Kind::CoreGroup);
    }
}

impl<H: Host + 'static> MemoryProtection for Declaring<'_, H> {
    fn protect(&mut self, target: Target, protection: &Protection, reason: &str) {
        let send = || self.host.protect(target, protection, reason);
        self.declaration.set::<H>(target, Setting::Protection(*protection), reason, H::release_protection, send);
    }

    fn release_protection(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Protection);
    }
}

impl<H: Host + 'static> Cpuset for Declaring<'_, H> {
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
        let send = || self.host.set_memory_nodes(container, nodes, reason);
        let release: Release<H> = |host, target| {
            if let Target::Container(container) = target {
                host.release_memory_nodes(container);
            }
        };
        let setting = Setting::MemoryNodes(nodes.to_vec());
        self.declaration.set(Target::Container(container), setting, reason, release, send);
    }

    fn release_memory_nodes(&mut self, container: ContainerId) {
        self.declaration.unset(Target::Container(container), Kind::MemoryNodes);
    }

    fn set_cpus(&mut self, target: Target, cpus: &[u32], reason: &str) {
        let send = || self.host.set_cpus(target, cpus, reason);
        self.declaration.set::<H>(target, Setting::Cpus(cpus.to_vec()), reason, H::release_cpus, send);
    }

    fn release_cpus(&mut self, target: Target) {
        self.declaration.unset(target, Kind::Cpus);
    }
}

impl<H: Host + 'static> MemoryLimit for Declaring<'_, H> {
    fn set_memory_limit(&mut self, target: Target, bytes: Option<u64>, reason: &str) {
        let send = || self.host.set_memory_limit(target, bytes, reason);
        self.declaration.set::<H>(target, Setting::MemoryLimit(bytes), reason, H::release_memory_limit, send);
    }

    fn release_memory_limit(&mut self, target: Target) {
        self.declaration.unset(target, Kind::MemoryLimit);
    }
}

impl<H: Host + 'static> NodeKnobs for Declaring<'_, H> {
    fn set_node_knob(&mut self, knob: NodeKnob, value: u64, reason: &str) {
        if self.declaration.set_node_knob(knob, value, reason) {
            let release: ReleaseKnob<H> = H::release_node_knob;
            self.declaration.releases.node_knob.get_or_insert_with(|| Arc::new(release));
            self.host.set_node_knob(knob, value, reason);
        }
    }

    fn release_node_knob(&mut self, knob: NodeKnob) {
        self.declaration.unset_node_knob(knob);
    }

    fn node_knobs(&mut self) -> Vec<NodeKnobState> {
        self.host.node_knobs()
    }

    fn remark_node_knob(&mut self, knob: NodeKnob, reason: &str) {
        self.host.remark_node_knob(knob, reason);
    }
}

impl<H: Host + 'static> ResctrlAllocation for Declaring<'_, H> {
    fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str) {
        if self.declaration.define(class, share, domains, reason) {
            let undefine: Undefine<H> = H::undefine_class;
            self.declaration.releases.class.get_or_insert_with(|| Arc::new(undefine));
            self.host.define_class(class, share, domains, reason);
        }
    }

    fn undefine_class(&mut self, class: &str) {
        if self.declaration.classes.defined.contains_key(class) {
            self.host.undefine_class(class);
            // Undefining a class also removes its members.
            let classes = self.declaration.change_classes();
            classes.defined.remove(class);
            classes.members.retain(|_, (own, ..)| own != class);
        }
    }

    fn assign_class(&mut self, target: Target, class: &str, reason: &str) {
        if self.declaration.assign(target, class, reason) {
            let release: Release<H> = H::release_class;
            self.declaration.releases.member.get_or_insert_with(|| Arc::new(release));
            self.host.assign_class(target, class, reason);
        }
    }

    fn release_class(&mut self, target: Target) {
        if let Some((.., declared)) = self.declaration.classes.members.get_mut(&target) {
            *declared = RELEASED;
        }
    }

    fn class_states(&mut self) -> Vec<ClassState> {
        self.host.class_states()
    }
}

impl<H: Host + 'static> NodeResource for Declaring<'_, H> {
    fn publish(&mut self, name: &str, offer: &Offer, reason: &str) {
        if self.declaration.publish(name, offer, reason) {
            let withdraw: Undefine<H> = H::withdraw;
            self.declaration.releases.resource.get_or_insert_with(|| Arc::new(withdraw));
            self.host.publish(name, offer, reason);
        }
    }

    fn withdraw(&mut self, name: &str) {
        self.declaration.withdraw(name);
    }

    fn stale_after(&mut self, seconds: u32) {
        if self.declaration.stale_after(seconds) {
            let say: StaleAfter<H> = H::stale_after;
            self.declaration.releases.stale_after.get_or_insert_with(|| Arc::new(say));
            self.host.stale_after(seconds);
        }
    }

    fn resource_states(&mut self) -> Vec<ResourceState> {
        self.host.resource_states()
    }
}

impl<H: Host + 'static> Eviction for Declaring<'_, H> {
    fn evict(&mut self, pod: PodId, urgency: Urgency, grace_period_sec: Option<u32>, reason: &str, message: &str) {
        self.host.evict(pod, urgency, grace_period_sec, reason, message);
    }

    fn withdraw_eviction(&mut self, pod: PodId) {
        self.host.withdraw_eviction(pod);
    }

    fn evictions(&mut self) -> Vec<EvictionState> {
        self.host.evictions()
    }
}
