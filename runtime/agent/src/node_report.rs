//! Account, the part for the fleet: this node's report.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp as Moment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use qosm_cluster::node_report::{
    ENDED, NodePolicyReportStatus, ReportedCapabilities, ReportedCounts, ReportedPolicy, ReportedProblem,
};
use qosm_host::{CgroupVersion, Controller, Support};
use qosm_model::knob::Level;

use crate::account::unloaded_state;
use crate::agent::Agent;
use crate::config::PolicyMode;
use crate::policy::{Now, Policy};

/// So many problems are listed; their number stands among the counts.
const LISTED_PROBLEMS: usize = 20;
/// An agent that ends waits no longer than this for its last report.
const FAREWELL_WITHIN: Duration = Duration::from_secs(2);
/// Longer errors are cut: the whole of it is in `qosm explain`.
const LONGEST_ERROR: usize = 1000;

/// What is reported beside counts does not change with each tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporting {
    capabilities: Option<ReportedCapabilities>,
    /// Whether the node was ready when last reported, and since when.
    ready: Option<(bool, Moment)>,
}

impl Agent {
    /// Tells the fleet how this node fares, if anybody listens.
    pub(crate) fn report(&mut self, now: Now) {
        if let Some(outbox) = self.outbox.clone() {
            outbox.report(self.node_report(now));
        }
    }

    /// Tells the fleet that this agent ends; whether another follows is not its to say.
    pub(crate) fn say_farewell(&mut self, now: Now) {
        let Some(outbox) = self.outbox.clone() else { return };
        let mut report = self.node_report(now);
        for policy in &mut report.policies {
            policy.state = "ended".to_owned();
        }
        report.summary = format!("0/{}", report.policies.len());
        let left = report.counts.knobs;
        let message = format!("the agent has ended; {left} knobs stay as it left them");
        report.conditions = vec![condition(false, ENDED, message, moment(now))];
        outbox.close(report, FAREWELL_WITHIN);
    }

    /// This node's report.
    pub fn node_report(&mut self, now: Now) -> NodePolicyReportStatus {
        let health = self.health();
        // Trying the kernel out takes a while; it stays what it is.
        let capabilities = self.reporting.capabilities.take().unwrap_or_else(|| self.capabilities());
        self.reporting.capabilities = Some(capabilities.clone());
        let since = match self.reporting.ready {
            Some((ready, since)) if ready == health.is_ok() => since,
            _ => moment(now),
        };
        self.reporting.ready = Some((health.is_ok(), since));
        let running = self.policies.iter().filter(|policy| policy.health.error().is_none()).count();
        let policies: Vec<_> = self
            .policies
            .iter()
            .map(reported)
            .chain(self.unloaded.iter().map(|policy| ReportedPolicy {
                name: policy.policy.clone(),
                mode: mode(policy.mode).to_owned(),
                state: unloaded_state(policy.is_pending).to_owned(),
                // What is only on its way is no failure yet.
                error: (!policy.is_pending).then(|| shortened(&policy.error)),
                ..ReportedPolicy::default()
            }))
            .collect();
        NodePolicyReportStatus {
            reported_at: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            summary: format!("{running}/{}", policies.len()),
            policies,
            counts: self.reported_counts(),
            capabilities,
            problems: self
                .problems
                .iter()
                // What is wrong with the way to the API server would be told there when it is mended, by all nodes at once, and again
                // for each watch that goes on.
                .filter(|problem| !problem.object.starts_with("pod ") && !self.sources.troubles.contains(problem))
                .take(LISTED_PROBLEMS)
                .map(|problem| ReportedProblem {
                    object: problem.object.clone(),
                    field: problem.field.clone(),
                    message: shortened(&problem.message),
                })
                .collect(),
            conditions: vec![ready(&health, since)],
        }
    }

    fn reported_counts(&self) -> ReportedCounts {
        let mut managed: Vec<_> =
            self.held.keys().filter_map(|(target, _)| self.pods.of(*target)).map(|entry| entry.id).collect();
        managed.sort_unstable();
        managed.dedup();
        let drifted =
            self.held.keys().filter(|key| self.held.get(key).is_some_and(|held| held.hands_off_until.is_some()));
        ReportedCounts {
            pods: counted(self.pods.len()),
            managed_pods: counted(managed.len()),
            knobs: counted(self.held.keys().count()),
            refusals: counted(self.refusals.len()),
            drifted: counted(drifted.count()),
            problems: counted(self.problems.len()),
        }
    }

    fn capabilities(&mut self) -> ReportedCapabilities {
        let facts = self.host.facts();
        let cpu =
            facts.controllers.iter().find(|fact| fact.controller == Controller::Cpu).and_then(|fact| fact.version);
        let mut knobs: BTreeMap<String, String> = BTreeMap::new();
        // The level at which most policies act stands for the knob; tiers only where there is no other.
        for level in [Level::Tier, Level::Pod, Level::Container] {
            for fact in facts.knobs.iter().filter(|fact| fact.level == level) {
                let support = match &fact.support {
                    Support::Unavailable { why } => format!("unavailable: {why}"),
                    support @ (Support::Native | Support::Emulated { .. }) => support.as_str().to_owned(),
                };
                knobs.insert(fact.knob.to_string(), support);
            }
        }
        ReportedCapabilities {
            cgroup: match cpu {
                Some(CgroupVersion::V1) => "v1",
                Some(CgroupVersion::V2) => "v2",
                None => "",
            }
            .to_owned(),
            numa_nodes: facts.numa_nodes,
            knobs,
        }
    }
}

fn reported(policy: &Policy) -> ReportedPolicy {
    let refused = policy.newer.as_ref().filter(|newer| !newer.is_pending);
    let error = policy.health.error().map(str::to_owned).or_else(|| policy.not_taken());
    ReportedPolicy {
        name: policy.name().to_string(),
        generation: policy.generation,
        module: policy.origin.reference.to_string(),
        artifact: policy.origin.artifact.as_ref().map(|(digest, _)| digest.to_string()),
        trusted: policy.origin.artifact.as_ref().map(|(_, trusted)| trusted.to_string()),
        version: format!("{}@{}", policy.description.name, policy.description.version),
        digest: policy.module.digest().to_string(),
        mode: mode(policy.mode()).to_owned(),
        state: policy.health.as_str().to_owned(),
        error: error.as_deref().map(shortened),
        refused_generation: refused.and_then(|newer| newer.generation),
    }
}

/// As PolicyModules spell it.
fn mode(mode: PolicyMode) -> &'static str {
    match mode {
        PolicyMode::Active => "enforce",
        PolicyMode::Shadow => "shadow",
    }
}

fn ready(health: &Result<(), String>, since: Moment) -> Condition {
    match health {
        Ok(()) => condition(true, "Running", "every policy that counts runs".to_owned(), since),
        Err(why) => condition(false, "Ailing", shortened(why), since),
    }
}

fn condition(is_ready: bool, reason: &str, message: String, since: Moment) -> Condition {
    Condition {
        type_: "Ready".to_owned(),
        status: if is_ready { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: None,
        last_transition_time: Time(since),
    }
}

fn moment(now: Now) -> Moment {
    Moment::from_millisecond(now.wall.0).unwrap_or_default()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn counted(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
