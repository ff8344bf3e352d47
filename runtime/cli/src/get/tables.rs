//! One table for each noun.

use qosm_agent::admin::Knobs;
use qosm_agent::report::{
    ClassReport, EvictionReport, KnobReport, NodeResourceReport, PodReport, PolicyReport, RefusalReport, RemarkReport,
    TriggerReport, WireValue,
};
use qosm_host::knob_table::row;
use qosm_model::knob::Knob;
use qosm_terminal::print;
use serde::Serialize;
use serde_json::Value;

use crate::get::listing::{Listing, Wanted};

/// A value as in the kernel's file.
fn value_of(value: WireValue) -> String {
    value.to_string()
}

/// A knob's value for readers: memory with a unit.
fn amount(knob: &str, value: WireValue) -> String {
    match (knob.parse::<Knob>().is_ok_and(|knob| row(knob).is_bytes()), value) {
        (true, WireValue::Number(bytes)) => u64::try_from(bytes).map_or_else(|_| bytes.to_string(), qosm_watch::bytes),
        _ => value_of(value),
    }
}

fn document(all: &impl Serialize) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(all)?)
}

/// A column: its head, whether only wide tables have it, and its cells.
type Column<'a, T> = (&'static str, bool, &'a dyn Fn(&T) -> String);

/// Head and rows with the columns that are shown: some are only in wide tables.
fn arranged<T>(rows: &[T], columns: &[Column<'_, T>], wanted: &Wanted<'_>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let shown: Vec<_> = columns.iter().filter(|(_, is_for_wide, _)| wanted.is_wide || !is_for_wide).collect();
    let row = |row: &T| shown.iter().map(|(_, _, cell)| cell(row)).collect();
    (shown.iter().map(|(title, ..)| *title).collect(), rows.iter().map(row).collect())
}

pub(super) fn pods(pods: Vec<PodReport>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let pods = wanted.of("pod", pods, |pod| pod.pod.clone(), |_| None)?;
    let class = |pod: &PodReport| if pod.qos_declared { pod.qos.clone() } else { format!("({})", pod.qos) };
    let (head, rows) = arranged(
        &pods,
        &[
            ("pod", false, &|pod| pod.pod.clone()),
            ("class", false, &class),
            ("kubernetes qos", false, &|pod| pod.kube_qos.clone()),
            ("containers", false, &|pod| pod.containers.clone()),
            ("held", false, &|pod| pod.held.to_string()),
            ("refused", false, &|pod| pod.refused.to_string()),
            ("problems", false, &|pod| pod.problems.to_string()),
            ("not done", true, &|pod| pod.remarks.to_string()),
            ("local memory", false, &locality),
            ("paused", false, &|pod| pod.paused.clone().unwrap_or_default()),
            ("uid", true, &|pod| pod.uid.clone()),
            ("cgroup", true, &|pod| pod.cgroup.clone()),
        ],
        wanted,
    );
    Ok(Listing { head, rows, more: String::new(), document: document(&pods)? })
}

/// The locality of the pod's least local container, and the state of its page migration.
fn locality(pod: &PodReport) -> String {
    let least = pod.locality.iter().filter_map(|container| container.local_percent).min();
    let under_way = pod
        .locality
        .iter()
        .filter_map(|container| container.migration.as_ref())
        .find(|migration| matches!(migration.state.as_str(), "waiting" | "moving" | "paused"));
    let share = least.map(|percent| format!("{percent} %")).unwrap_or_default();
    match under_way {
        Some(migration) => {
            format!("{share}, {}: {} of {} pages", migration.state, migration.pages_moved, migration.pages_found)
        }
        None => share,
    }
}

pub(super) fn policies(policies: Vec<PolicyReport>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let name = |policy: &PolicyReport| policy.policy.clone();
    let policies = wanted.of("policy", policies, name, |policy| Some(name(policy)))?;
    let (head, rows) = arranged(
        &policies,
        &[
            ("policy", false, &name),
            ("mode", false, &|policy| policy.mode.clone()),
            ("module", false, &|policy| policy.module.clone()),
            ("digest", false, &|policy| policy.digest.chars().take(19).collect()),
            ("health", false, &|policy| policy.health.clone()),
            ("leases", false, &|policy| policy.leases.to_string()),
            ("evaluations", false, &|policy| policy.evaluations.to_string()),
            ("failures", false, &|policy| policy.failures.to_string()),
            ("last", false, &|policy| format!("{} µs", policy.last_evaluation_usec)),
            ("priority", true, &|policy| policy.priority.to_string()),
            ("reference", true, &|policy| policy.reference.clone()),
            ("trusted", true, &|policy| policy.trusted.clone().unwrap_or_default()),
        ],
        wanted,
    );
    let mut more = String::new();
    for policy in &policies {
        for line in policy.error.iter().chain(&policy.problems) {
            more.push_str(&format!("\n{}: {line}\n", policy.policy));
        }
        for TriggerReport { trigger, missing } in &policy.triggers {
            if let Some(why) = missing {
                more.push_str(&format!("\n{}: not woken by {trigger}: {why}\n", policy.policy));
            }
        }
    }
    Ok(Listing { head, rows, more, document: document(&policies)? })
}

pub(super) fn knobs(knobs: Knobs, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let Knobs { held, refused, remarks } = knobs;
    let of_held = |knob: &KnobReport| name(&knob.pod, &knob.subject);
    let of_refused = |refusal: &RefusalReport| name(&refusal.pod, &refusal.subject);
    let of_remark = |remark: &RemarkReport| name(&remark.pod, &remark.subject);
    let named = held.iter().map(of_held).chain(refused.iter().map(of_refused)).chain(remarks.iter().map(of_remark));
    // A pod may have only settings that are not in force.
    wanted.check_names("pod or tier", &named.collect::<Vec<_>>())?;
    let held = wanted.select(held, of_held, |knob| Some(knob.policy.clone()));
    let refused = wanted.select(refused, of_refused, |refusal| Some(refusal.policy.clone()));
    let remarks = wanted.select(remarks, of_remark, |remark| Some(remark.policy.clone()));
    let value = |knob: &KnobReport| {
        if wanted.is_wide { value_of(knob.value) } else { amount(&knob.knob, knob.value) }
    };
    let baseline = |knob: &KnobReport| {
        if wanted.is_wide { value_of(knob.baseline) } else { amount(&knob.knob, knob.baseline) }
    };
    let (head, rows) = arranged(
        &held,
        &[
            ("subject", false, &|knob| knob.subject.clone()),
            ("knob", false, &|knob| knob.knob.clone()),
            ("value", false, &value),
            ("baseline", false, &baseline),
            ("state", false, &|knob| knob.state.clone()),
            ("policy", false, &|knob| knob.policy.clone()),
            ("age", false, &|knob| wanted.age(&knob.since)),
            ("reason", false, &|knob| knob.reason.clone()),
            ("asked for", true, &|knob| {
                knob.adjusted.as_ref().map(|to| format!("{}: {}", to.wanted, to.why)).unwrap_or_default()
            }),
            ("configured by", true, &|knob| knob.configured_by.join(", ")),
            ("module", true, &|knob| knob.module.clone()),
            ("file", true, &|knob| knob.path.clone()),
        ],
        wanted,
    );
    let mut more = String::new();
    if !refused.is_empty() {
        more.push_str("\nnot in force:\n");
        more.push_str(&print::table(
            &["subject", "knob", "wanted", "policy", "kind", "why"],
            refused.iter().map(|refusal| {
                vec![
                    refusal.subject.clone(),
                    refusal.knob.clone(),
                    amount(&refusal.knob, refusal.wanted),
                    refusal.policy.clone(),
                    refusal.kind.clone(),
                    refusal.why.clone(),
                ]
            }),
        ));
    }
    if !remarks.is_empty() {
        more.push_str("\nwanted and not done:\n");
        let rows = remarks
            .iter()
            .map(|remark| vec![remark.subject.clone(), remark.knob.clone(), remark.policy.clone(), remark.why.clone()]);
        more.push_str(&print::table(&["subject", "knob", "policy", "why"], rows));
    }
    Ok(Listing { head, rows, more, document: document(&Knobs { held, refused, remarks })? })
}

/// The pod, or the subject where there is none, such as a tier.
fn name(pod: &str, subject: &str) -> String {
    if pod.is_empty() { subject } else { pod }.to_owned()
}

pub(super) fn classes(classes: Vec<ClassReport>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let classes = wanted.of(
        "class",
        classes,
        |class| format!("{}/{}", class.policy, class.class),
        |class| Some(class.policy.clone()),
    )?;
    let (head, rows) = arranged(
        &classes,
        &[
            ("policy", false, &|class| class.policy.clone()),
            ("class", false, &|class| class.class.clone()),
            ("shares", false, &|class| class.shares.clone()),
            ("in force", false, &|class| yes(class.in_force)),
            ("group", false, &|class| class.group.clone()),
            ("schemata", false, &|class| class.schemata.clone()),
            ("members", false, &|class| class.members.len().to_string()),
            ("age", false, &|class| wanted.age(&class.since)),
            ("reason", false, &|class| class.reason.clone()),
            ("member names", true, &|class| class.members.join(", ")),
        ],
        wanted,
    );
    let mut more = String::new();
    for class in classes.iter().filter(|class| !class.why.is_empty()) {
        more.push_str(&format!("\n{}/{}: {}\n", class.policy, class.class, class.why));
    }
    Ok(Listing { head, rows, more, document: document(&classes)? })
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

pub(super) fn resources(resources: Vec<NodeResourceReport>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let resources =
        wanted.of("resource", resources, |resource| resource.name.clone(), |resource| Some(resource.policy.clone()))?;
    let (head, rows) = arranged(
        &resources,
        &[
            ("resource", false, &|resource| resource.name.clone()),
            ("policy", false, &|resource| resource.policy.clone()),
            ("published", false, &|resource| resource.amount.to_string()),
            ("on the node", false, &|resource| resource.on_node.to_string()),
            ("in force", false, &|resource| yes(resource.in_force)),
            ("reason", false, &|resource| resource.reason.clone()),
        ],
        wanted,
    );
    let mut more = String::new();
    for resource in resources.iter().filter(|resource| !resource.why.is_empty()) {
        more.push_str(&format!("\n{} of {}: {}\n", resource.name, resource.policy, resource.why));
    }
    Ok(Listing { head, rows, more, document: document(&resources)? })
}

pub(super) fn evictions(evictions: Vec<EvictionReport>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let evictions = wanted.of("pod", evictions, |of| of.decision.pod.clone(), |of| Some(of.decision.policy.clone()))?;
    let (head, rows) = arranged(
        &evictions,
        &[
            ("pod", false, &|of| of.decision.pod.clone()),
            ("urgency", false, &|of| of.decision.urgency.clone()),
            ("policy", false, &|of| of.decision.policy.clone()),
            ("outcome", false, &|of| of.decision.outcome.clone()),
            ("age", false, &|of| wanted.age(&of.since)),
            ("reason", false, &|of| format!("{}: {}", of.decision.reason, of.decision.message)),
            ("why", false, &|of| of.decision.why.clone()),
            ("uid", true, &|of| of.uid.clone()),
        ],
        wanted,
    );
    Ok(Listing { head, rows, more: String::new(), document: document(&evictions)? })
}

pub(super) fn events(events: Vec<Value>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let field = |event: &Value, name: &str| match &event[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let events = wanted.of("pod or tier", events, |event| field(event, "pod"), |event| Some(field(event, "source")))?;
    let age = |event: &Value| {
        event["last_millis"]
            .as_i64()
            .or(event["lastMillis"].as_i64())
            .map(|at| wanted.age_of_millis(at))
            .unwrap_or_default()
    };
    let (head, rows) = arranged(
        &events,
        &[
            ("last", false, &age),
            ("pod", false, &|event| field(event, "pod")),
            ("kind", false, &|event| field(event, "kind")),
            ("reason", false, &|event| field(event, "reason")),
            ("count", false, &|event| field(event, "count")),
            ("from", false, &|event| field(event, "source")),
            ("message", false, &|event| field(event, "message")),
        ],
        wanted,
    );
    Ok(Listing { head, rows, more: String::new(), document: document(&events)? })
}

pub(super) fn problems(problems: Vec<String>, wanted: &Wanted<'_>) -> anyhow::Result<Listing> {
    let problems: Vec<String> = problems
        .into_iter()
        .filter(|problem| wanted.names.iter().all(|name| problem.contains(name.as_str())))
        .filter(|problem| wanted.policy.is_none_or(|policy| problem.contains(policy)))
        .filter(|problem| wanted.namespace.is_none_or(|namespace| problem.contains(&format!("{namespace}/"))))
        .collect();
    let rows = problems.iter().map(|problem| vec![problem.clone()]).collect();
    let more = if problems.is_empty() { "no problems\n".to_owned() } else { String::new() };
    Ok(Listing { head: Vec::new(), rows, more, document: document(&problems)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn knobs_that_are_not_in_force_are_found_by_the_same_names() {
        let refused = |pod: &str, subject: &str| {
            json!({
                "subject": subject, "pod": pod, "knob": "memory.high", "wanted": 4096, "policy": "memory-qos",
                "kind": "unavailable", "why": "there is no such file", "since": "2026-11-26T08:00:00Z",
            })
        };
        let remark = |pod: &str, subject: &str| json!({"subject": subject, "pod": pod, "knob": "memory.low", "policy": "memory-qos", "why": "no request"});
        let all = json!({
            "held": [],
            "refused": [refused("shop/web", "pod shop/web"), refused("shop/myweb", "pod shop/myweb")],
            "remarks": [remark("", "tier burstable"), remark("shop/db", "pod shop/db")],
        });
        let listed = |name: &str| {
            let names = [name.to_owned()];
            let now = jiff::Timestamp::UNIX_EPOCH;
            let wanted = Wanted { names: &names, namespace: None, policy: None, is_wide: false, now };
            knobs(serde_json::from_value(all.clone()).unwrap(), &wanted).map(|listing| listing.document)
        };
        for (name, refused, remarks) in [
            ("web", vec!["pod shop/web"], vec![]),
            ("shop/myweb", vec!["pod shop/myweb"], vec![]),
            ("tier burstable", vec![], vec!["tier burstable"]),
            ("db", vec![], vec!["pod shop/db"]),
        ] {
            let document = listed(name).unwrap();
            for (list, expected) in [("refused", refused), ("remarks", remarks)] {
                let subjects: Vec<_> = document[list].as_array().unwrap().iter().map(|row| &row["subject"]).collect();
                assert_eq!(subjects, expected, "{name}: {list}");
            }
        }
        let error = listed("eb").unwrap_err().to_string();
        assert!(error.starts_with("no pod or tier `eb`; the nearest is `"), "{error}");
    }
}
