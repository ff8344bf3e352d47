//! Extended resources of the node: those that policies publish go into the node's report, and the controller's answers come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_cluster::node_report::{ControllerAnswer, MAX_RESOURCES, ReportedResource, ReportedZone, STALE_AFTER_SECONDS};
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::node_resource::{Offer, ResourceName, ResourceState};
use qosm_model::pod::PodId;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::columns::Readings;
use crate::config::GuardRails;
use crate::controls::control::{Control, ControlDecisions, Rows};
use crate::inputs::Inputs;
use crate::policy::Reach;
use crate::replay::line::TickLine;
use crate::report::{NodeResourceReport, PodReport, ResourceDecision};
use crate::table::PodTable;

/// What one policy publishes.
#[derive(Debug)]
struct Published {
    holder: Holder,
    offers: BTreeMap<ResourceName, Publication>,
    stale_after: Option<u32>,
    /// When the policy last worked; `None` before the first step.
    worked_at: Option<Micros>,
    /// Whether the policy has failed for so long that its amounts are no longer valid.
    is_stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Publication {
    offer: Offer,
    reason: Arc<str>,
}

/// Resources that policies publish.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    published: Vec<Published>,
    /// What the policy that is staging all it wants has not named yet.
    undeclared: BTreeSet<ResourceName>,
    /// The resources of the last report, to detect changes.
    reported: BTreeMap<ResourceName, (Arc<str>, Publication)>,
    /// State of each resource, as of the last step.
    states: Arc<[(Arc<str>, ResourceState)]>,
    refused: BTreeMap<(Arc<str>, ResourceName), String>,
}

impl Resources {
    /// The policy's entry, added if it is missing. Entries are sorted by descending priority.
    fn change(&mut self, holder: &Holder) -> &mut Published {
        let rank = |holder: &Holder| (std::cmp::Reverse(holder.priority), Arc::clone(&holder.policy));
        if let Some(place) = self.published.iter().position(|own| own.holder.policy == holder.policy) {
            if self.published[place].holder == *holder {
                return &mut self.published[place];
            }
            let mut own = self.published.remove(place);
            own.holder = holder.clone();
            let place = self.published.partition_point(|other| rank(&other.holder) < rank(holder));
            self.published.insert(place, own);
            return &mut self.published[place];
        }
        let place = self.published.partition_point(|other| rank(&other.holder) < rank(holder));
        let own = Published {
            holder: holder.clone(),
            offers: BTreeMap::new(),
            stale_after: None,
            worked_at: None,
            is_stale: false,
        };
        self.published.insert(place, own);
        &mut self.published[place]
    }

    fn of(&mut self, policy: &str) -> Option<&mut Published> {
        self.published.iter_mut().find(|own| *own.holder.policy == *policy)
    }

    fn drop_empty(&mut self) {
        self.published.retain(|own| !own.offers.is_empty() || own.stale_after.is_some());
    }

    /// Ages what policies publish that fail: nobody computes these amounts any more, while the agent goes on reporting.
    fn age(&mut self, now: Micros, works: impl Fn(&str) -> bool) {
        for own in &mut self.published {
            let works = works(&own.holder.policy);
            let worked_at = *own.worked_at.get_or_insert(now);
            if works {
                own.worked_at = Some(now);
            }
            let stale_after = u64::from(own.stale_after.unwrap_or(STALE_AFTER_SECONDS)).saturating_mul(1_000_000);
            own.is_stale = !works && now.0.saturating_sub(worked_at.0) > stale_after;
        }
    }

    /// For each resource that may be published, the publication with the highest priority and its policy. The lowest priorities are left
    /// out where there are more than a report may have.
    fn effective(&self, rails: &GuardRails) -> BTreeMap<ResourceName, (Arc<str>, Publication)> {
        let mut effective = BTreeMap::new();
        for own in self.published.iter().filter(|own| !own.is_stale) {
            for (name, publication) in &own.offers {
                if effective.len() < MAX_RESOURCES && rails.publishable_resources.contains(name.as_str()) {
                    let counted = || (Arc::clone(&own.holder.policy), publication.clone());
                    effective.entry(name.clone()).or_insert_with(counted);
                }
            }
        }
        effective
    }

    /// Resources for the node's report.
    pub(crate) fn reported(&self) -> Vec<ReportedResource> {
        let resource = |(name, (policy, Publication { offer, reason })): (&ResourceName, &(Arc<str>, Publication))| {
            ReportedResource {
                name: name.to_string(),
                amount: offer.amount,
                zones: offer.zones.iter().map(|(&zone, &amount)| ReportedZone { zone, amount }).collect(),
                origin: offer.origin,
                policy: policy.to_string(),
                reason: reason.to_string(),
            }
        };
        self.reported.iter().map(resource).collect()
    }

    /// Seconds without a report after which the resources are no longer valid: the shortest time that a policy asks for.
    pub(crate) fn stale_after(&self) -> Option<u32> {
        let is_counted = |own: &&Published| !own.offers.is_empty() && !own.is_stale;
        self.published.iter().filter(is_counted).filter_map(|own| own.stale_after).min()
    }

    /// State of each policy's resources.
    pub(crate) fn states(&self) -> Arc<[(Arc<str>, ResourceState)]> {
        Arc::clone(&self.states)
    }

    /// Reports for `qosm get resources`.
    pub(crate) fn reports(&self) -> Vec<NodeResourceReport> {
        let report = |(policy, state): &(Arc<str>, ResourceState)| {
            let own = self.published.iter().find(|own| own.holder.policy == *policy)?.offers.get(&state.name)?;
            Some(NodeResourceReport {
                name: state.name.to_string(),
                policy: policy.to_string(),
                amount: own.offer.amount,
                zones: own.offer.zones.clone(),
                origin: own.offer.origin,
                on_node: state.amount,
                in_force: state.in_force,
                why: state.why.clone(),
                reason: own.reason.to_string(),
            })
        };
        self.states.iter().filter_map(report).collect()
    }

    fn state(
        &self,
        own: &Published,
        name: &ResourceName,
        offer: &Offer,
        inputs: &Inputs<'_>,
    ) -> (Arc<str>, ResourceState) {
        let answer = inputs.answer.and_then(|answer| answer_of(answer, name));
        let amount = answer.map_or(0, |answer| answer.amount);
        let counts = self.reported.get(name).map(|(policy, _)| policy);
        let why = if own.is_stale {
            Some("the policy has failed for too long, so its amounts are no longer valid".to_owned())
        } else if counts.is_none() {
            Some(why_unreported(name, &inputs.config.guard_rails))
        } else if let Some(other) = counts.filter(|policy| **policy != own.holder.policy) {
            Some(format!("policy {other} publishes it too, with a higher priority"))
        } else if !inputs.has_api_server {
            Some("there is no API server that could put it on a Node".to_owned())
        } else {
            match answer {
                None => Some("the controller has not answered yet".to_owned()),
                Some(answer) if !answer.in_force => Some(answer.message.clone()),
                Some(answer) if answer.amount != offer.amount => {
                    Some(format!("the Node has {} until the controller has taken the change", answer.amount))
                }
                Some(_) => None,
            }
        };
        let state = ResourceState { name: name.clone(), amount, in_force: why.is_none(), why: why.unwrap_or_default() };
        (Arc::clone(&own.holder.policy), state)
    }

    /// Logs once when a resource is not on the Node, and once when it is again.
    fn log_refused(&mut self) {
        let mut refused = BTreeMap::new();
        for (policy, state) in self.states.iter().filter(|(_, state)| !state.in_force) {
            let key = (Arc::clone(policy), state.name.clone());
            if self.refused.get(&key) != Some(&state.why) {
                tracing::info!(%policy, resource = %state.name, why = state.why, "resource not on the Node");
            }
            refused.insert(key, state.why.clone());
        }
        for (policy, name) in self.refused.keys().filter(|key| !refused.contains_key(*key)) {
            if self.reported.contains_key(name) {
                tracing::info!(%policy, resource = %name, "resource on the Node");
            }
        }
        self.refused = refused;
    }
}

/// Why a published resource is not in the node's report.
fn why_unreported(name: &ResourceName, rails: &GuardRails) -> String {
    if rails.publishable_resources.contains(name.as_str()) {
        format!(
            "a node publishes at most {MAX_RESOURCES} resources, and policies that come before this one publish as many; withdraw one of \
             theirs, or take it out of `guardRails.publishableResources` of the agent's file"
        )
    } else {
        format!("`{name}` may not be published here; add it to `guardRails.publishableResources` of the agent's file")
    }
}

fn answer_of<'a>(
    answer: &'a ControllerAnswer,
    name: &ResourceName,
) -> Option<&'a qosm_cluster::node_report::ResourceAnswer> {
    answer.resources.iter().find(|one| one.name == name.as_str())
}

impl Control for Resources {
    fn begin_staging(&mut self, policy: &str, anew: bool) {
        self.undeclared.clear();
        if anew && let Some(own) = self.of(policy) {
            own.stale_after = None;
            let names = own.offers.keys().cloned().collect();
            self.undeclared = names;
        }
    }

    fn acts_on(&self, _: &Setting) -> Option<(Target, &'static str)> {
        None
    }

    fn stage(&mut self, holder: &Holder, setting: Setting, _: Timestamp) -> Option<Setting> {
        match setting {
            Setting::Publish { name, offer, reason } => {
                self.undeclared.remove(&name);
                self.change(holder).offers.insert(name, Publication { offer, reason });
            }
            Setting::Withdraw { name } => drop(self.change(holder).offers.remove(&name)),
            Setting::StaleAfter { seconds } => self.change(holder).stale_after = Some(seconds),
            other => return Some(other),
        }
        self.drop_empty();
        None
    }

    fn end_staging(&mut self, policy: &str) {
        let undeclared = std::mem::take(&mut self.undeclared);
        if let Some(own) = self.of(policy) {
            own.offers.retain(|name, _| !undeclared.contains(name));
        }
        self.drop_empty();
    }

    fn release(&mut self, policy: &str) {
        self.published.retain(|own| *own.holder.policy != *policy);
    }

    fn release_beyond(&mut self, _: &str, _: &Reach<'_>) {}

    fn forget(&mut self, _: Target) {}

    fn apply(&mut self, _: &mut Host, inputs: &Inputs<'_>, _: bool, out: &mut ControlDecisions) {
        self.age(inputs.now.monotonic, |name| inputs.policies.find(name).is_some_and(|policy| !policy.is_failing()));
        let effective = self.effective(&inputs.config.guard_rails);
        for (name, (policy, publication)) in &effective {
            let is_same = |(_, before): &(Arc<str>, Publication)| before.offer == publication.offer;
            if !self.reported.get(name).is_some_and(is_same) {
                out.resources.push(ResourceDecision::new(name, Some(&publication.offer), policy, &publication.reason));
            }
        }
        for (name, (policy, _)) in self.reported.iter().filter(|(name, _)| !effective.contains_key(*name)) {
            out.resources.push(ResourceDecision::new(name, None, policy, ""));
        }
        self.reported = effective;
        let own = self.published.iter().flat_map(|own| own.offers.iter().map(move |(name, one)| (own, name, one)));
        let states: Vec<_> = own.map(|(own, name, one)| self.state(own, name, &one.offer, inputs)).collect();
        self.states = states.into();
        inputs.metrics.resources(&self.states);
        self.log_refused();
    }

    fn end(&mut self, _: &mut Host, _: &Inputs<'_>) -> Option<String> {
        self.reported.clear();
        None
    }

    fn report(&self, _: &Host, _: &PodTable, _: PodId, _: &mut PodReport) {}

    // States follow from the controller's answer, which evictions write.
    fn replay_line(&self, _: &Readings, _: &Readings, _: &mut TickLine, _: &mut Rows) {}
}

#[cfg(test)]
mod tests {
    use qosm_model::lease::Priority;

    use super::*;

    const BATCH: &str = "kubernetes.io/batch-cpu";
    const FOREIGN: &str = "example.com/gpu";

    fn publish(resources: &mut Resources, policy: &str, priority: i32, name: &str, amount: u64) {
        let holder = Holder { policy: policy.into(), priority: Priority(priority) };
        let offer = Offer { amount, ..Offer::default() };
        let setting = Setting::Publish { name: name.parse().unwrap(), offer, reason: "because".into() };
        assert!(resources.stage(&holder, setting, Timestamp(0)).is_none());
    }

    /// The resources that go into the report: name, amount and policy.
    fn counted(resources: &Resources, rails: &GuardRails) -> Vec<String> {
        let effective = resources.effective(rails);
        effective.iter().map(|(name, (policy, one))| format!("{name} {} {policy}", one.offer.amount)).collect()
    }

    #[test]
    fn a_name_that_the_operator_does_not_allow_is_not_published() {
        let mut resources = Resources::default();
        publish(&mut resources, "own", 100, BATCH, 1500);
        publish(&mut resources, "own", 100, FOREIGN, 8);
        let mut rails = GuardRails::default();
        assert_eq!(counted(&resources, &rails), ["kubernetes.io/batch-cpu 1500 own"]);
        rails.publishable_resources = [FOREIGN.to_owned()].into();
        assert_eq!(counted(&resources, &rails), ["example.com/gpu 8 own"]);
    }

    #[test]
    fn of_two_policies_the_higher_priority_counts_until_it_ends() {
        let mut resources = Resources::default();
        publish(&mut resources, "low", 100, BATCH, 1);
        publish(&mut resources, "high", 200, BATCH, 2);
        let rails = GuardRails::default();
        assert_eq!(counted(&resources, &rails), ["kubernetes.io/batch-cpu 2 high"]);
        resources.release("high");
        assert_eq!(counted(&resources, &rails), ["kubernetes.io/batch-cpu 1 low"]);
    }

    #[test]
    fn what_a_failing_policy_publishes_ends_when_it_is_stale_and_comes_back_with_the_policy() {
        const MINUTE: u64 = 60_000_000;
        let mut resources = Resources::default();
        publish(&mut resources, "own", 100, BATCH, 1500);
        let holder = Holder { policy: "own".into(), priority: Priority(100) };
        assert!(resources.stage(&holder, Setting::StaleAfter { seconds: 300 }, Timestamp(0)).is_none());
        let rails = GuardRails::default();
        for (minute, works, count) in
            [(0, true, 1), (60, true, 1), (61, false, 1), (65, false, 1), (66, false, 0), (80, false, 0), (81, true, 1)]
        {
            resources.age(Micros(minute * MINUTE), |_| works);
            assert_eq!(counted(&resources, &rails).len(), count, "minute {minute}");
            assert_eq!(resources.stale_after().is_some(), count > 0, "minute {minute}");
        }
    }

    #[test]
    fn what_a_report_has_no_room_for_is_what_has_the_lowest_priority_and_is_told() {
        let many: Vec<String> = (0..MAX_RESOURCES).map(|number| format!("example.com/a{number:02}")).collect();
        let last = many.last().unwrap();
        let publishable_resources = many.iter().cloned().chain(["example.com/z".to_owned()]).collect();
        let rails = GuardRails { publishable_resources, ..GuardRails::default() };
        let mut resources = Resources::default();
        for text in &many {
            publish(&mut resources, "low", 1, text, 0);
        }
        assert_eq!(resources.effective(&rails).len(), MAX_RESOURCES);
        publish(&mut resources, "high", 2, "example.com/z", 0);
        let effective = resources.effective(&rails);
        assert_eq!(effective.len(), MAX_RESOURCES);
        assert!(effective.keys().any(|name| name.as_str() == "example.com/z"));
        assert!(!effective.keys().any(|name| name.as_str() == last));
        for (text, part) in [(last.as_str(), "at most 32 resources"), ("example.com/b", "may not be published here")] {
            let why = why_unreported(&text.parse().unwrap(), &rails);
            assert!(why.contains(part), "{why}");
        }
    }
}
