//! One evaluation: measurements and objects in, publication and cgroup values out.

use std::collections::BTreeMap;
use std::fmt;

use crate::amounts::Amounts;
use crate::config::Settings;
use crate::decimal::Decimal;
use crate::enforce::{self, QuotaRule, Setting};
use crate::finding::Finding;
use crate::node::{AllocationNames, Node, Reservation, ThirdParty};
use crate::offering::{Breakdown, Offering};
use crate::pod::Pod;
use crate::publish::{Due, Published};
use crate::state::State;
use crate::strategy::{MemoryView, Strategy};
use crate::usage::tracker::{Usage, key};

const SECOND_USEC: u64 = 1_000_000;

/// The inputs of an evaluation. `None` means that an input is currently unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Node object.
    pub node: Option<Node>,
    /// All pods on the node.
    pub pods: Option<Vec<Pod>>,
    /// Measurements since the last evaluation.
    pub usage: Option<Usage>,
}

/// The time of an evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since the last evaluation in microseconds, by a monotonic clock; 0 at the first.
    pub window_usec: u64,
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// What the node publishes.
    pub publication: Publication,
    /// The values to hold on cgroups; targets that are not listed are released. `None` = nothing changes, since the list of pods is
    /// unknown.
    pub settings: Option<Vec<Setting>>,
    /// Inputs that cannot be used.
    pub findings: Vec<Finding>,
    /// Minutes without an evaluation of this policy after which the publication no longer applies.
    pub degrade_minutes: u64,
}

/// What the node publishes. Names that this policy manages and that are not in `published` are removed from the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// The amounts to have on the node; the last publication while none is due.
    pub published: Published,
    /// Why the amounts have to be written now; `None` if the node has them already, or close enough.
    pub due: Option<Due>,
    /// Where `published` comes from.
    pub status: Status,
    /// The current results of the formulas; `None` unless the status is [`Status::Offered`]. They differ from `published` while no
    /// publication is due.
    pub breakdown: Option<Breakdown>,
}

/// Where the published amounts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The results of the formulas.
    #[default]
    Offered,
    /// The last publication, since an input is currently unknown.
    Kept(Missing),
    /// Nothing is published.
    Withdrawn(Withdrawal),
}

/// An input that is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The Node object.
    Node,
    /// The list of pods.
    Pods,
    /// The use: not measured for long enough, or not recently.
    Usage,
}

/// Why nothing is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The strategy or the policy's configuration disables publishing.
    Disabled,
    /// No use has been measured within a report interval since the start.
    NeverMeasured,
    /// The last measurement is too old.
    Stale {
        /// Age of the last measurement.
        seconds: u64,
        /// Maximum age.
        most_seconds: u64,
    },
    /// The allocations of other schedulers could never be read.
    UnknownAllocations,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offered => f.write_str("published"),
            Self::Kept(Missing::Node) => f.write_str("kept as they were: the Node object is not known"),
            Self::Kept(Missing::Pods) => f.write_str("kept as they were: the list of pods is not known"),
            Self::Kept(Missing::Usage) => f.write_str("kept as they were: use has not been measured for long enough"),
            Self::Withdrawn(Withdrawal::Disabled) => f.write_str("withdrawn: disabled"),
            Self::Withdrawn(Withdrawal::NeverMeasured) => f.write_str("withdrawn: use has not been measured"),
            Self::Withdrawn(Withdrawal::UnknownAllocations) => {
                f.write_str("withdrawn: nobody knows what other schedulers have given away")
            }
            Self::Withdrawn(Withdrawal::Stale { seconds, most_seconds }) => {
                write!(f, "withdrawn: use was last measured {seconds} s ago, which is more than {most_seconds} s")
            }
        }
    }
}

/// Evaluates the inputs.
pub fn tick(state: &mut State, settings: &Settings, inputs: &Inputs, now: Now) -> Decisions {
    let mut findings = Vec::new();
    let no_keys = BTreeMap::new();
    let (labels, annotations) =
        inputs.node.as_ref().map_or((&no_keys, &no_keys), |node| (&node.labels, &node.annotations));
    let (strategy, layers) = settings.layers.effective(labels, annotations);
    findings.extend(layers);
    let new_ratio = inputs.node.as_ref().and_then(|node| node.normalization_ratio(&mut findings));
    if inputs.node.is_some() {
        state.ratio = enforce::settled_ratio(state.ratio, new_ratio);
    }

    state.running_usec = state.running_usec.saturating_add(now.window_usec);
    state.tracker.reconfigure(&strategy);
    measure(state, &strategy, inputs, now);
    let view = view(state, &strategy, settings.policy.hot_cache_pressure_percent);
    let (published, status, breakdown) =
        publication(state, settings, &strategy, view, inputs, new_ratio, &mut findings);
    let publication = Publication { breakdown, ..settle(state, settings, &strategy, inputs, published, status) };

    let rule = QuotaRule { is_the_tiers: settings.quota_is_the_tiers, ratio: state.ratio };
    let settings = match (&inputs.pods, settings.policy.enforce) {
        (_, false) => Some(Vec::new()),
        (pods, true) => pods.as_ref().map(|pods| enforce::settings(pods, &settings.policy, rule, &mut findings)),
    };
    Decisions { publication, settings, findings, degrade_minutes: strategy.degrade_minutes }
}

/// Adds the measurements. Without the list of pods their priority classes are unknown, so the measurements are dropped.
fn measure(state: &mut State, strategy: &Strategy, inputs: &Inputs, now: Now) {
    let classes: Option<BTreeMap<u64, _>> = inputs
        .pods
        .as_ref()
        .map(|pods| pods.iter().filter(|pod| pod.is_active).map(|pod| (key(&pod.uid), pod.priority)).collect());
    let usage = inputs.usage.as_ref().filter(|_| classes.is_some());
    let known: BTreeMap<u64, _> = match classes {
        Some(classes) => classes,
        None => state.tracker.pods.iter().map(|(key, pod)| (*key, pod.priority)).collect(),
    };
    let view = if state.is_hot { hotter(strategy.memory_view) } else { strategy.memory_view };
    state.tracker.advance(now.window_usec, usage, view, |pod| known.get(&pod).copied());
}

/// Which memory counts as used. Hot page cache does while tasks wait for memory, since reclaiming it would make them wait longer.
fn view(state: &mut State, strategy: &Strategy, percent: u32) -> MemoryView {
    let stalled = state.tracker.memory_stalled_permille();
    let on = u64::from(percent) * 10;
    state.is_hot = match stalled {
        Some(permille) if percent > 0 => permille >= on || (state.is_hot && permille > on / 2),
        _ => false,
    };
    if state.is_hot { hotter(strategy.memory_view) } else { strategy.memory_view }
}

fn hotter(view: MemoryView) -> MemoryView {
    match view {
        MemoryView::WithoutPageCache => MemoryView::WithHotPageCache,
        other => other,
    }
}

/// The amounts to publish; `None` = keep the last publication.
fn publication(
    state: &mut State,
    settings: &Settings,
    strategy: &Strategy,
    view: MemoryView,
    inputs: &Inputs,
    ratio: Option<Decimal>,
    findings: &mut Vec<Finding>,
) -> (Option<Published>, Status, Option<Breakdown>) {
    let withdrawn = |why| (Some(Published::default()), Status::Withdrawn(why), None);
    if !settings.policy.publish || !strategy.enable {
        return withdrawn(Withdrawal::Disabled);
    }
    match state.tracker.age_usec() {
        None if state.running_usec > strategy.report_seconds.saturating_mul(SECOND_USEC) => {
            return withdrawn(Withdrawal::NeverMeasured);
        }
        Some(age) if age > strategy.degrade_minutes.saturating_mul(60 * SECOND_USEC) => {
            let most_seconds = strategy.degrade_minutes.saturating_mul(60);
            return withdrawn(Withdrawal::Stale { seconds: age / SECOND_USEC, most_seconds });
        }
        _ => {}
    }
    let kept = |missing| (None, Status::Kept(missing), None);
    // A node without CPUs or memory has no status yet.
    let is_filled = |node: &&Node| node.capacity.cpu_milli > 0 && node.capacity.memory_bytes > 0;
    let Some(node) = inputs.node.as_ref().filter(is_filled) else { return kept(Missing::Node) };
    let Some(pods) = &inputs.pods else { return kept(Missing::Pods) };
    let Some(averages) = state.tracker.averages(strategy, view) else { return kept(Missing::Usage) };

    let reservation = Reservation::read(&node.annotations, state.reservation, findings);
    state.reservation = reservation.amounts;
    let reserved = node.reserved(&reservation);
    let policy = &settings.policy;
    let names = AllocationNames {
        batch_cpu: &policy.batch_cpu_names,
        batch_memory: &policy.batch_memory_names,
        mid_cpu: &policy.mid_cpu_names,
        mid_memory: &policy.mid_memory_names,
    };
    match ThirdParty::read(&node.annotations, &names) {
        Ok(read) => state.third_party = Some(read),
        Err(finding) => findings.push(finding),
    }
    // While the allocations were never readable, the remaining amounts are unknown.
    let Some(given) = state.third_party else { return withdrawn(Withdrawal::UnknownAllocations) };
    let offering = Offering { tracker: &state.tracker, policy, strategy, view, node, pods, reserved, averages, ratio };
    let breakdown = offering.breakdown();
    let published = offering.published(&breakdown, given);
    (Some(published), Status::Offered, Some(breakdown))
}

/// Decides whether the new amounts are due, and remembers them if so.
fn settle(
    state: &mut State,
    settings: &Settings,
    strategy: &Strategy,
    inputs: &Inputs,
    new: Option<Published>,
    status: Status,
) -> Publication {
    let Some(mut new) = new else {
        return Publication { published: state.published.clone(), due: None, status, breakdown: None };
    };
    if matches!(status, Status::Withdrawn(_)) {
        // A zone cannot be withdrawn, only set to 0.
        new.zones = state.published.zones.keys().map(|zone| (*zone, Amounts::ZERO)).collect();
    }
    let policy = &settings.policy;
    let lists = [&policy.batch_cpu_names, &policy.batch_memory_names, &policy.mid_cpu_names, &policy.mid_memory_names];
    // If the policy does not publish, amounts on the node belong to another component.
    let names: Vec<&str> = match policy.publish {
        true => lists.into_iter().flatten().map(String::as_str).collect(),
        false => Vec::new(),
    };
    let now = state.tracker.now_usec;
    // If the Node object is unknown, it is assumed to have the last publication.
    let own = || state.published.offers.iter().map(|(name, offer)| (name.clone(), offer.amount)).collect();
    let on_node = inputs.node.as_ref().map_or_else(own, |node| node.extended.clone());
    let due = state.published.due(&new, &on_node, &names, strategy, now);
    if due.is_some() {
        state.published = Published { at_usec: Some(now), ..new };
    }
    Publication { published: state.published.clone(), due, status, breakdown: None }
}

#[cfg(test)]
mod tests;
