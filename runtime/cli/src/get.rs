//! `qosm get`, `hold` and `policy retry`: questions and requests to a running agent.

use anyhow::Context;
use qosm_agent::admin::{Held, HoldRequest, Knobs, PolicyQuery};
use qosm_agent::report::{ClassReport, PodReport, PolicyReport, TriggerReport, WireValue};
use serde_json::Value;

use crate::args::{GetArgs, HoldArgs, Noun, Output, SocketArgs};
use crate::print::Usage;
use crate::{Answer, client, print};

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<Answer> {
    let socket = &args.socket.admin_socket;
    let path = match args.noun {
        Noun::Pods => "/v1/pods",
        Noun::Policies => "/v1/policies",
        Noun::Knobs => "/v1/knobs",
        Noun::Classes => "/v1/classes",
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
        &["pod", "class", "kubernetes qos", "containers", "held", "refused", "problems", "local memory", "hold"],
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
                pod.hold.clone().unwrap_or_default(),
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

pub(crate) fn hold(args: &HoldArgs) -> anyhow::Result<Answer> {
    if !args.pod.contains('/') {
        return Err(Usage(format!("`{}`: name the pod as namespace/name, e.g. default/{}", args.pod, args.pod)).into());
    }
    let until = args.duration.map(|duration| jiff::Timestamp::now().saturating_add(duration)).transpose()?;
    let request =
        HoldRequest { pod: args.pod.clone(), lift: args.lift, until_millis: until.map(|until| until.as_millisecond()) };
    let answer = client::post(&args.socket.admin_socket, "/v1/hold", &request)?;
    let Held { known } = serde_json::from_slice(&answer).context("the agent's answer cannot be read")?;
    if !known && !args.lift {
        eprintln!("note: there is no pod {} here now; the hold waits for it", args.pod);
    }
    print::text(&match (args.lift, until) {
        (true, _) => format!("{}: hold lifted\n", args.pod),
        (false, Some(until)) => format!("{}: on hold until {until}\n", args.pod),
        (false, None) => format!("{}: on hold until lifted (qosm hold {} --lift)\n", args.pod, args.pod),
    })?;
    Ok(Answer::Good)
}

pub(crate) fn retry(policy: &str, socket: &SocketArgs) -> anyhow::Result<Answer> {
    client::post(&socket.admin_socket, "/v1/retry", &PolicyQuery { policy: policy.to_owned() })?;
    print::text(&format!("{policy}: tried again at the next tick; see `qosm get policies`\n"))?;
    Ok(Answer::Good)
}
