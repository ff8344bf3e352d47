//! Decides which threads go first on a CPU: latency-sensitive threads before those of batch pods.
//!
//! A pod's rank follows from its QoS class (ConfigMap key `resource-qos-config`) and from its own annotation. Alibaba's kernels have such
//! ranks; they are held on tiers, pods and containers. An upstream kernel offers two parts of that: `cpu.idle`, which is held on each batch
//! container, and core scheduling groups, which keep containers apart on cores with several threads.
//!
//! The core is pure. Reading order: [`config`] and [`strategy`] (configuration), [`rule`] (what each pod and tier wants: group identity,
//! idle, core scheduling group), [`identity`], [`upstream`] and [`groups`] (what is carried out on which kernel). The host writes the
//! values to the kernel, and chooses a substitute if `cpu.idle` is missing.
//!
//! ```
//! use cpu_identity::rule::Rule;
//! use cpu_identity::strategy::Strategy;
//! use cpu_identity::upstream;
//! use qosm_sdk::{PodFacts, QosClass, mock};
//!
//! let (strategy, faults) = Strategy::read(r#"{"beClass": {"cpuQOS": {"enable": true}}}"#, &Strategy::default());
//! assert!(faults.is_empty());
//! let report = PodFacts { declared_qos: Some(QosClass::Be), ..mock::pod(1, "batch", "report") };
//! let wanted = Rule::new(&strategy, Default::default()).pod(&report, None);
//! assert_eq!(wanted.identity, -1);
//! assert_eq!(upstream::idle(&report, &wanted).as_deref(), Some("group identity -1 of class BE"));
//! ```

pub mod config;
pub mod groups;
pub mod identity;
mod protocol;
pub mod rule;
pub mod strategy;
pub mod upstream;

use qosm_sdk::{Description, Host, Pod, PodId, Pods, Policy, Rejection, Tick};

pub use crate::config::PodConfig;
use crate::config::Settings;
use crate::rule::{POLICY_LABEL, Rule};
use crate::strategy::{CpuPolicy, Fault, Strategy};
use crate::upstream::Missing;

qosm_sdk::export!(CpuIdentity);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct CpuIdentity {
    settings: Settings,
    strategy: Strategy,
    /// Faults of the cluster's key.
    faults: Vec<Fault>,
    /// Generation of the cluster's configuration that `strategy` is based on; `None` = read it at the next evaluation.
    strategy_seen: Option<u64>,
    pods: Pods<PodConfig>,
    /// The missing kernel feature that was last logged.
    told: Option<Missing>,
}

impl Policy for CpuIdentity {
    type Config = Settings;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, _: &mut H, settings: Settings) -> Result<(), String> {
        self.settings = settings;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        let rejections = upserted.iter().filter_map(rejection).collect();
        self.pods.update(upserted, removed);
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        self.read_strategy(host);
        for Fault { field, value, way_out } in &self.faults {
            let message = format!(
                "it is {value}; {way_out}. Until then its last valid value counts, after a start as if it were left out"
            );
            host.problem(protocol::CONFIG_MAP_KEY, field, &message);
        }
        let rule = Rule::new(&self.strategy, self.settings);
        let policy = rule.policy();
        let (identities, cores) = (host.identity_support(), host.core_scheduling_support());
        self.tell(host, Missing::of(policy, &identities, &cores));
        if policy == Some(CpuPolicy::GroupIdentity) && identities.is_ok() {
            identity::switch(host);
            identity::tiers(host, &rule);
            for pod in self.pods.iter() {
                identity::pod(host, &rule, pod, pod.config);
            }
            return Ok(());
        }
        for pod in self.pods.iter() {
            let wanted = rule.pod(pod, pod.config);
            let idle = upstream::idle(pod, &wanted);
            let group = groups::group(pod, &wanted).filter(|_| cores.is_ok());
            for container in upstream::running(pod) {
                if let Some(reason) = &idle {
                    host.set_idle(container, true, reason);
                }
                if let Some((number, reason)) = &group {
                    host.set_core_group(container, *number, reason);
                }
            }
        }
        Ok(())
    }
}

fn rejection(pod: &Pod<PodConfig>) -> Option<Rejection> {
    let word = rule::unknown_policy(&pod.facts)?;
    let message = format!("it is `{word}`; write `exclusive` or `none`, or remove it");
    Some(Rejection { pod: pod.facts.id, field: format!("label {POLICY_LABEL}"), message })
}

impl CpuIdentity {
    fn read_strategy<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.config_generation());
        if self.strategy_seen == generation {
            return;
        }
        self.strategy_seen = generation;
        let text = host.config_strategy(protocol::CONFIG_MAP_KEY);
        let (strategy, faults) = Strategy::read(&text, &self.strategy);
        self.strategy = strategy;
        self.faults = faults;
    }

    /// Logs once which kernel feature the configuration requires and the kernel lacks.
    fn tell<H: Host>(&mut self, host: &mut H, missing: Option<Missing>) {
        if missing == self.told {
            return;
        }
        if let Some(missing) = &missing {
            let (level, message) = upstream::notice(missing);
            host.log(level, &message);
        }
        self.told = missing;
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::mock::{self, CORE_GROUP, CPU_BVT, CPU_IDLE, ConfigKey, MockHost};
    use qosm_sdk::{Level, PodFacts, QosClass, Session, Target};

    use super::*;

    const JOB: Target = Target::Container(7);

    struct Run {
        host: MockHost,
        policy: Session<CpuIdentity>,
    }

    impl Run {
        fn new() -> Self {
            let host = MockHost::granting(["cluster-config", "cpu-weight", "cpu-identity", "node-knobs"]);
            let mut run = Self { host, policy: Session::default() };
            let report = PodFacts {
                declared_qos: Some(QosClass::Be),
                containers: vec![mock::container(7, "job")],
                ..mock::pod(1, "batch", "report")
            };
            run.policy.configure(&mut run.host, "{}").unwrap();
            run.policy.pods(&mut run.host, vec![report], &[]).unwrap();
            run
        }

        /// The messages of an evaluation with this strategy.
        fn tick(&mut self, strategy: &str) -> Vec<(Level, String)> {
            let key = ConfigKey { text: strategy.into(), strategy: strategy.into() };
            self.host.columns.cluster_config.insert("resource-qos-config".into(), key);
            self.policy.evaluate(&mut self.host, mock::tick(1_000)).unwrap();
            std::mem::take(&mut self.host.log)
        }
    }

    #[test]
    fn what_is_missing_is_said_once_with_what_is_done_instead() {
        let mut run = Run::new();
        assert_eq!(run.tick("{}"), []);
        let identity = r#"{"beClass": {"cpuQOS": {"enable": true}}}"#;
        let core = r#"{"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true}}}"#;
        for (strategy, level, part) in [
            (identity, Level::Info, "cpu.bvt_warp_ns is not written"),
            (core, Level::Warn, "threads are not put into core scheduling groups"),
            (identity, Level::Info, "have cpu.idle instead"),
        ] {
            let said = run.tick(strategy);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].0 == level && said[0].1.contains(part), "{said:?}");
            assert_eq!(run.tick(strategy), []);
        }
    }

    #[test]
    fn a_kernel_with_identities_misses_nothing_and_its_containers_are_not_idle() {
        let mut run = Run::new();
        let identity = r#"{"beClass": {"cpuQOS": {"enable": true}}}"#;
        run.host.columns.group_identity = true;
        assert_eq!(run.tick(identity), []);
        run.host.assert_held(JOB, CPU_BVT, -1);
        run.host.assert_free(JOB, CPU_IDLE);
        // If another program makes the switch read-only, only the upstream means remain.
        run.host.columns.group_identity = false;
        assert_eq!(run.tick(identity).len(), 1);
        run.host.assert_free(JOB, CPU_BVT);
        run.host.assert_held(JOB, CPU_IDLE, 1);
    }

    #[test]
    fn with_core_scheduling_a_container_is_in_its_pods_group_as_long_as_the_kernel_has_it() {
        let mut run = Run::new();
        let core =
            r#"{"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}"#;
        run.host.columns.core_scheduling = true;
        // Alibaba's kernels have both features, which exclude each other.
        run.host.columns.group_identity = true;
        assert_eq!(run.tick(core), []);
        run.host.assert_held(JOB, CORE_GROUP, i64::try_from(qosm_sdk::core_group("")).unwrap());
        run.host.assert_held(JOB, CPU_IDLE, 1);
        run.host.assert_free(JOB, CPU_BVT);
        run.host.columns.core_scheduling = false;
        assert_eq!(run.tick(core).len(), 1);
        run.host.assert_free(JOB, CORE_GROUP);
        run.host.assert_held(JOB, CPU_IDLE, 1);
    }

    #[test]
    fn a_core_scheduling_policy_that_does_not_exist_is_rejected() {
        let mut run = Run::new();
        for (word, message) in [
            ("Exclusive", Some("it is `Exclusive`; write `exclusive` or `none`, or remove it")),
            ("exclusive", None),
            ("none", None),
            ("", None),
        ] {
            let labels = vec![(POLICY_LABEL.to_owned(), word.to_owned())];
            let web = PodFacts { labels, ..mock::pod(2, "shop", "web") };
            let rejections = run.policy.pods(&mut run.host, vec![web], &[]).unwrap();
            assert_eq!(rejections.first().map(|rejection| rejection.message.as_str()), message, "{word}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_is_a_problem_and_what_was_held_stays() {
        let mut run = Run::new();
        run.tick(r#"{"beClass": {"cpuQOS": {"enable": true}}}"#);
        run.host.assert_held(JOB, CPU_IDLE, 1);
        for (strategy, field, message) in [
            (r#"{"beClass": {"cpuQOS": {"enable": true, "groupIdentity": 1e400}}}"#, "", "give a JSON object"),
            (
                r#"{"beClass": {"cpuQOS": {"enable": "no"}}}"#,
                "beClass.cpuQOS.enable",
                "it is \"no\"; write `true` or `false`. Until then its last valid value counts, after a start as if it were left out",
            ),
        ] {
            for _ in 0..2 {
                assert_eq!(run.tick(strategy), []);
                let [problem] = run.host.key_problems.as_slice() else { panic!("{:?}", run.host.key_problems) };
                assert_eq!((problem.key.as_str(), problem.field.as_str()), ("resource-qos-config", field));
                assert!(problem.message.contains(message), "{problem:?}");
            }
        }
        run.host.assert_held(JOB, CPU_IDLE, 1);
        assert_eq!(run.tick(r#"{"beClass": {"cpuQOS": {"enable": false}}}"#), []);
        run.host.assert_free(JOB, CPU_IDLE);
    }
}
