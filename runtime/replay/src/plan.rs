//! What a plan would write on a node, and how it is printed.

use std::collections::BTreeMap;
use std::path::Path;

use qosm_agent::facts::Facts;
use qosm_agent::replay::{EventLine, Replay};
use qosm_agent::report::{
    ClassDecision, Decision, EvictionDecision, MigrationDecision, RemarkReport, ResourceDecision, ShadowDecision,
};
use qosm_agent::{LoadedPolicy, Mode};
use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_terminal::{Answer, Output, Usage, document, print};
use serde::Serialize;

/// Reads a node from a file, `-` = standard input. Without a time in the file, the plan uses the current time.
///
/// # Errors
///
/// [`Usage`] with the file, the place in it and the field.
#[expect(clippy::disallowed_methods, reason = "a plan is of now unless the file says otherwise")]
pub fn read_facts(path: &Path) -> Result<Facts, Usage> {
    let mut facts: Facts = document::read(path)?;
    facts.time.get_or_insert_with(jiff::Timestamp::now);
    Ok(facts)
}

/// Order of the knobs in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// Pod by pod, each before its containers, the tiers last.
    #[default]
    ByPod,
    /// In the order in which they would be written.
    InOrder,
}

/// The result of a first evaluation of all policies. As a document it has the names of a line of `replay`.
#[derive(Serialize)]
pub struct Planned {
    /// Knobs that would be written.
    pub decisions: Vec<Decision>,
    /// Knobs that cannot be written.
    pub refused: Vec<Decision>,
    /// What policies want and do not do, and why.
    pub remarks: Vec<RemarkReport>,
    /// Pages that would be moved.
    pub migrations: Vec<MigrationDecision>,
    /// Classes of shares that would change.
    pub classes: Vec<ClassDecision>,
    /// Resources of the node that would change.
    pub resources: Vec<ResourceDecision>,
    /// Pods that would be evicted.
    pub evictions: Vec<EvictionDecision>,
    /// What shadows would do.
    pub shadows: Vec<ShadowDecision>,
    /// Problems of annotations, ConfigMaps and manifests.
    pub problems: Vec<String>,
    /// Policies that do not run, and why.
    pub failing: BTreeMap<String, String>,
    /// Events that would be sent for pods.
    pub events: Vec<EventLine>,
    /// Further notes.
    pub notes: Vec<String>,
}

impl Planned {
    /// Prints the plan: to standard output a table of what would be written, or all of it as a document; to standard error, for people,
    /// what is not in the table. The answer is bad if something is refused, there are problems, or a policy does not run.
    ///
    /// # Errors
    ///
    /// When standard output cannot be written.
    pub fn show(self, output: Output, order: RowOrder) -> anyhow::Result<Answer> {
        match output {
            Output::Json => print::json(&self)?,
            Output::Table => print::text(&table(&self.decisions, order))?,
        }
        let Self { refused, remarks, migrations, classes, resources, evictions, shadows, .. } = self;
        let Self { problems, failing, events, notes, .. } = self;
        let requests = asked_of_the_cluster(&resources, &evictions);
        let shadows = shadows.iter().map(ToString::to_string);
        for note in beside_the_table(migrations, &classes).into_iter().chain(requests).chain(shadows).chain(notes) {
            print::note(&format!("note: {note}"));
        }
        for line in not_possible(&refused) {
            print::note(&line);
        }
        for RemarkReport { subject, knob, policy, why, .. } in &remarks {
            print::note(&format!("not done: {knob} of {subject}, wanted by {policy}: {why}"));
        }
        for EventLine { pod, reason, message, .. } in &events {
            print::note(&format!("event {pod} {reason}: {message}"));
        }
        for problem in &problems {
            print::note(&format!("problem: {problem}"));
        }
        for (policy, error) in &failing {
            print::note(&format!("error: policy `{policy}` does not run: {error}"));
        }
        let is_good = refused.is_empty() && problems.is_empty() && failing.is_empty();
        Ok(if is_good { Answer::Good } else { Answer::Bad })
    }
}

/// Plans for a node in a file.
///
/// # Errors
///
/// When the facts contradict each other, or a policy cannot be started.
pub fn on_facts(
    facts: &Facts,
    objects: Objects,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
) -> anyhow::Result<Planned> {
    let mut replay = Replay::new(facts, objects, engine, policies, Mode::Plan)?;
    let outcome = replay.open();
    Ok(Planned {
        decisions: outcome.decisions,
        refused: outcome.refused,
        remarks: replay.agent().remarks(),
        migrations: outcome.migrations,
        classes: outcome.classes,
        resources: outcome.resources,
        evictions: outcome.evictions,
        shadows: outcome.shadows,
        problems: outcome.problems,
        failing: outcome.failing,
        events: outcome.events,
        notes: replay.notes(),
    })
}

/// Pages that would be moved, and classes of shares, are no knobs and have no row in the table.
fn beside_the_table(migrations: Vec<MigrationDecision>, classes: &[ClassDecision]) -> Vec<String> {
    let moved = migrations.into_iter().map(|migration| match &migration.error {
        None => format!("{migration} would be moved by {}: {}", migration.policy, migration.reason),
        Some(error) => format!("{migration} would not be moved for {}: {error}", migration.policy),
    });
    let classes = classes.iter().map(|class| format!("{class} would be set by {}: {}", class.policy, class.reason));
    moved.chain(classes).collect()
}

/// The requests that would go to the controller.
fn asked_of_the_cluster(
    resources: &[ResourceDecision],
    evictions: &[EvictionDecision],
) -> impl Iterator<Item = String> {
    let resource = |one: &ResourceDecision| format!("{one} would be published by {}: {}", one.policy, one.reason);
    let eviction = |one: &EvictionDecision| {
        let EvictionDecision { pod, urgency, policy, message, .. } = one;
        if one.outcome == "pending" {
            format!("pod {pod} would be evicted by {policy} ({urgency}): {message}")
        } else {
            format!("pod {pod} would not be evicted for {policy}: {}", one.why)
        }
    };
    let resources: Vec<_> = resources.iter().map(resource).collect();
    resources.into_iter().chain(evictions.iter().map(eviction).collect::<Vec<_>>())
}

/// One line per knob, policy and reason, because on most hosts the same file is missing everywhere.
fn not_possible(refused: &[Decision]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut by_knob: BTreeMap<(&str, &str, &str), Vec<&Decision>> = BTreeMap::new();
    for decision in refused {
        by_knob.entry((&decision.knob, &decision.policy, cause(decision))).or_default().push(decision);
    }
    for ((knob, policy, _), decisions) in by_knob {
        let subjects: Vec<_> =
            decisions.iter().map(|decision| format!("{} ({})", decision.subject(), decision.value)).collect();
        let why = decisions.first().and_then(|decision| decision.error.as_deref()).unwrap_or_default();
        lines.push(format!("not possible: {knob} of {}, wanted by {policy}: {why}", subjects.join(", ")));
    }
    lines
}

/// The key that tells reasons apart: a missing file is one reason wherever it is missing, other reasons differ by their text.
fn cause(decision: &Decision) -> &str {
    if decision.support == "unavailable" { "" } else { decision.error.as_deref().unwrap_or_default() }
}

fn table(decisions: &[Decision], order: RowOrder) -> String {
    if decisions.is_empty() {
        return "nothing would be written\n".to_owned();
    }
    let mut decisions: Vec<&Decision> = decisions.iter().collect();
    if order == RowOrder::ByPod {
        // The sort is stable: knobs of one pod or container stay in the order of writing.
        decisions.sort_by_cached_key(|decision| {
            (decision.pod.is_none(), decision.pod_key(), decision.container.clone().unwrap_or_default())
        });
    }
    let rows = decisions.iter().map(|decision| {
        vec![
            decision.level.clone(),
            decision.subject(),
            if decision.support == "emulated" {
                format!("{} (emulated)", decision.knob)
            } else {
                decision.knob.clone()
            },
            decision.current.map_or_else(|| "?".to_owned(), |value| value.to_string()),
            decision.value.to_string(),
            decision.policy.clone(),
            match &decision.adjusted {
                Some(adjusted) => format!("{} ({} wanted: {})", decision.reason, adjusted.wanted, adjusted.why),
                None => decision.reason.clone(),
            },
        ]
    });
    print::table(&["level", "subject", "knob", "current", "value", "policy", "reason"], rows) + &emulated(&decisions)
}

/// What the host emulates, one line per pod or container.
fn emulated(decisions: &[&Decision]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for decision in decisions {
        let Some(emulation) = &decision.emulation else { continue };
        let line = format!("    {}: {emulation}\n", decision.subject());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() { String::new() } else { format!("\nbackground reclaim by qosm\n{}", lines.concat()) }
}
