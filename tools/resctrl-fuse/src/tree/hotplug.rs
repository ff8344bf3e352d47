//! CPUs that go offline and online, and the domains that disappear and reappear with them.

use super::controls::Resource;
use super::{GroupId, Tree};
use crate::cpumask::CpuMask;
use crate::profile::Domain;

impl Tree {
    /// Takes CPUs offline. They leave every group; an L2 or L3 domain without online CPUs disappears from `schemata`
    /// and `mon_data`, with its values and counters.
    ///
    /// Kernel: `resctrl_offline_cpu`, `resctrl_offline_mon_domain`.
    pub fn offline(&mut self, cpus: &CpuMask) {
        self.online = self.online.without(cpus);
        for group in self.groups.values_mut() {
            group.cpus = group.cpus.without(cpus);
        }
        let monitored: Vec<u32> = self.monitored_domains().map(|domain| domain.id).collect();
        self.counters.retain(|(_, domain), _| monitored.contains(domain));
        // The content of such a cache is unknown, so no RMID waits for it in limbo.
        self.rmids.settle(|_, domain| monitored.contains(&domain));
        let there: Vec<(Resource, u32)> = [Resource::L3, Resource::L2, Resource::Mb, Resource::Smba]
            .into_iter()
            .flat_map(|resource| self.domains(resource).into_iter().map(move |domain| (resource, domain.id)))
            .collect();
        self.controls.0.retain(|&(resource, _, domain, _), _| there.contains(&(resource, domain)));
    }

    /// Brings CPUs of the machine online; they belong to the root group. In a domain that reappears, every class starts
    /// with the default value.
    ///
    /// Kernel: `resctrl_online_cpu`, `domain_setup_ctrlval`.
    pub fn online(&mut self, cpus: &CpuMask) {
        let back = cpus.intersection(&self.profile.cpus()).without(&self.online);
        self.online = self.online.union(&back);
        if let Some(root) = self.groups.get_mut(&GroupId::ROOT) {
            root.cpus = root.cpus.union(&back);
        }
    }

    /// Takes all CPUs of an L3 domain offline.
    pub fn offline_l3(&mut self, domain: u32) {
        let cpus = self.cpus_of_l3(domain);
        self.offline(&cpus);
    }

    /// Brings all CPUs of an L3 domain online.
    pub fn online_l3(&mut self, domain: u32) {
        let cpus = self.cpus_of_l3(domain);
        self.online(&cpus);
    }

    fn cpus_of_l3(&self, domain: u32) -> CpuMask {
        self.profile.l3_domains.iter().find(|one| one.id == domain).map(|one| one.cpus.clone()).unwrap_or_default()
    }

    pub(crate) fn is_online(&self, domain: &Domain) -> bool {
        !domain.cpus.intersection(&self.online).is_empty()
    }
}
