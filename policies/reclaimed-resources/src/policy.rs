//! The connection to the host: columns become [`Inputs`](crate::Inputs), and [`Decisions`] are declared.

mod inputs;
mod protocol;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use qosm_sdk::{Host, Level, NoConfig, Offer, Pod, PodId, Pods, Policy, Rejection, Tick, ZoneShare};

use crate::amounts::{Amounts, Resource};
use crate::config::{Config, PolicyConfig, Settings, Suppression};
use crate::enforce::Setting;
use crate::json::{self, Fault};
use crate::layers::Layers;
use crate::node::Node;
use crate::publish::Published;
use crate::{Now, State, saved_state, tick};

qosm_sdk::export!(ReclaimedResources);

/// Key of the cluster ConfigMap with the strategy.
const STRATEGY_KEY: &str = "colocation-config";
/// Key of the cluster ConfigMap that tells whether suppression sets the quota of the besteffort tier.
const THRESHOLD_KEY: &str = "resource-threshold-config";
/// Interval between saves; what a restart loses of the averages is measured again.
const SAVE_USEC: u64 = 60_000_000;
/// Prefix of the finding about the status of all amounts.
const STATUS: &str = "amounts are ";
/// Limits of the host's interface.
const SHORTEST_STALE_SECONDS: u32 = 60;
const LONGEST_STALE_SECONDS: u32 = 86_400;
const MAX_ZONES: usize = 64;
const MAX_AMOUNT: u64 = u64::MAX >> 1;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct ReclaimedResources {
    policy: PolicyConfig,
    settings: Settings,
    suppression: Suppression,
    state: State,
    pods: Pods<NoConfig>,
    node: Option<Node>,
    /// Generation of the Node object when it was last read.
    node_generation: u64,
    config_generation: u64,
    /// What is wrong with the cluster's strategy, and what counts instead.
    config_faults: Vec<Fault>,
    is_reconfigured: bool,
    /// Whether the cluster's strategy was read once.
    has_strategy: bool,
    is_restored: bool,
    unsaved_usec: u64,
    /// Findings that were logged and still apply.
    told: BTreeSet<String>,
}

impl Policy for ReclaimedResources {
    type Config = PolicyConfig;
    type PodConfig = NoConfig;

    fn describe() -> qosm_sdk::Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, policy: PolicyConfig) -> Result<(), String> {
        Config { policy: policy.clone(), ..Config::default() }.check()?;
        self.policy = policy;
        self.is_reconfigured = true;
        if !std::mem::replace(&mut self.is_restored, true) {
            let (bytes, age_usec) = (host.load_state(), host.state_age_usec());
            match saved_state::decode(&bytes, age_usec) {
                Some(state) => self.state = state,
                None => host.log(Level::Warn, "what was measured before cannot be read: it is measured again"),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        self.pods.update(upserted, removed);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, now: Tick) -> Result<(), String> {
        self.read_config(host);
        self.read_node(host);
        let inputs = inputs::read(host, self.node.as_ref(), &self.pods);
        let decisions = tick(&mut self.state, &self.settings, &inputs, Now { window_usec: now.window_usec });
        let (of_config, others): (Vec<_>, Vec<_>) =
            decisions.findings.iter().partition(|finding| finding.object == STRATEGY_KEY);
        for Fault { field, message } in of_config.into_iter().map(|finding| &finding.fault).chain(&self.config_faults) {
            host.problem(STRATEGY_KEY, field, &format!("it {message}"));
        }
        let mut findings: BTreeSet<String> = others.into_iter().map(ToString::to_string).collect();
        match &decisions.settings {
            Some(settings) => settings.iter().for_each(|setting| hold(host, setting)),
            None => host.keep_all(),
        }
        self.publish(host, &decisions.publication.published, decisions.degrade_minutes);
        findings.insert(format!("{STATUS}{}", decisions.publication.status));
        self.tell(host, findings);
        self.save(host, now.window_usec, decisions.publication.due.is_some());
        Ok(())
    }
}

impl ReclaimedResources {
    /// Reads the ConfigMap if it or the policy's own configuration has changed. If it cannot be used, the previous strategy stays in force;
    /// after a start there is none, and only the fields that cannot be used count as left out.
    fn read_config<H: Host>(&mut self, host: &mut H) {
        let generation = host.config_generation();
        if generation == self.config_generation && !self.is_reconfigured {
            return;
        }
        (self.config_generation, self.is_reconfigured) = (generation, false);
        self.config_faults.clear();
        let base = self.policy.defaults.strategy();
        let body = host.config_text(STRATEGY_KEY).map(|text| json::parse(&text)).transpose();
        let strategy = match &body {
            Ok(Some(body)) => Layers::read(body, &base),
            Ok(None) => Ok(Layers::none(base.clone())),
            Err(why) => Err(why.clone()),
        };
        match strategy {
            Ok(layers) => self.settings.layers = layers,
            Err(why) if !self.has_strategy => {
                let (layers, faults) = match &body {
                    Ok(Some(body)) => Layers::read_rest(body, &base),
                    _ => (Layers::none(base), vec![why]),
                };
                self.settings.layers = layers;
                let left_out = |Fault { field, message }| {
                    let counts = if field == "enable" { "it is switched off" } else { "it counts as left out" };
                    Fault { field, message: format!("{message}; {counts}") }
                };
                self.config_faults = faults.into_iter().map(left_out).collect();
            }
            Err(why) => {
                // `enable: false` takes effect even if other fields are wrong.
                let is_off = |body: &Map<String, Value>| json::switch(body, "enable") == Ok(Some(false));
                let counts = match body {
                    Ok(Some(body)) if is_off(&body) => {
                        self.settings.layers.switch_off();
                        "it is switched off, and the strategy before counts on for the rest"
                    }
                    _ => "the strategy before counts on",
                };
                self.config_faults = vec![Fault { message: format!("{}; {counts}", why.message), ..why }];
            }
        }
        self.has_strategy = true;
        let threshold = json::parse(&host.config_strategy(THRESHOLD_KEY)).unwrap_or_default();
        self.suppression = Suppression::read(&threshold, self.suppression);
        self.settings.quota_is_the_tiers = self.suppression.sets_quota(self.policy.defaults);
        self.settings.policy = self.policy.clone();
    }

    fn read_node<H: Host>(&mut self, host: &mut H) {
        let generation = host.node_object_generation();
        if generation != self.node_generation || self.node.is_none() {
            self.node_generation = generation;
            self.node = host.node_object().map(|object| inputs::node(&object));
        }
    }

    /// Declares the amounts to publish; the host withdraws names that are not declared.
    fn publish<H: Host>(&self, host: &mut H, published: &Published, degrade_minutes: u64) {
        if published.offers.is_empty() {
            return;
        }
        let seconds = u32::try_from(degrade_minutes.saturating_mul(60)).unwrap_or(u32::MAX);
        host.stale_after(seconds.clamp(SHORTEST_STALE_SECONDS, LONGEST_STALE_SECONDS));
        for (name, offer) in &published.offers {
            // Zones and the original amount exist for batch resources only.
            let resource = match name {
                name if self.policy.batch_cpu_names.contains(name) => Some(Resource::Cpu),
                name if self.policy.batch_memory_names.contains(name) => Some(Resource::Memory),
                _ => None,
            };
            let share = |(&zone, amounts): (&u32, &Amounts)| {
                Some(ZoneShare { zone, amount: amounts.of(resource?).min(MAX_AMOUNT) })
            };
            let zones = published.zones.iter().filter_map(share).take(MAX_ZONES).collect();
            let origin = published.origin.zip(resource).map(|(origin, resource)| origin.of(resource).min(MAX_AMOUNT));
            host.publish(name, &Offer { amount: offer.amount.min(MAX_AMOUNT), zones, origin }, &offer.reason);
        }
    }

    /// Logs findings that are new since the last evaluation.
    fn tell<H: Host>(&mut self, host: &mut H, findings: BTreeSet<String>) {
        for news in findings.difference(&self.told) {
            let level = if news.starts_with(STATUS) { Level::Info } else { Level::Warn };
            host.log(level, news);
        }
        self.told = findings;
    }

    fn save<H: Host>(&mut self, host: &mut H, window_usec: u64, is_published: bool) {
        self.unsaved_usec = self.unsaved_usec.saturating_add(window_usec);
        if self.unsaved_usec < SAVE_USEC && !is_published {
            return;
        }
        self.unsaved_usec = 0;
        let bytes = saved_state::encode(&self.state, saved_state::MAX_BYTES);
        if let Err(why) = host.save_state(&bytes) {
            host.log(Level::Warn, &format!("what was measured is not saved: {why}"));
        }
    }
}

/// Declares the values of a cgroup.
fn hold<H: Host>(host: &mut H, setting: &Setting) {
    let Setting { target, shares, quota_usec, memory_bytes, above_limit_bytes: _, reason } = setting;
    host.set_shares(*target, u32::try_from(*shares).unwrap_or(u32::MAX), reason);
    // A pod's owner may write any number; larger ones than files hold must not stop the policy.
    host.set_quota(*target, quota_usec.map(|quota| quota.min(MAX_AMOUNT)), reason);
    host.set_memory_limit(*target, memory_bytes.map(|bytes| bytes.min(MAX_AMOUNT)), reason);
}

#[cfg(test)]
mod tests {
    use qosm_sdk::mock::{self, ConfigKey, KeyProblem, MockHost};
    use qosm_sdk::{ApplicationUse, Group, GroupMemory, GroupUse, NodeMemory, NodeSample, Session, Tier};

    use super::*;

    fn host() -> MockHost {
        let mut host = MockHost::default();
        let columns = &mut host.columns;
        let total_bytes = 64 << 30;
        columns.node = Some(NodeSample { cpu_usage_usec: Some(0), ..mock::node(16, total_bytes) });
        columns.node_memory = Some(NodeMemory {
            total_bytes,
            free_bytes: total_bytes,
            available_bytes: total_bytes,
            active_file_bytes: 0,
            inactive_file_bytes: 0,
            min_mark_bytes: None,
            low_mark_bytes: None,
            high_mark_bytes: None,
        });
        columns.node_object = Some(mock::node_object("edge-7", 16, total_bytes));
        let memory = Some(GroupMemory { usage_bytes: 0, active_file_bytes: 0, inactive_file_bytes: 0 });
        columns.groups = vec![GroupUse { cpu_usage_usec: Some(0), memory, ..mock::group_use(Group::Outside) }];
        host
    }

    fn amount(host: &MockHost, name: &str) -> Option<u64> {
        host.published().get(name).map(|offer| offer.amount)
    }

    fn configure(host: &mut MockHost, key: &str, text: &str, strategy: &str) {
        let value = ConfigKey { text: text.into(), strategy: strategy.into() };
        host.columns.cluster_config.insert(key.into(), value);
    }

    #[test]
    fn a_text_that_cannot_be_read_leaves_the_strategy_before_and_the_rest_counts() {
        let (mut host, mut policy) = (host(), Session::<ReclaimedResources>::default());
        let enabled = r#"{"enable": true, "cpuReclaimThresholdPercent": 50}"#;
        configure(&mut host, STRATEGY_KEY, enabled, "{}");
        policy.configure(&mut host, "{}").unwrap();
        policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
        host.commit();
        assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), Some(8000));

        for text in ["", "{", "[]", r#"{"enable": true, "cpuReclaimThresholdPercent": 1e400}"#] {
            configure(&mut host, STRATEGY_KEY, text, "{}");
            policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
            host.commit();
            assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), Some(8000), "{text}");
            let [KeyProblem { key, message, .. }] = host.key_problems.as_slice() else { panic!("{text}: {host:?}") };
            assert_eq!(key, STRATEGY_KEY);
            assert!(message.starts_with("it ") && message.ends_with("; the strategy before counts on"), "{message}");
        }

        // `enable: false` takes effect beside another wrong field.
        configure(&mut host, STRATEGY_KEY, r#"{"enable": false, "degradeTimeMinutes": 0}"#, "{}");
        policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
        host.commit();
        assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), None);
        let told = KeyProblem {
            key: STRATEGY_KEY.to_owned(),
            field: "degradeTimeMinutes".to_owned(),
            message: "it is `0`; set a whole number from 1 to 1440, or leave it out; it is switched off, and the strategy before counts on \
                      for the rest"
                .to_owned(),
        };
        policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
        assert_eq!(host.key_problems, [told], "it lasts");
        host.commit();
        configure(&mut host, STRATEGY_KEY, enabled, "{}");

        // The policy's own configuration applies all the same.
        policy.configure(&mut host, r#"{"batchCPUNames": ["example.com/batch-cpu"]}"#).unwrap();
        policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
        host.commit();
        assert_eq!(amount(&host, "example.com/batch-cpu"), Some(8000));
        assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), None);
    }

    #[test]
    fn after_a_start_a_wrong_field_counts_as_left_out_and_the_rest_applies() {
        let wrong = r#""degradeTimeMinutes": 0, "batchCPUThresholdPercent": "x""#;
        let colocation = r#"{"defaults": "colocation"}"#;
        for (config, text, batch_cpu) in [
            ("{}", format!(r#"{{"enable": true, "cpuReclaimThresholdPercent": 50, {wrong}}}"#), Some(8000)),
            ("{}", format!(r#"{{"cpuReclaimThresholdPercent": 50, {wrong}}}"#), None),
            (colocation, format!(r#"{{"cpuReclaimThresholdPercent": 50, {wrong}}}"#), Some(8000)),
            (colocation, format!(r#"{{"enable": false, {wrong}}}"#), None),
            (colocation, r#"{"enable": "false"}"#.to_owned(), None),
            (colocation, r#"{"cpuReclaimThresholdPercent": 1e400}"#.to_owned(), Some(9600)),
            ("{}", "{".to_owned(), None),
        ] {
            let (mut host, mut policy) = (host(), Session::<ReclaimedResources>::default());
            configure(&mut host, STRATEGY_KEY, &text, "{}");
            policy.configure(&mut host, config).unwrap();
            policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
            let fields: Vec<_> = host.key_problems.iter().map(|problem| problem.field.as_str()).collect();
            if text.contains(wrong) {
                assert_eq!(fields, ["batchCPUThresholdPercent", "degradeTimeMinutes"], "{text}");
            }
            assert!(!fields.is_empty(), "{text}");
            for KeyProblem { message, .. } in &host.key_problems {
                let ends = ["; it counts as left out", "; it is switched off"];
                assert!(ends.iter().any(|end| message.ends_with(end)), "{message}");
            }
            host.commit();
            assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), batch_cpu, "{text}");
        }
    }

    #[test]
    fn what_prod_applications_use_is_taken_from_what_batch_gets_and_what_batch_ones_use_is_not() {
        let application = |name: &str, priority: &str, tier| ApplicationUse {
            name: name.to_owned(),
            qos: None,
            priority: Some(priority.to_owned()),
            tier,
            cpu_usage_usec: Some(60_000_000),
            memory: Some(GroupMemory { usage_bytes: 0, active_file_bytes: 0, inactive_file_bytes: 0 }),
        };
        let one = |priority: &str, tier| vec![application("one", priority, tier)];
        for (applications, expected) in [
            (Vec::new(), 14_000),
            (one("koord-prod", None), 14_000),
            (one("koord-mid", None), 14_000),
            (one("koord-batch", None), 15_000),
            (one("", None), 15_000),
            (one("koord-batch", Some(Tier::BestEffort)), 14_000),
        ] {
            let (mut host, mut policy) = (host(), Session::<ReclaimedResources>::default());
            configure(&mut host, STRATEGY_KEY, r#"{"enable": true, "cpuReclaimThresholdPercent": 100}"#, "{}");
            policy.configure(&mut host, "{}").unwrap();
            // The processes outside all pods use two CPUs, of which a host application uses one.
            host.columns.groups[0].cpu_usage_usec = Some(120_000_000);
            host.columns.applications.clone_from(&applications);
            for _ in 0..10 {
                policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
                host.commit();
            }
            assert_eq!(amount(&host, "kubernetes.io/batch-cpu"), Some(expected), "{applications:?}");
        }
    }

    #[test]
    fn averages_outlive_the_instance_by_the_age_that_the_host_tells() {
        let (mut host, mut policy) = (host(), Session::<ReclaimedResources>::default());
        configure(&mut host, STRATEGY_KEY, r#"{"enable": true, "cpuReclaimThresholdPercent": 100}"#, "{}");
        policy.configure(&mut host, "{}").unwrap();
        for _ in 0..10 {
            // The system uses two CPUs.
            host.columns.groups[0].cpu_usage_usec = Some(120_000_000);
            policy.evaluate(&mut host, mock::tick(60_000)).unwrap();
            host.commit();
        }
        let batch_cpu = |host: &MockHost| amount(host, "kubernetes.io/batch-cpu");
        assert_eq!(batch_cpu(&host), Some(14_000));
        let told = |host: &MockHost, what: &str| host.log.iter().any(|(_, line)| line.contains(what));
        for (age_usec, is_known) in [(Some(30_000_000), true), (Some(3_000_000_000), false), (None, false)] {
            let mut next = self::host();
            configure(&mut next, STRATEGY_KEY, r#"{"enable": true, "cpuReclaimThresholdPercent": 100}"#, "{}");
            (next.state, next.state_age_usec) = (host.state.clone(), age_usec);
            next.columns.node = Some(NodeSample { cpu_usage_usec: None, ..mock::node(16, 64 << 30) });
            let mut policy = Session::<ReclaimedResources>::default();
            policy.configure(&mut next, "{}").unwrap();
            policy.evaluate(&mut next, mock::tick(0)).unwrap();
            next.commit();
            assert_eq!(told(&next, "amounts are published"), is_known, "{age_usec:?}: {:?}", next.log);
            // 50 minutes are longer than `degradeTimeMinutes`, so the amount is withdrawn.
            let expected = if age_usec.is_some_and(|age| age > 900_000_000) { None } else { Some(14_000) };
            assert_eq!(batch_cpu(&next), expected, "{age_usec:?}: {:?}", next.log);
        }
    }

    #[test]
    fn what_the_host_cannot_take_is_refused_when_it_is_configured() {
        let (mut host, mut policy) = (host(), Session::<ReclaimedResources>::default());
        for (config, field) in [(r#"{"batchCPUNames": ["cpu"]}"#, "batchCPUNames"), (r#"{"publsh": true}"#, "publsh")] {
            let error = policy.configure(&mut host, config).unwrap_err();
            assert!(error.contains(field), "{error}");
        }
    }
}
