//! `qosm explain`: all about one pod.

use std::fmt::Write;

use qosm_agent::report::Explanation;

use crate::args::{ExplainArgs, Output};
use crate::{Answer, client, print};

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let explanation: Explanation =
        client::get(&args.socket.admin_socket, &format!("/v1/explain?pod={}", encode(&args.pod)))?;
    match args.output.output {
        Output::Json => print::json(&explanation)?,
        Output::Table => print::text(&tell(&explanation))?,
    }
    Ok(Answer::Good)
}

/// Percent-encodes what may not stand in a query.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The explanation as text.
pub(crate) fn tell(explanation: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut text, explanation);
    text
}

fn write(out: &mut String, explanation: &Explanation) -> std::fmt::Result {
    let pod = &explanation.pod;
    let declared = if pod.qos_declared { "declared" } else { "from its Kubernetes QoS" };
    writeln!(out, "pod {}  class {} ({declared}), Kubernetes QoS {}", pod.pod, pod.qos, pod.kube_qos)?;
    let cgroup = if pod.cgroup.is_empty() { "not there yet" } else { &pod.cgroup };
    writeln!(out, "    cgroup {cgroup}, containers {}", pod.containers)?;
    if let Some(hold) = &pod.hold {
        writeln!(out, "    ON HOLD {hold}: nothing is written to this pod")?;
    }
    for policy in &explanation.policies {
        writeln!(out, "\npolicy {}", policy.policy)?;
        if let Some(error) = &policy.error {
            writeln!(out, "    {}: {error}", policy.health.to_uppercase())?;
            if policy.health == "parked" {
                writeln!(out, "    it decides nothing more; `qosm policy retry {}` starts it anew", policy.policy)?;
            }
        } else if policy.fields.is_empty() {
            writeln!(out, "    not configured for this pod: hands off")?;
        }
        for field in &policy.fields {
            writeln!(out, "    {} = {}  ({})", field.field, field.value, field.layer)?;
        }
        if let Some(rejected) = &policy.rejected {
            writeln!(out, "    turned down: {rejected}")?;
        }
        for problem in &policy.problems {
            writeln!(out, "    problem: {problem}")?;
        }
    }
    writeln!(out, "\nheld knobs")?;
    if explanation.knobs.is_empty() {
        writeln!(out, "    none")?;
    }
    for knob in &explanation.knobs {
        let of = if knob.container.is_empty() { "pod".to_owned() } else { format!("container {}", knob.container) };
        writeln!(out, "    {of}  {} = {}  (baseline {})", knob.knob, knob.value, knob.baseline)?;
        writeln!(out, "        by {} since {}: {}", knob.policy, knob.since, knob.reason)?;
        writeln!(out, "        module {}", knob.module)?;
        writeln!(out, "        {}", knob.path)?;
        if let Some(emulation) = &knob.emulation {
            writeln!(out, "        {}: {emulation}", knob.support)?;
        }
        if let Some(adjusted) = &knob.adjusted {
            writeln!(out, "        asked for {}: {}", adjusted.wanted, adjusted.why)?;
        }
        for (policy, value) in &knob.beneath {
            writeln!(out, "        beneath it: {value} by {policy}")?;
        }
        if let Some(drift) = &knob.drift {
            writeln!(out, "        drift: {drift}")?;
        }
        if let Some(until) = &knob.hands_off_until {
            writeln!(out, "        hands off until {until}")?;
        }
    }
    if !explanation.refused.is_empty() {
        writeln!(out, "\nnot in force")?;
        for refusal in &explanation.refused {
            writeln!(
                out,
                "    {}  {} = {} by {}: {}, {}",
                refusal.subject, refusal.knob, refusal.wanted, refusal.policy, refusal.kind, refusal.why
            )?;
        }
    }
    if !explanation.events.is_empty() {
        writeln!(out, "\nevents")?;
        for event in &explanation.events {
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            writeln!(out, "    {} {} ×{}: {}", field("kind"), field("reason"), event["count"], field("message"))?;
        }
    }
    Ok(())
}
