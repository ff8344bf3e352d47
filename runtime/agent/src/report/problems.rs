//! Problems of configuration: reported once when they begin, and once when they are corrected.

use std::collections::BTreeSet;

use qosm_host::layout::RuntimeId;
use qosm_model::knob::Target;
use qosm_model::lease::Priority;
use qosm_model::pod::{Container, ContainerCgroup, Pod};
use qosm_model::problem::Problem;

use crate::event::INVALID;
use crate::ledger::Tie;
use crate::now::Now;
use crate::report::view::View;
use crate::reporting::Reporting;

impl Reporting {
    /// All problems of configuration that are not about one pod.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    /// Problems of one pod's configuration: of its manifest, its annotations, or a layer above them.
    pub(super) fn problems_of<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Problem> {
        self.problems.iter().filter(move |problem| is_about(problem, pod))
    }

    /// Reports problems of configuration: once when they begin, and once when they are corrected.
    pub(crate) fn collect_problems(&mut self, view: &View<'_>, now: Now) {
        let mut problems: BTreeSet<_> = view
            .sources
            .problems
            .iter()
            .chain(&view.sources.troubles)
            .chain(view.policies.set_problems())
            .cloned()
            .collect();
        // Problems of a shadow are reported with the shadow (`get policies`, `explain`), not to the owners of pods.
        let active = || view.policies.active();
        for policy in active() {
            problems.extend(policy.problems.iter().cloned());
            problems.extend(view.objects.key_problems(policy));
        }
        problems.extend(view.objects.problems(view.policies).cloned());
        problems.extend(contests(view));
        problems.extend(ties(view));
        problems.extend(view.runtime_link.problem());
        let mut of_pods = Vec::new();
        for entry in view.pods.iter() {
            let pause = crate::pause::Pause::from_annotation(&entry.pod).1;
            let of_policies = active().filter_map(|policy| policy.effective.get(&entry.id));
            let key = (!view.sources.problems.is_empty()).then(|| entry.pod.key());
            let written = key
                .iter()
                .flat_map(|key| view.sources.problems.iter().filter(move |problem| is_about(problem, key)).cloned());
            let nameless = entry.pod.containers.iter().filter_map(|container| nameless(&entry.pod, container));
            for problem in of_policies
                .flat_map(|effective| effective.problems.iter().cloned())
                .chain(pause)
                .chain(written)
                .chain(nameless)
                .chain(entry.refused_limit.clone())
            {
                of_pods.push((Target::Pod(entry.id), problem));
            }
        }
        of_pods.extend(view.pods.claim_problems().map(|(target, problem)| (target, problem.clone())));
        for (target, problem) in of_pods {
            if !self.problems.contains(&problem) {
                self.send_notice(view.pods, target, INVALID, problem.to_string(), now);
            }
            problems.insert(problem);
        }
        for problem in problems.difference(&self.problems) {
            tracing::warn!(%problem, "configuration problem");
        }
        for problem in self.problems.difference(&problems) {
            tracing::info!(%problem, "problem corrected");
        }
        self.metrics.problems(problems.len());
        self.problems = problems;
    }
}

/// The contested knobs, as problems.
fn contests(view: &View<'_>) -> impl Iterator<Item = Problem> {
    view.ledger.contests().map(|((target, knob), held)| {
        let subject = view.pods.subject(target);
        let (object, field) = match (target, &subject.container) {
            (Target::Node | Target::Tier(_), _) => (subject.shown(), knob.to_string()),
            (_, Some(container)) => (format!("pod {}", subject.key()), format!("{knob} of container {container}")),
            (_, None) => (format!("pod {}", subject.key()), knob.to_string()),
        };
        Problem { object, field: Some(field), message: held.drift.clone().unwrap_or_default() }
    })
}

/// Knobs on which policies of one priority want different values, as problems of the policy that does not get its own.
fn ties(view: &View<'_>) -> impl Iterator<Item = Problem> {
    view.ledger.ties().map(|(Tie { winner, other, knob }, Priority(priority))| Problem {
        object: format!("PolicyModule {other}"),
        field: Some("spec.priority".into()),
        message: format!(
            "{priority} is that of `{winner}` too, and they want different values of {knob}: `{winner}` wins by its name; \
             give them different priorities"
        ),
    })
}

/// Whether a problem is about the pod `namespace/name`.
fn is_about(problem: &Problem, pod: &str) -> bool {
    let mut words = problem.object.split(' ');
    words.next().is_some_and(|kind| kind.eq_ignore_ascii_case("pod")) && words.next() == Some(pod)
}

/// A container whose ID does not lead to its cgroup.
fn nameless(pod: &Pod, container: &Container) -> Option<Problem> {
    let ContainerCgroup::Runtime(id) = &container.cgroup else { return None };
    let why = RuntimeId::parse(id).err()?;
    Some(Problem {
        object: format!("pod {}", pod.key()),
        field: Some(format!("containerID of container {}", container.name)),
        message: format!(
            "`{id}` does not lead to its cgroup: {why}; nothing is written to it, the rest of the pod counts"
        ),
    })
}
