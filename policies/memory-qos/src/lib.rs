//! Memory QoS: percentages of requests and limits become memcg settings on tiers, pods and containers.
//!
//! [`MemoryQosPolicy`] keeps the node's pods; each evaluation computes and declares the whole plan. Reading order: `config`
//! (configuration), `resources` (requests and limits of pods), `formula`, `plan` (values of each cgroup). The host merges layers, checks
//! annotations and follows the kernel's rules.
//!
//! ```
//! use memory_qos::MemoryQosPolicy;
//! use qosm_sdk::Policy;
//!
//! assert_eq!(MemoryQosPolicy::describe().facts().name, "memory-qos");
//! ```

use std::collections::BTreeSet;

use qosm_sdk::{Description, Host, Level, Log, Pod, PodId, Pods, Policy, Rejection, Tick};

use crate::config::{Config, MemoryQos};
use crate::plan::{NodeMemory, Plan, Shrink, Unmet};
use crate::reason::Size;
use crate::resources::LostUnit;

pub mod config;
mod formula;
mod page_cache;
mod plan;
mod protection;
mod protocol;
mod reason;
mod resources;

/// The policy.
#[derive(Debug, Default)]
pub struct MemoryQosPolicy {
    config: Config,
    pods: Pods<MemoryQos>,
    shrink: Option<Shrink>,
    /// Amounts without a unit that were logged.
    lost_units: BTreeSet<LostUnit>,
}

impl Policy for MemoryQosPolicy {
    type Config = Config;
    type PodConfig = MemoryQos;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
        config.check()?;
        self.config = config;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, mut upserted: Vec<Pod<MemoryQos>>, removed: &[PodId]) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        for pod in &mut upserted {
            if let Some(Err(error)) = pod.config.as_ref().map(MemoryQos::check) {
                rejections.push(Rejection { pod: pod.id, field: error.field.into(), message: error.to_string() });
                pod.config = None;
            }
        }
        self.pods.update(upserted, removed);
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        let node = host.node();
        let node = NodeMemory { allocatable: node.memory_allocatable_bytes, page: node.page_size_bytes };
        let asked = self.pods.iter().filter_map(|pod| Some((&pod.facts, pod.config.as_ref()?)));
        let plan = Plan::new(&self.config, node, asked);
        for (target, setting) in &plan.settings {
            host.protect(*target, &setting.protection, &setting.reason);
        }
        for Unmet { target, knob, why } in &plan.unmet {
            host.remark(*target, knob, why);
        }
        self.report(host, plan.shrink);
        self.shrink = plan.shrink;
        for lost in plan.lost_units.difference(&self.lost_units) {
            host.log(Level::Warn, &lost.to_string());
        }
        self.lost_units = plan.lost_units;
        Ok(())
    }
}

impl MemoryQosPolicy {
    /// Logs when all pods together start or stop asking for more `memory.min` than the node can give.
    fn report(&self, host: &mut impl Log, shrink: Option<Shrink>) {
        match (self.shrink, shrink) {
            (None, Some(Shrink { total, cap })) => host.log(
                Level::Warn,
                &format!(
                    "all pods ask for {} of memory.min and may have {}; every memory.min is shrunk to fit; lower \
                     minLimitPercent, or raise minTotalPercent of this policy",
                    Size::from(total),
                    Size::from(cap)
                ),
            ),
            (Some(_), None) => host.log(Level::Info, "memory.min of all pods fits again"),
            _ => {}
        }
    }
}

qosm_sdk::export!(MemoryQosPolicy);

#[cfg(test)]
mod tests {
    use qosm_sdk::{Container, Node as _, NodeSample, PodFacts, Session, mock};

    use super::*;

    fn host(allocatable: u64) -> mock::MockHost {
        let mut host = mock::MockHost::default();
        host.columns.node = Some(NodeSample { memory_allocatable_bytes: allocatable, ..host.node() });
        host
    }

    fn pod(config: &str) -> PodFacts {
        let container = Container { memory_request_bytes: Some(1 << 20), ..mock::container(1, "app") };
        PodFacts { config: config.into(), containers: vec![container], ..mock::pod(1, "default", "web") }
    }

    #[test]
    fn shrinking_is_reported_when_it_begins_and_when_it_ends() {
        let mut host = host(1 << 19);
        let mut session = Session::<MemoryQosPolicy>::default();
        for config in [r#"{"minLimitPercent":100}"#, r#"{"minLimitPercent":90}"#, r#"{"minLimitPercent":50}"#, "{}"] {
            session.pods(&mut host, vec![pod(config)], &[]).unwrap();
            session.evaluate(&mut host, mock::tick(0)).unwrap();
            host.commit();
        }
        let expected = [
            (
                Level::Warn,
                "all pods ask for 1 MiB of memory.min and may have 512 KiB; every memory.min is shrunk to fit; \
                 lower minLimitPercent, or raise minTotalPercent of this policy",
            ),
            (Level::Info, "memory.min of all pods fits again"),
        ];
        let log: Vec<_> = host.log.iter().map(|(level, line)| (*level, line.as_str())).collect();
        assert_eq!(log, expected);
    }

    #[test]
    fn an_amount_that_lost_its_unit_is_told_once_with_the_way_out() {
        let batch = |request, limit| qosm_sdk::ExtendedResource {
            name: "kubernetes.io/batch-memory".into(),
            request: Some(request),
            limit: Some(limit),
        };
        let job = |request, limit| PodFacts {
            declared_qos: Some(qosm_sdk::QosClass::Be),
            containers: vec![Container {
                extended_resources: vec![batch(request, limit)],
                ..mock::container(1, "job")
            }],
            ..pod(r#"{"throttlingPercent":80}"#)
        };
        let mut host = host(1 << 30);
        let mut session = Session::<MemoryQosPolicy>::default();
        for (request, limit) in [(512, 512), (512, 512), (1 << 30, 2048), (1 << 30, 1 << 30)] {
            session.pods(&mut host, vec![job(request, limit)], &[]).unwrap();
            session.evaluate(&mut host, mock::tick(0)).unwrap();
            host.commit();
        }
        let resource = "pod default/web, container job: limits kubernetes.io/batch-memory";
        let expected = [
            format!("{resource} is 512, which is 512 bytes; was 512Mi meant?"),
            format!("{resource} is 2048, which is 2048 bytes; was 2048Mi meant?"),
        ];
        assert_eq!(host.log, expected.map(|line| (Level::Warn, line)));
    }

    #[test]
    fn a_refused_configuration_lets_go_of_what_was_held() {
        let mut host = host(1 << 30);
        let mut session = Session::<MemoryQosPolicy>::default();
        for (config, refused, held) in [
            (r#"{"wmarkRatio":95}"#, None, 2),
            (r#"{"wmarkRatio":950}"#, Some("wmarkRatio"), 0),
            (r#"{"wmarkRatio":90}"#, None, 2),
        ] {
            let rejections = session.pods(&mut host, vec![pod(config)], &[]).unwrap();
            assert_eq!(rejections.first().map(|rejection| rejection.field.as_str()), refused, "{config}");
            session.evaluate(&mut host, mock::tick(0)).unwrap();
            host.commit();
            assert_eq!(host.leases().len(), held, "{config}");
        }
    }

    #[test]
    fn a_target_that_vanished_is_not_released_again() {
        let mut host = host(1 << 30);
        let mut session = Session::<MemoryQosPolicy>::default();
        session.pods(&mut host, vec![pod(r#"{"wmarkRatio":95}"#)], &[]).unwrap();
        session.evaluate(&mut host, mock::tick(0)).unwrap();
        host.commit();
        session.pods(&mut host, Vec::new(), &[1]).unwrap();
        session.evaluate(&mut host, mock::tick(0)).unwrap();
        assert_eq!(host.commit(), []);
    }
}
