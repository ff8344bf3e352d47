//! Observe: the cgroups of applications beside Kubernetes, which are read and never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_host::{Host, HostError};
use qosm_model::application::Application;
use qosm_model::knob::Target;
use qosm_model::node::GroupCounters;
use qosm_model::pod::Tier;
use qosm_model::problem::chain;

use crate::table::PodTable;

/// Running totals of each application, in the order of the ConfigMap.
pub(crate) type ApplicationReading = Arc<Vec<(Arc<Application>, GroupCounters)>>;

/// Number of reads in a row that fail before an application is reported: it may be starting.
const LONG: u32 = 10;

/// An application whose cgroup cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) name: String,
    pub(crate) cgroup: String,
    pub(crate) why: String,
}

/// The applications that the cluster's ConfigMap names for this node.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    listed: Vec<Arc<Application>>,
    /// Each listed application with its cgroup; `None` after the list or the tiers changed, until the next read.
    placed: Option<Vec<(Arc<Application>, String)>>,
    /// Targets attached for applications, by path of the cgroup.
    targets: BTreeMap<String, Target>,
    /// Number of reads in a row that failed, by path of the cgroup.
    failures: BTreeMap<String, u32>,
    unread: Vec<Unread>,
}

impl Applications {
    /// Sets the applications that the ConfigMap names now.
    pub(crate) fn list(&mut self, listed: Vec<Application>) {
        if self.listed.iter().map(Arc::as_ref).ne(&listed) {
            self.listed = listed.into_iter().map(Arc::new).collect();
            self.placed = None;
        }
    }

    /// Has the next read work out the paths of cgroups again, because a tier has appeared.
    pub(crate) fn tiers_changed(&mut self) {
        self.placed = None;
    }

    /// Reads the cgroups of the applications. An application whose cgroup does not exist is left out.
    pub(crate) fn read(&mut self, host: &mut Host, pods: &mut PodTable) -> ApplicationReading {
        let Self { listed, placed, targets, failures, unread } = self;
        let placed = placed.get_or_insert_with(|| {
            let placed: Vec<_> = listed.iter().map(|one| (Arc::clone(one), place(host, one))).collect();
            targets.retain(|path, target| {
                let stays = placed.iter().any(|(_, other)| other == path);
                if !stays {
                    host.detach(*target);
                }
                stays
            });
            placed
        });
        let mut rows = Vec::with_capacity(placed.len());
        let mut failed = Vec::new();
        for (application, path) in placed.iter() {
            // A cgroup that is already attached as a pod's is read as that target.
            let target = host.attached_at(path).unwrap_or_else(|| match targets.get(path) {
                Some(target) => *target,
                None => *targets.entry(path.clone()).or_insert(Target::Pod(pods.spare_pod_id())),
            });
            let mut fail = |error: &HostError| {
                failed.push(Unread { name: application.name.clone(), cgroup: path.clone(), why: chain(error) });
            };
            if host.attached_path(target).is_none()
                && let Err(error) = host.attach(target, path)
            {
                fail(&error);
                continue;
            }
            match host.group_counters(target) {
                Ok(counters) => rows.push((Arc::clone(application), counters)),
                Err(error) => {
                    fail(&error);
                    if error.is_gone() && targets.values().any(|own| *own == target) {
                        host.detach(target);
                    }
                }
            }
        }
        failures.retain(|path, _| failed.iter().any(|one| one.cgroup == *path));
        for one in &failed {
            let times = failures.entry(one.cgroup.clone()).or_default();
            *times = times.saturating_add(1);
        }
        failed.retain(|one| failures.get(&one.cgroup).is_some_and(|times| *times >= LONG));
        *unread = failed;
        Arc::new(rows)
    }

    /// The applications that the last reads could not read.
    pub(crate) fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Detaches a target that was attached for an application, so that the cgroup can be attached as a pod's. Returns `false` if it is not
    /// an application's target.
    pub(crate) fn give_way(&mut self, host: &mut Host, target: Target) -> bool {
        let is_own = self.targets.values().any(|own| *own == target);
        if is_own {
            host.detach(target);
        }
        is_own
    }
}

/// Path of an application's cgroup, relative to the root of each hierarchy. Without a tier, it is beside the kubelet's `kubepods` group: if
/// the kubelet's `cgroupRoot` is not the root of the hierarchy, nothing outside of `cgroupRoot` is read.
pub(crate) fn place(host: &Host, application: &Application) -> String {
    let Application { tier, cgroup, .. } = application;
    let path = host.tier_path(tier.unwrap_or(Tier::Guaranteed));
    let base = if tier.is_some() { Some(path.as_str()) } else { path.rsplit_once('/').map(|(root, _)| root) };
    base.map_or_else(|| cgroup.clone(), |base| format!("{base}/{cgroup}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use qosm_host::layout::Driver;
    use qosm_host::simulated::Spec;
    use qosm_model::unit::Micros;
    use serde_json::json;

    use super::*;
    use crate::facts::{Facts, read_objects};
    use crate::replay_fixture::ReplayFixture;

    fn host() -> Host {
        let facts: Facts =
            serde_json::from_value(json!({"host": {"cgroup": "v2", "driver": "systemd", "cpus": 8}, "pods": []}))
                .unwrap();
        let objects = read_objects(&facts.pods, &[], None, "facts");
        ReplayFixture::set_up(&facts, &objects).unwrap().0
    }

    fn uses(host: &mut Host, cgroup: &str, usec: u64) {
        let counters = GroupCounters { cpu_usage: Some(Micros(usec)), ..GroupCounters::default() };
        let simulation = host.simulated_mut().unwrap();
        simulation.ensure_cgroup(cgroup).unwrap();
        simulation.set_group_counters(cgroup, counters).unwrap();
    }

    fn listed(config: &serde_json::Value) -> Vec<Application> {
        let (applications, notes) = Application::read(&config.to_string(), &BTreeMap::new());
        assert!(notes.is_empty(), "{notes:?}");
        applications
    }

    fn read(applications: &mut Applications, host: &mut Host) -> Vec<(String, u64)> {
        let rows = applications.read(host, &mut PodTable::default());
        rows.iter().map(|(one, used)| (one.name.clone(), used.cpu_usage.unwrap().0)).collect()
    }

    #[test]
    fn those_that_are_there_are_read_wherever_they_lie() {
        let (mut host, mut applications) = (host(), Applications::default());
        let below = json!({"base": "KubepodsBesteffort", "relativePath": "etl"});
        applications.list(listed(&json!({"applications": [
            {"name": "nginx", "qos": "LS"}, {"name": "etl", "qos": "BE", "cgroupPath": below}, {"name": "absent"},
        ]})));
        assert_eq!(read(&mut applications, &mut host), []);
        let etl = format!("{}/etl", host.tier_path(Tier::BestEffort));
        uses(&mut host, "host-latency-sensitive/nginx", 70);
        uses(&mut host, &etl, 30);
        assert_eq!(read(&mut applications, &mut host), [("nginx".to_owned(), 70), ("etl".to_owned(), 30)]);
        assert_eq!(applications.unread(), [], "it may be starting");
        for _ in 0..LONG {
            read(&mut applications, &mut host);
        }
        assert_eq!(applications.unread().iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["absent"]);
        // The cgroup of an application that is no longer listed is detached.
        applications.list(listed(&json!({"applications": [{"name": "nginx", "qos": "LS"}]})));
        assert_eq!(read(&mut applications, &mut host), [("nginx".to_owned(), 70)]);
        assert_eq!(host.attached_at(&etl), None);
        assert_eq!(applications.unread(), []);
    }

    #[test]
    fn nothing_outside_of_the_kubelets_root_is_read() {
        for (cgroup_root, expected) in [("/", "web"), ("/mine/", "mine/web")] {
            let spec = Spec { cgroup_root: cgroup_root.to_owned(), driver: Some(Driver::Cgroupfs), ..Spec::default() };
            let host = Host::simulated(&spec).unwrap();
            let web = &listed(&json!({"applications": [{"name": "web"}]}))[0];
            assert_eq!(place(&host, web), expected);
        }
    }

    #[test]
    fn a_cgroup_is_a_pods_before_it_is_an_applications() {
        let (mut host, mut applications) = (host(), Applications::default());
        applications.list(listed(&json!({"applications": [{"name": "web"}]})));
        uses(&mut host, "web", 5);
        assert_eq!(read(&mut applications, &mut host), [("web".to_owned(), 5)]);
        let pod = Target::Pod(qosm_model::pod::PodId(77));
        let Err(HostError::Taken { by, .. }) = host.attach(pod, "web") else {
            panic!("it is open as the application's")
        };
        assert!(applications.give_way(&mut host, by) && !applications.give_way(&mut host, pod));
        host.attach(pod, "web").unwrap();
        assert_eq!(read(&mut applications, &mut host), [("web".to_owned(), 5)]);
        assert_eq!(host.attached_at("web"), Some(pod));
    }
}
