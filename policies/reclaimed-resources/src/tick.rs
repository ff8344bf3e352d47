//! One evaluation: what was measured and what the objects say becomes what is published and what cgroups get.

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

/// What an evaluation is worked out from. What is `None` is not known at the moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Node object.
    pub node: Option<Node>,
    /// All pods on the node.
    pub pods: Option<Vec<Pod>>,
    /// What was measured since the evaluation before.
    pub usage: Option<Usage>,
}

/// When an evaluation takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since the evaluation before, by a monotonic clock; 0 at the first.
    pub window_usec: u64,
}

/// What is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// What the node is to publish.
    pub publication: Publication,
    /// What cgroups are to have: a target that is not among them is given up. `None` = as before, since the list of pods is not
    /// known.
    pub settings: Option<Vec<Setting>>,
    /// What cannot be used.
    pub findings: Vec<Finding>,
    /// After how many minutes without a word of this policy what is published no longer holds.
    pub degrade_minutes: u64,
}

/// What the node is to publish. Only names in `published` are to be on it; the others that this policy manages are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// What is to be there. While nothing is due it is what was published last.
    pub published: Published,
    /// Why it is to be written now; `None` = it is there already, or close enough.
    pub due: Option<Due>,
    /// What it is.
    pub status: Status,
    /// What the formulas give now; `None` unless the status is [`Status::Offered`]. Differs from `published` while nothing is
    /// due.
    pub breakdown: Option<Breakdown>,
}

/// What a publication is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// What the formulas give.
    #[default]
    Offered,
    /// What was published last, as something is not known at the moment.
    Kept(Missing),
    /// Nothing.
    Withdrawn(Withdrawal),
}

/// What is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The Node object.
    Node,
    /// The list of pods.
    Pods,
    /// What is used: it has not been measured for long enough, or not lately.
    Usage,
}

/// Why nothing is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The strategy, or the policy's configuration, says so.
    Disabled,
    /// What is used has not been measured, within a report's time of the start.
    NeverMeasured,
    /// It was measured last so long ago.
    Stale {
        /// How long.
        seconds: u64,
        /// How long it may be.
        most_seconds: u64,
    },
    /// What other schedulers have given away could never be read.
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

/// One evaluation.
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

/// Adds what was measured. Without the list of pods nobody can tell what of it is of high priority: then it does not count.
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

/// Which memory counts as used: hot page cache does while tasks wait for memory, since reclaiming it would make them wait
/// longer.
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

/// What is to be published; `None` = what was published last.
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
    // A node without CPUs or memory is one whose status has not been filled in.
    let is_filled = |node: &&Node| node.capacity.cpu_milli > 0 && node.capacity.memory_bytes > 0;
    let Some(node) = inputs.node.as_ref().filter(is_filled) else { return kept(Missing::Node) };
    let Some(pods) = &inputs.pods else { return kept(Missing::Pods) };
    let Some(averages) = state.tracker.averages(strategy, view) else { return kept(Missing::Usage) };

    let reserved = node.reserved(&Reservation::read(&node.annotations, findings));
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
    // Where these were never readable, what is left is not known.
    let Some(given) = state.third_party else { return withdrawn(Withdrawal::UnknownAllocations) };
    let offering = Offering { tracker: &state.tracker, policy, strategy, view, node, pods, reserved, averages, ratio };
    let breakdown = offering.breakdown();
    let published = offering.published(&breakdown, given);
    (Some(published), Status::Offered, Some(breakdown))
}

/// Decides whether it is time to write what is to be published, and remembers it if so.
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
        // A zone cannot be withdrawn, only be worth nothing.
        new.zones = state.published.zones.keys().map(|zone| (*zone, Amounts::ZERO)).collect();
    }
    let policy = &settings.policy;
    let lists = [&policy.batch_cpu_names, &policy.batch_memory_names, &policy.mid_cpu_names, &policy.mid_memory_names];
    // What a policy that does not publish finds on the node is another's.
    let names: Vec<&str> = match policy.publish {
        true => lists.into_iter().flatten().map(String::as_str).collect(),
        false => Vec::new(),
    };
    let now = state.tracker.now_usec;
    // Where the node is not known, it has what was published last.
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
