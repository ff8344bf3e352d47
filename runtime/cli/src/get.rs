//! `qosm get`, `pause`, `resume` and `policy retry`: questions and requests to a running agent.

use anyhow::Context;
use qosm_agent::admin::{Knobs, PauseRequest, Paused, PodQuery, PolicyQuery};
use qosm_agent::report::{
    ClassReport, EvictionReport, NodeResourceReport, PodReport, PolicyReport, TriggerReport, WireValue,
};
use qosm_terminal::{Answer, Usage, print};
use serde_json::Value;

use crate::args::{GetArgs, HoldArgs, Noun, Output, PauseArgs, ResumeArgs, SocketArgs};
use crate::client;

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<Answer> {
    let socket = &args.socket.admin_socket;
    let path = match args.noun {
        Noun::Pods => "/v1/pods",
        Noun::Policies => "/v1/policies",
        Noun::Knobs => "/v1/knobs",
        Noun::Classes => "/v1/classes",
        Noun::Resources => "/v1/resources",
        Noun::Evictions => "/v1/evictions",
        Noun::Events => "/v1/events",
        Noun::Problems => "/v1/problems",
    };
    if args.output.output == Output::Json {
        print::json(&client::get::<Value>(socket, path)?)?;
        return Ok(Answer::Good);
    }
    let text = match args.noun {
        Noun::Pods => pods(&client::get::<Vec<_>>(socket, path)?),
        Noun::Policies => policies(&client::get::<Vec<_>>(socket, path)?),
        Noun::Knobs => knobs(&client::get(socket, path)?),
        Noun::Classes => classes(&client::get::<Vec<_>>(socket, path)?),
        Noun::Resources => resources(&client::get::<Vec<_>>(socket, path)?),
        Noun::Evictions => evictions(&client::get::<Vec<_>>(socket, path)?),
        Noun::Events => events(&client::get::<Vec<Value>>(socket, path)?),
        Noun::Problems => {
            let problems = client::get::<Vec<String>>(socket, path)?;
            match problems.len() {
                0 => "no problems\n".to_owned(),
                _ => problems.iter().map(|problem| format!("{problem}\n")).collect(),
            }
        }
    };
    print::text(&text)?;
    Ok(Answer::Good)
}

fn pods(pods: &[PodReport]) -> String {
    print::table(
        &["pod", "class", "kubernetes qos", "containers", "held", "refused", "problems", "local memory", "paused"],
        pods.iter().map(|pod| {
            vec![
                pod.pod.clone(),
                if pod.qos_declared { pod.qos.clone() } else { format!("({})", pod.qos) },
                pod.kube_qos.clone(),
                pod.containers.clone(),
                pod.held.to_string(),
                pod.refused.to_string(),
                pod.problems.to_string(),
                locality(pod),
                pod.paused.clone().unwrap_or_default(),
            ]
        }),
    )
}

/// The least local of its containers, and what is being done about it.
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

fn policies(policies: &[PolicyReport]) -> String {
    let mut text = print::table(
        &["policy", "mode", "module", "digest", "health", "leases", "evaluations", "failures", "last"],
        policies.iter().map(|policy| {
            vec![
                policy.policy.clone(),
                policy.mode.clone(),
                policy.module.clone(),
                policy.digest.chars().take(19).collect(),
                policy.health.clone(),
                policy.leases.to_string(),
                policy.evaluations.to_string(),
                policy.failures.to_string(),
                format!("{} µs", policy.last_evaluation_usec),
            ]
        }),
    );
    for policy in policies {
        if let Some(error) = &policy.error {
            text.push_str(&format!("\n{}: {error}\n", policy.policy));
        }
        for problem in &policy.problems {
            text.push_str(&format!("\n{}: {problem}\n", policy.policy));
        }
        for TriggerReport { trigger, missing } in &policy.triggers {
            if let Some(why) = missing {
                text.push_str(&format!("\n{}: not woken by {trigger}: {why}\n", policy.policy));
            }
        }
    }
    text
}

pub(crate) fn value_of(value: WireValue) -> String {
    value.to_string()
}

fn knobs(knobs: &Knobs) -> String {
    let mut text = print::table(
        &["subject", "knob", "value", "baseline", "state", "policy", "since", "reason"],
        knobs.held.iter().map(|knob| {
            vec![
                knob.subject.clone(),
                knob.knob.clone(),
                value_of(knob.value),
                value_of(knob.baseline),
                knob.state.clone(),
                knob.policy.clone(),
                knob.since.clone(),
                knob.reason.clone(),
            ]
        }),
    );
    if !knobs.refused.is_empty() {
        text.push_str("\nnot in force:\n");
        text.push_str(&print::table(
            &["subject", "knob", "wanted", "policy", "kind", "why"],
            knobs.refused.iter().map(|refusal| {
                vec![
                    refusal.subject.clone(),
                    refusal.knob.clone(),
                    value_of(refusal.wanted),
                    refusal.policy.clone(),
                    refusal.kind.clone(),
                    refusal.why.clone(),
                ]
            }),
        ));
    }
    text
}

fn classes(classes: &[ClassReport]) -> String {
    let mut text = print::table(
        &["policy", "class", "shares", "in force", "group", "schemata", "members", "since", "reason"],
        classes.iter().map(|class| {
            vec![
                class.policy.clone(),
                class.class.clone(),
                class.shares.clone(),
                if class.in_force { "yes" } else { "no" }.to_owned(),
                class.group.clone(),
                class.schemata.clone(),
                class.members.len().to_string(),
                class.since.clone(),
                class.reason.clone(),
            ]
        }),
    );
    for class in classes.iter().filter(|class| !class.why.is_empty()) {
        text.push_str(&format!("\n{}/{}: {}\n", class.policy, class.class, class.why));
    }
    text
}

fn resources(resources: &[NodeResourceReport]) -> String {
    let mut text = print::table(
        &["resource", "policy", "published", "on the node", "in force", "reason"],
        resources.iter().map(|resource| {
            vec![
                resource.name.clone(),
                resource.policy.clone(),
                resource.amount.to_string(),
                resource.on_node.to_string(),
                if resource.in_force { "yes" } else { "no" }.to_owned(),
                resource.reason.clone(),
            ]
        }),
    );
    for resource in resources.iter().filter(|resource| !resource.why.is_empty()) {
        text.push_str(&format!("\n{} of {}: {}\n", resource.name, resource.policy, resource.why));
    }
    text
}

fn evictions(evictions: &[EvictionReport]) -> String {
    print::table(
        &["pod", "urgency", "policy", "outcome", "since", "reason", "why"],
        evictions.iter().map(|eviction| {
            let decision = &eviction.decision;
            let message = format!("{}: {}", decision.reason, decision.message);
            let columns = [&decision.pod, &decision.urgency, &decision.policy, &decision.outcome, &eviction.since];
            columns.into_iter().cloned().chain([message, decision.why.clone()]).collect()
        }),
    )
}

fn events(events: &[Value]) -> String {
    let field = |event: &Value, name: &str| match &event[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    print::table(
        &["pod", "kind", "reason", "count", "from", "message"],
        events
            .iter()
            .map(|event| ["pod", "kind", "reason", "count", "source", "message"].map(|name| field(event, name)).into()),
    )
}

pub(crate) fn pause(args: &PauseArgs) -> anyhow::Result<Answer> {
    let pod = full_name(&args.pod)?;
    let until = args.duration.map(|duration| jiff::Timestamp::now().saturating_add(duration)).transpose()?;
    let request = PauseRequest { pod: pod.to_owned(), until_millis: until.map(|until| until.as_millisecond()) };
    let answer = client::post(&args.socket.admin_socket, "/v1/pause", &request)?;
    let Paused { known } = serde_json::from_slice(&answer).context("the agent's answer cannot be read")?;
    if !known {
        eprintln!("note: there is no pod {pod} here now; the pause waits for it");
    }
    print::text(&match until {
        Some(until) => format!("{pod}: paused until {until}\n"),
        None => format!("{pod}: paused until resumed (qosm resume {pod})\n"),
    })?;
    Ok(Answer::Good)
}

pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<Answer> {
    let pod = full_name(&args.pod)?;
    client::post(&args.socket.admin_socket, "/v1/resume", &PodQuery { pod: pod.to_owned() })?;
    print::text(&format!("{pod}: resumed\n"))?;
    Ok(Answer::Good)
}

/// The old name of [`pause`] and, with `--lift`, of [`resume`].
pub(crate) fn hold(args: HoldArgs) -> anyhow::Result<Answer> {
    let HoldArgs { pause, lift } = args;
    let new = if lift { "resume" } else { "pause" };
    eprintln!("note: `qosm hold{}` is called `qosm {new}` now", if lift { " --lift" } else { "" });
    if lift { resume(&ResumeArgs { pod: pause.pod, socket: pause.socket }) } else { self::pause(&pause) }
}

/// A pod's name with its namespace: a pause outlives the pod, so a name alone has nothing to be looked up in.
fn full_name(pod: &str) -> Result<&str, Usage> {
    if pod.contains('/') {
        Ok(pod)
    } else {
        Err(Usage(format!("`{pod}`: name the pod as namespace/name, e.g. default/{pod}")))
    }
}

pub(crate) fn retry(policy: &str, socket: &SocketArgs) -> anyhow::Result<Answer> {
    client::post(&socket.admin_socket, "/v1/retry", &PolicyQuery { policy: policy.to_owned() })?;
    print::text(&format!("{policy}: tried again at the next tick; see `qosm get policies`\n"))?;
    Ok(Answer::Good)
}
