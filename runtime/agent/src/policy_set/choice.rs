//! Chooses which specification of a PolicyModule runs on this node: the current one, or the one that was applied earlier.

use qosm_cluster::PolicyModule;
use qosm_cluster::policy_module::{FailurePolicy, ModuleMode, PolicyModuleSpec, RequiredKeys, Rollout};
use qosm_model::pod::Node;
use qosm_registry::trust::{Require, TrustKey};
use serde::{Deserialize, Serialize};

use crate::config::{ModuleVerification, OnFailure, PolicyConfig, PolicyMode};

/// The specification that a node applied last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AppliedSpec {
    /// UID of the object: an object that was deleted and created again is a different one.
    pub(super) uid: Option<String>,
    pub(super) generation: i64,
    pub(super) spec: PolicyModuleSpec,
    /// The one that was applied before, until this one has shown that it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Box<AppliedSpec>>,
}

impl AppliedSpec {
    /// This specification, applied over an earlier one.
    pub(super) fn over(self, earlier: Option<Self>) -> Self {
        let Some(mut earlier) = earlier else { return self };
        let works = earlier.before.take();
        let before = if earlier.spec == self.spec { works } else { works.or_else(|| Some(Box::new(earlier))) };
        Self { before, ..self }
    }
}

/// What is to run for one PolicyModule.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and not for long")]
pub(super) enum Choice {
    /// Nothing.
    None,
    /// The specification that was applied earlier.
    Keep(AppliedSpec),
    /// The specification as it stands; if that cannot be loaded, what was applied earlier.
    Apply { now: AppliedSpec, before: Option<AppliedSpec> },
}

/// Chooses for one PolicyModule.
///
/// # Errors
///
/// When its selector is invalid; the choice is then to keep what was applied earlier.
pub(super) fn choose(
    module: &PolicyModule,
    node: &Node,
    applied: Option<&AppliedSpec>,
) -> (Choice, Result<(), String>) {
    let keep = || applied.cloned().map_or(Choice::None, Choice::Keep);
    let name = module.metadata.name.as_deref().unwrap_or_default();
    match module.spec.selects(node) {
        Err(error) => return (keep(), Err(error)),
        Ok(false) => return (Choice::None, Ok(())),
        Ok(true) => {}
    }
    let now = AppliedSpec {
        uid: module.metadata.uid.clone(),
        generation: module.metadata.generation.unwrap_or(0),
        spec: module.spec.clone(),
        before: None,
    };
    // A change of the rollout alone, or of the selector, changes nothing about what runs.
    let spec_that_runs =
        |spec: &PolicyModuleSpec| PolicyModuleSpec { rollout: Rollout::default(), node_selector: None, ..spec.clone() };
    let is_same = applied.is_some_and(|applied| spec_that_runs(&applied.spec) == spec_that_runs(&now.spec));
    if is_same || module.spec.rollout.reaches(name, &node.name) {
        (Choice::Apply { now, before: applied.cloned() }, Ok(()))
    } else {
        (keep(), Ok(()))
    }
}

/// Why a PolicyModule's policy is not swapped on one node, and where to change it.
pub(super) fn swap_refusal(policy: &str, module: &PolicyModule) -> String {
    // The API server gives each object a UID; objects in files have none.
    if module.metadata.uid.is_none() {
        return format!(
            "policy `{policy}` is a PolicyModule in a file of `--config`; change its `spec.module` there, the agent watches the file"
        );
    }
    format!(
        "policy `{policy}` is a PolicyModule; change it there, for all nodes that it selects: kubectl patch pmod {policy} --type \
         merge -p '{{\"spec\":{{\"module\":\"oci://…\"}}}}'"
    )
}

/// Converts a PolicyModule to an entry.
pub(super) fn entry(name: &str, spec: &PolicyModuleSpec) -> PolicyConfig {
    let limits = spec.limits.unwrap_or_default();
    PolicyConfig {
        module: Some(spec.module.clone()),
        verification: spec.verification.as_ref().map(verification),
        poll_seconds: spec.poll_seconds,
        mode: match spec.mode {
            ModuleMode::Enforce => PolicyMode::Active,
            ModuleMode::Shadow => PolicyMode::Shadow,
        },
        shadow_of: spec.shadow_of.clone(),
        grants: spec.grants.clone(),
        priority: spec.priority,
        config: spec.config.clone(),
        on_failure: match spec.failure_policy {
            FailurePolicy::Keep => OnFailure::Keep,
            FailurePolicy::Release => OnFailure::Release,
        },
        interval_millis: spec.interval_millis,
        alarms: spec.alarms,
        alarm_gap_millis: spec.alarm_gap_millis,
        memory_mib: limits.memory_mib,
        evaluation_millis: limits.evaluation_millis,
        ..PolicyConfig::builtin(name)
    }
}

fn verification(spec: &qosm_cluster::policy_module::Verification) -> ModuleVerification {
    let keys = spec.keys.iter().map(|key| TrustKey { name: key.name.clone(), pem: Some(key.pem.clone()), path: None });
    ModuleVerification {
        keys: keys.collect(),
        require: match (spec.at_least, spec.require) {
            (Some(number), _) => Require::AtLeast(usize::try_from(number).unwrap_or(usize::MAX)),
            (None, RequiredKeys::Any) => Require::Any,
            (None, RequiredKeys::All) => Require::All,
        },
        annotations: spec.annotations.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn module(generation: i64, spec: serde_json::Value) -> PolicyModule {
        let metadata = json!({"name": "burst", "uid": "1", "generation": generation});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn node() -> Node {
        Node { name: "here".into(), labels: [("zone".into(), "a".into())].into(), ..Node::default() }
    }

    fn applied(generation: i64, spec: serde_json::Value) -> AppliedSpec {
        let PolicyModule { spec, metadata, .. } = module(generation, spec);
        AppliedSpec { uid: metadata.uid, generation, spec, before: None }
    }

    #[track_caller]
    fn check(module: &PolicyModule, before: Option<&AppliedSpec>, expected: &Choice) {
        assert_eq!(choose(module, &node(), before), (expected.clone(), Ok(())));
    }

    #[test]
    fn a_swap_is_refused_with_the_place_where_the_module_is_named() {
        let mut module = module(1, json!({"module": "builtin:old"}));
        let refusal = swap_refusal("burst", &module);
        assert!(
            refusal.ends_with(r#"kubectl patch pmod burst --type merge -p '{"spec":{"module":"oci://…"}}'"#),
            "{refusal}"
        );
        module.metadata.uid = None;
        let refusal = swap_refusal("burst", &module);
        assert!(refusal.contains("a file of `--config`") && !refusal.contains("kubectl"), "{refusal}");
    }

    #[test]
    fn a_node_takes_what_selects_it_and_what_the_rollout_brings() {
        let old = applied(1, json!({"module": "builtin:old"}));
        let new = json!({"module": "builtin:new"});
        let take = |before: Option<&AppliedSpec>, generation, spec| Choice::Apply {
            now: applied(generation, spec),
            before: before.cloned(),
        };
        check(&module(2, new.clone()), None, &take(None, 2, new.clone()));
        check(&module(2, new.clone()), Some(&old), &take(Some(&old), 2, new));

        let elsewhere = json!({"module": "builtin:new", "nodeSelector": {"matchLabels": {"zone": "b"}}});
        check(&module(2, elsewhere), Some(&old), &Choice::None);
        let paused = json!({"module": "builtin:new", "rollout": {"paused": true}});
        check(&module(2, paused.clone()), Some(&old), &Choice::Keep(old.clone()));
        check(&module(2, paused), None, &Choice::None);
        let no_node = json!({"module": "builtin:new", "rollout": {"percent": 0}});
        check(&module(2, no_node.clone()), Some(&old), &Choice::Keep(old.clone()));
        check(&module(2, no_node), None, &Choice::None);
    }

    #[test]
    fn a_rollout_that_is_paused_after_a_node_took_it_leaves_the_node_where_it_is() {
        let before = applied(1, json!({"module": "builtin:new"}));
        let paused = json!({"module": "builtin:new", "rollout": {"paused": true}});
        let now = applied(2, paused.clone());
        check(&module(2, paused), Some(&before), &Choice::Apply { now, before: Some(before.clone()) });
    }

    #[test]
    fn a_selector_that_makes_no_sense_changes_nothing() {
        let before = applied(1, json!({"module": "builtin:old"}));
        let expression = json!({"key": "zone", "operator": "Near"});
        let nonsense = module(2, json!({"module": "builtin:new", "nodeSelector": {"matchExpressions": [expression]}}));
        let (choice, result) = choose(&nonsense, &node(), Some(&before));
        assert_eq!(choice, Choice::Keep(before));
        assert!(result.is_err());
    }

    #[test]
    fn an_entry_says_what_the_policy_module_says() {
        let spec = json!({
            "module": "file:///modules/x.wasm", "mode": "shadow", "shadowOf": "burst", "grants": ["node"], "priority": 7,
            "config": {"profile": "koordinator"}, "failurePolicy": "release", "intervalMillis": 500, "alarms": false,
            "alarmGapMillis": 50, "limits": {"memoryMiB": 8, "evaluationMillis": 20},
        });
        let entry = entry("next", &module(1, spec).spec);
        insta::assert_json_snapshot!(entry);
    }
}
