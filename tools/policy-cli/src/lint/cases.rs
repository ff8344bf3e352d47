//! Lints that play cases: grants that no case needs, and settings without a reason.

use std::collections::BTreeSet;
use std::path::Path;

use qosm_cases::{Script, Wasm, scripts};
use qosm_engine::{Grants, Interface};
use qosm_sdk::mock::{ClassChange, Columns, ResourceChange, Staged};
use qosm_sdk::testing::{Driver, Outcome};
use qosm_sdk::{PodFacts, PodId, Target, Tick};

use super::{Finding, Level, Looked};

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
    let mut findings = Vec::new();
    let mut holding = Vec::new();
    for script in scripts {
        let mut watched = Watched { driver: wasm(looked, None), unreasoned: BTreeSet::new() };
        match script.play(&mut watched) {
            Ok(()) => holding.push(script.clone()),
            Err(error) => findings.push(Finding::new(
                Level::Error,
                "failing-case",
                format!("{}: {error}", script.name()),
                "`qosm policy test` tells more",
            )),
        }
        findings.extend(watched.unreasoned.iter().map(|what| without_reason(&script, what)));
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

/// A driver that records what the policy sets.
struct Watched {
    driver: Wasm,
    /// Knobs that were set without a reason, with their target.
    unreasoned: BTreeSet<String>,
}

impl Watched {
    fn look(&mut self, outcome: Result<Outcome, String>) -> Result<Outcome, String> {
        let outcome = outcome?;
        let silent = |staged: &&Staged| staged.value.is_some() && staged.reason.trim().is_empty();
        let level = |target: Target| match target {
            Target::Tier(_) => "a tier",
            Target::Pod(_) => "a pod",
            Target::Container(_) => "a container",
        };
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
        let outcome = self.driver.pods(upserted, removed, columns);
        self.look(outcome)
    }

    fn evaluate(&mut self, tick: Tick, columns: &Columns) -> Result<Outcome, String> {
        let outcome = self.driver.evaluate(tick, columns);
        self.look(outcome)
    }
}
