//! Lints that play cases: grants that no case needs, settings that the grants do not reach, and settings without a reason.

use std::collections::BTreeSet;
use std::path::Path;

use qosm_cases::{Script, Wasm, scripts};
use qosm_engine::{Form, Grants, Interface, Reach};
use qosm_sdk::mock::{ClassChange, Columns, ResourceChange, Staged};
use qosm_sdk::testing::{Driver, Outcome};
use qosm_sdk::{PodFacts, PodId, Target, Tick};
use serde_json::{Map, Value};

use super::{Finding, Level, Looked};
use crate::deliverable::Schemas;

pub(super) fn look(looked: &Looked<'_>, folder: &Path) -> Vec<Finding> {
    let scripts = scripts(folder).unwrap_or_default();
    if scripts.is_empty() {
        return vec![Finding::new(
            Level::Warning,
            "no-cases",
            format!("there is no case in {}", folder.display()),
            "write down what it is shown and what it should decide: docs of the SDK, module `testing`",
        )];
    }
    let schemas = Schemas::of(looked.description);
    let mut findings = Vec::new();
    let mut holding = Vec::new();
    for script in scripts {
        let mut watched = Watched::new(looked);
        match schemas.play(&script, &mut watched) {
            Ok(()) => holding.push(script.clone()),
            Err(error) => findings.push(Finding::new(
                Level::Error,
                "failing-case",
                format!("{}: {error}", script.name()),
                "`qosm policy test` tells more",
            )),
        }
        findings.extend(watched.unreasoned.iter().map(|what| without_reason(&script, what)));
        findings.extend(watched.beyond.iter().map(|(what, reach)| out_of_reach(&script, what, *reach)));
    }
    // A failing case does not show which grants it needs.
    if findings.iter().all(|finding| finding.rule != "failing-case") {
        let needless = needless(looked, &holding);
        findings.extend(needless.into_iter().map(|interface| {
            Finding::new(
                Level::Warning,
                "unneeded-grant",
                format!("it wants the grant `{interface}`, and all its cases hold without"),
                format!(
                    "a policy {}: add the case that shows what for, or take out what uses it",
                    if interface.is_control() {
                        "that may write should write"
                    } else {
                        "that reads should use what it reads"
                    }
                ),
            )
        }));
    }
    findings
}

/// The grants without which every case still passes.
fn needless(looked: &Looked<'_>, scripts: &[Script]) -> Vec<Interface> {
    let wanted = looked.module.imports().iter().copied().filter(|import| !import.always_granted());
    wanted
        .filter(|&without| scripts.iter().all(|script| script.play(&mut wasm(looked, Some(without))).is_ok()))
        .collect()
}

/// A fresh instance with all grants except `without`.
fn wasm(looked: &Looked<'_>, without: Option<Interface>) -> Wasm {
    let imports = looked.module.imports().iter().copied();
    let grants: Grants = imports.filter(|&import| Some(import) != without).collect();
    Wasm::with_grants(looked.engine, looked.module, &looked.description.name, &grants)
}

fn without_reason(script: &Script, what: &str) -> Finding {
    Finding::new(
        Level::Warning,
        "no-reason",
        format!("{}: {what} is set without a reason", script.name()),
        "say why: `qosm explain` shows it to the owner of a pod, and nothing else does",
    )
}

fn out_of_reach(script: &Script, what: &str, reach: Reach) -> Finding {
    let help = match reach {
        Reach::Tiers => "no node does it; add `tiers` to `custom.qosm.grants`",
        Reach::AllPods => {
            "no node does it; leave out pods whose `config` is `{}`, or add `all-pods` to `custom.qosm.grants`"
        }
    };
    let what = format!("{}: {what}, and the grants lack `{reach}`", script.name());
    Finding::new(Level::Warning, "missing-grant", what, help)
}

fn level(target: Target) -> &'static str {
    match target {
        Target::Tier(_) => "a tier",
        Target::Pod(_) => "a pod",
        Target::Container(_) => "a container",
    }
}

/// What the policy does to tiers, pods and containers: what it is, its target, and the verb for it.
fn aimed(outcome: &Outcome) -> Vec<(String, Target, &'static str)> {
    let staged = outcome.staged.iter().filter(|one| one.value.is_some());
    let staged = staged.map(|one| (one.knob.to_owned(), one.target, "set"));
    let io = outcome.io.iter().filter(|one| one.value.is_some());
    let io = io.filter_map(|one| Some((one.knob.as_str().to_owned(), one.target?, "set")));
    let classes = outcome.classes.iter().filter_map(|one| match one {
        ClassChange::Assign { target, class, .. } => Some((format!("class {class}"), *target, "set")),
        ClassChange::Define { .. } | ClassChange::Undefine { .. } | ClassChange::Release { .. } => None,
    });
    let migrations = outcome.migrations.iter().filter(|one| one.way.is_some());
    let migrations = migrations.map(|one| ("a migration".to_owned(), Target::Container(one.container), "started"));
    let evictions = outcome.evictions.iter().filter(|one| one.urgency.is_some());
    let evictions = evictions.map(|one| ("an eviction".to_owned(), Target::Pod(one.pod), "requested"));
    staged.chain(io).chain(classes).chain(migrations).chain(evictions).collect()
}

/// Whether a pod is configured for the policy, by the same rule as on a node.
fn is_configured(pod: &PodFacts) -> bool {
    let config: Map<String, Value> = serde_json::from_str(&pod.config).unwrap_or_default();
    let is_off = |word: &Value| word.as_str().is_some_and(|word| word.eq_ignore_ascii_case("none"));
    !config.is_empty() && !config.get("policy").is_some_and(is_off)
}

/// A driver that records what the policy sets.
struct Watched {
    driver: Wasm,
    /// The reach of the policy's grants. A component cannot declare any, so for it this is all of them.
    reach: BTreeSet<Reach>,
    /// Pods that are not configured for the policy, and their containers.
    unconfigured: BTreeSet<Target>,
    /// Knobs that were set without a reason, with their target.
    unreasoned: BTreeSet<String>,
    /// What no node would do, with its target and the grant that it needs.
    beyond: BTreeSet<(String, Reach)>,
}

impl Watched {
    fn new(looked: &Looked<'_>) -> Self {
        let reach = match looked.module.form() {
            Form::Rego => looked.module.needed_reach(looked.description),
            Form::Component => Reach::ALL.into(),
        };
        Self {
            driver: wasm(looked, None),
            reach,
            unconfigured: BTreeSet::new(),
            unreasoned: BTreeSet::new(),
            beyond: BTreeSet::new(),
        }
    }

    /// Notes which of these pods are configured for the policy.
    fn note(&mut self, upserted: &[PodFacts]) {
        for pod in upserted {
            let containers = pod.containers.iter().map(|container| Target::Container(container.id));
            let targets = std::iter::once(Target::Pod(pod.id)).chain(containers);
            if is_configured(pod) {
                for target in targets {
                    self.unconfigured.remove(&target);
                }
            } else {
                self.unconfigured.extend(targets);
            }
        }
    }

    /// The grant that a setting of the target needs and the policy lacks.
    fn lacking(&self, target: Target) -> Option<Reach> {
        let needed = match target {
            Target::Tier(_) => Reach::Tiers,
            Target::Pod(_) | Target::Container(_) if self.unconfigured.contains(&target) => Reach::AllPods,
            Target::Pod(_) | Target::Container(_) => return None,
        };
        (!self.reach.contains(&needed)).then_some(needed)
    }

    fn look(&mut self, outcome: Result<Outcome, String>) -> Result<Outcome, String> {
        let outcome = outcome?;
        for (what, target, done) in aimed(&outcome) {
            if let Some(reach) = self.lacking(target) {
                let of = match reach {
                    Reach::Tiers => level(target).to_owned(),
                    Reach::AllPods => format!("{} that is not configured for the policy", level(target)),
                };
                self.beyond.insert((format!("{what} of {of} is {done}"), reach));
            }
        }
        let silent = |staged: &&Staged| staged.value.is_some() && staged.reason.trim().is_empty();
        let silent = outcome.staged.iter().filter(silent);
        self.unreasoned.extend(silent.map(|staged| format!("{} of {}", staged.knob, level(staged.target))));
        for change in outcome.node_knobs.iter().filter(|one| one.value.is_some() && one.reason.trim().is_empty()) {
            self.unreasoned.insert(format!("{} of the node", change.knob.as_str()));
        }
        for change in outcome.io.iter().filter(|one| one.value.is_some() && one.reason.trim().is_empty()) {
            self.unreasoned.insert(format!("{} of {}", change.knob.as_str(), change.target.map_or("the node", level)));
        }
        let moved = outcome.migrations.iter().any(|one| one.way.is_some() && one.reason.trim().is_empty());
        self.unreasoned.extend(moved.then(|| "a migration".to_owned()));
        for change in &outcome.classes {
            let (what, reason) = match change {
                ClassChange::Define { class, reason, .. } => (format!("class {class}"), reason),
                ClassChange::Assign { target, class, reason } => {
                    (format!("{} in class {class}", level(*target)), reason)
                }
                ClassChange::Undefine { .. } | ClassChange::Release { .. } => continue,
            };
            self.unreasoned.extend(reason.trim().is_empty().then_some(what));
        }
        for change in &outcome.resources {
            if let ResourceChange::Publish { name, reason, .. } = change {
                self.unreasoned.extend(reason.trim().is_empty().then(|| format!("resource {name}")));
            }
        }
        Ok(outcome)
    }
}

impl Driver for Watched {
    fn configure(&mut self, config: &str) -> Result<Outcome, String> {
        let outcome = self.driver.configure(config);
        self.look(outcome)
    }

    fn pods(&mut self, upserted: Vec<PodFacts>, removed: Vec<PodId>, columns: &Columns) -> Result<Outcome, String> {
        self.note(&upserted);
        let outcome = self.driver.pods(upserted, removed, columns);
        self.look(outcome)
    }

    fn evaluate(&mut self, tick: Tick, columns: &Columns) -> Result<Outcome, String> {
        let outcome = self.driver.evaluate(tick, columns);
        self.look(outcome)
    }
}
