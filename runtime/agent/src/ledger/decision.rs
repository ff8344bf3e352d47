//! Decisions as reports and replays show them.

use std::sync::Arc;

use qosm_host::{Clamp, Host, Step as HostStep, Wanted};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::Lease;

use crate::inputs::Inputs;
use crate::ledger::resolved::Resolved;
use crate::report::{Adjusted, Decision};

/// The decision for a write, done or planned.
pub(super) fn of_step(
    host: &Host,
    inputs: &Inputs<'_>,
    planned: &HostStep,
    resolved: &Resolved,
    clamp: Option<&Clamp>,
) -> Decision {
    let from = Some(planned.from);
    let mut decision = of_value(host, inputs, (planned.target, planned.knob), from, planned.to, resolved);
    if let Some(clamp) = clamp {
        decision.adjusted = Some(Adjusted { wanted: clamp.wanted.into(), why: clamp.why.clone() });
    }
    decision
}

pub(super) fn of_value(
    host: &Host,
    inputs: &Inputs<'_>,
    (target, knob): (Target, Knob),
    current: Option<Value>,
    value: Value,
    resolved: &Resolved,
) -> Decision {
    let subject = inputs.pods.subject(target);
    let file = host.file(target, knob);
    Decision {
        level: subject.level.as_str().to_owned(),
        tier: subject.tier,
        namespace: subject.namespace,
        pod: subject.pod,
        container: subject.container,
        knob: knob.to_string(),
        file: file.as_ref().map(|file| file.file.to_owned()).unwrap_or_default(),
        path: file.map(|file| file.path).unwrap_or_default(),
        support: if host.emulates(knob) { "emulated" } else { "native" }.to_owned(),
        emulation: None,
        current: current.map(Into::into),
        value: value.into(),
        policy: resolved.policy.to_string(),
        module: inputs.policies.module_of(&resolved.policy),
        reason: resolved.reason.to_string(),
        adjusted: resolved
            .guarded
            .as_ref()
            .map(|(wanted, why)| Adjusted { wanted: (*wanted).into(), why: why.clone() }),
        error: None,
    }
}

/// The decision for a lease that does not count.
pub(super) fn of_denied(host: &Host, inputs: &Inputs<'_>, target: Target, knob: Knob, lease: &Lease) -> Decision {
    let resolved = Resolved {
        wanted: Wanted { target, knob, value: lease.value },
        policy: Arc::clone(&lease.holder.policy),
        reason: Arc::clone(&lease.reason),
        restores: false,
        guarded: None,
        is_refused: false,
    };
    of_value(host, inputs, (target, knob), None, lease.value, &resolved)
}
