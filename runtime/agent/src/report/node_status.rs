//! This node's report, for the NodePolicyReport.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp as Moment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use qosm_cluster::node_report::{
    ENDED, NodePolicyReportStatus, ReportedCapabilities, ReportedCounts, ReportedPolicy, ReportedProblem,
    ReportedTopology,
};
use qosm_engine::Interface;
use qosm_host::{CgroupVersion, Controller, Host, Support};
use qosm_model::knob::Level;

use crate::config::PolicyMode;
use crate::now::Now;
use crate::policy::Policy;
use crate::report::inspect::not_loaded_state;
use crate::report::view::View;
use crate::reporting::Reporting;

/// Maximum number of problems that are listed; the counts have the number of all.
const LISTED_PROBLEMS: usize = 20;
/// Maximum time for which an ending agent waits until its last report is sent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of an error, in characters; `qosm explain` shows all of it.
const MAX_ERROR: usize = 1000;

impl Reporting {
    /// Publishes the node's report, if there is an API server.
    pub(crate) fn report(&mut self, view: &View<'_>, now: Now) {
        if let Some(outbox) = self.outbox.clone() {
            outbox.report(self.node_status(view, now));
        }
    }

    /// Publishes that this agent ends.
    ///
    /// `keeps`: held knobs stay, and another agent is expected.
    pub(crate) fn send_final_report(&mut self, view: &View<'_>, keeps: bool, now: Now) {
        let Some(outbox) = self.outbox.clone() else { return };
        let mut report = self.node_status(view, now);
        for policy in &mut report.policies {
            policy.state = "ended".to_owned();
        }
        report.summary = format!("0/{}", report.policies.len());
        let left = report.counts.knobs;
        let message = format!("the agent has ended; {left} knobs stay as it left them");
        // The next agent renews the resources, or they become stale: taken off the Node in between, they would be missing for pods that
        // run on them.
        if !keeps {
            (report.resources, report.resources_stale_after_seconds) = (Vec::new(), None);
        }
        report.evictions = Vec::new();
        report.topology = report.topology.filter(|_| keeps);
        report.conditions = vec![condition(false, ENDED, message, moment(now))];
        outbox.send_final_report(report, DRAIN_TIMEOUT);
    }

    /// This node's report.
    pub(crate) fn node_status(&mut self, view: &View<'_>, now: Now) -> NodePolicyReportStatus {
        let health = self.health(view);
        // Probing the kernel takes a while, and the result does not change.
        let capabilities = self.capabilities.take().unwrap_or_else(|| capabilities(view.host));
        self.capabilities = Some(capabilities.clone());
        let since = match self.ready {
            Some((ready, since)) if ready == health.is_ok() => since,
            _ => moment(now),
        };
        self.ready = Some((health.is_ok(), since));
        let running = view.policies.iter().filter(|policy| policy.health.error().is_none()).count();
        let policies: Vec<_> = view
            .policies
            .iter()
            .map(reported)
            .chain(view.policies.load_failed().iter().map(|policy| ReportedPolicy {
                name: policy.policy.clone(),
                mode: mode(policy.mode).to_owned(),
                state: not_loaded_state(policy.is_pending).to_owned(),
                // A module that is still being fetched is no failure yet.
                error: (!policy.is_pending).then(|| shortened(&policy.error)),
                ..ReportedPolicy::default()
            }))
            .collect();
        NodePolicyReportStatus {
            reported_at: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            summary: format!("{running}/{}", policies.len()),
            policies,
            counts: self.counts(view),
            capabilities,
            problems: self
                .problems
                .iter()
                // Problems with the connection to the API server would be written there once it is restored, by all nodes at once, and again
                // for each watch that continues.
                .filter(|problem| !problem.object.starts_with("pod ") && !view.sources.troubles.contains(problem))
                .take(LISTED_PROBLEMS)
                .map(|problem| ReportedProblem {
                    object: problem.object.clone(),
                    field: problem.field.clone(),
                    message: shortened(&problem.message),
                })
                .collect(),
            conditions: vec![ready(&health, since)],
            resources: view.controls.resources().reported(),
            resources_stale_after_seconds: view.controls.resources().stale_after(),
            evictions: view.controls.evictions().reported(),
            topology: self.topology(view),
            controller: None,
        }
    }

    /// The node's CPUs while a policy imports them: a scheduler relies on what is reported.
    fn topology(&self, view: &View<'_>) -> Option<ReportedTopology> {
        let sees_cpus = view.policies.active().any(|policy| policy.imports(Interface::CpuTopology));
        self.topology.as_ref().filter(|_| sees_cpus).map(|(_, reported)| reported.clone())
    }

    fn counts(&self, view: &View<'_>) -> ReportedCounts {
        let mut managed: Vec<_> =
            view.ledger.held().keys().filter_map(|(target, _)| view.pods.of(*target)).map(|entry| entry.id).collect();
        managed.sort_unstable();
        managed.dedup();
        let drifted = view
            .ledger
            .held()
            .keys()
            .filter(|key| view.ledger.held().get(key).is_some_and(|held| held.hands_off_until.is_some()));
        ReportedCounts {
            pods: counted(view.pods.len()),
            managed_pods: counted(managed.len()),
            knobs: counted(view.ledger.held().keys().count()),
            refusals: counted(view.ledger.refusal_count()),
            drifted: counted(drifted.count()),
            problems: counted(self.problems.len()),
        }
    }
}

fn capabilities(host: &Host) -> ReportedCapabilities {
    let facts = host.facts();
    let cpu = facts.controllers.iter().find(|fact| fact.controller == Controller::Cpu).and_then(|fact| fact.version);
    let mut knobs: BTreeMap<String, String> = BTreeMap::new();
    // A knob's support is reported for the level at which most policies act; for tiers and the node only if there is no other.
    for level in Level::ALL {
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

fn reported(policy: &Policy) -> ReportedPolicy {
    let refused = policy.pending_update.as_ref().filter(|pending_update| !pending_update.is_pending);
    // A version that is still being fetched or tried is no failure yet.
    let error = policy.health.error().map(str::to_owned).or_else(|| refused.map(ToString::to_string));
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
        refused_generation: refused.and_then(|pending_update| pending_update.generation),
    }
}

/// A mode as PolicyModules spell it.
fn mode(mode: PolicyMode) -> &'static str {
    match mode {
        PolicyMode::Active => "enforce",
        PolicyMode::Shadow => "shadow",
    }
}

fn ready(health: &Result<(), String>, since: Moment) -> Condition {
    match health {
        Ok(()) => condition(true, "Running", "every active policy runs".to_owned(), since),
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
    match text.char_indices().nth(MAX_ERROR) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn counted(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
