//! `qosm explain`: everything about one pod.

use std::fmt::Write;

use qosm_agent::report::{EvictionReport, Explanation};
use qosm_terminal::{Answer, print};

use crate::args::{ExplainArgs, Output};
use crate::client;

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let explanation: Explanation =
        client::get(&args.socket.admin_socket, &format!("/v1/explain?pod={}", encode(&args.pod)))?;
    match args.output.output {
        Output::Json => print::json(&explanation)?,
        Output::Table => print::text(&render(&explanation))?,
    }
    Ok(Answer::Good)
}

/// Percent-encodes a query's value.
pub(crate) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The explanation as text.
pub(crate) fn render(explanation: &Explanation) -> String {
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
    if let Some(paused) = &pod.paused {
        writeln!(out, "    PAUSED {paused}: nothing is written to this pod")?;
    }
    for policy in &explanation.policies {
        let shadow = if policy.mode == "shadow" { "  (a shadow: nothing of it is written)" } else { "" };
        writeln!(out, "\npolicy {}{shadow}", policy.policy)?;
        if let Some(artifact) = &policy.artifact {
            writeln!(out, "    from {artifact}")?;
        }
        if let Some(error) = &policy.error {
            writeln!(out, "    {}: {error}", policy.health.to_uppercase())?;
            if policy.health == "parked" {
                writeln!(out, "    it decides nothing more; `qosm policy retry {}` starts it anew", policy.policy)?;
            }
        } else if policy.fields.is_empty() && policy.acts_on_all_pods {
            writeln!(out, "    acts on all pods (grant all-pods), by its own configuration")?;
        } else if policy.fields.is_empty() {
            writeln!(out, "    not configured for this pod: hands off")?;
        }
        for field in &policy.fields {
            writeln!(out, "    {} = {}  ({})", field.field, field.value, field.layer)?;
        }
        if let Some(rejected) = &policy.rejected {
            writeln!(out, "    turned down: {rejected}")?;
        }
    }
    write_locality(out, explanation)?;
    write_classes(out, explanation)?;
    write_eviction(out, explanation)?;
    writeln!(out, "\nheld knobs")?;
    if explanation.knobs.is_empty() {
        writeln!(out, "    none")?;
    }
    for knob in &explanation.knobs {
        let of = if knob.container.is_empty() { "pod".to_owned() } else { format!("container {}", knob.container) };
        let state = if knob.state == "held" { String::new() } else { format!(", {}", knob.state) };
        writeln!(out, "    {of}  {} = {}  (baseline {}{state})", knob.knob, knob.value, knob.baseline)?;
        writeln!(out, "        by {} since {}: {}", knob.policy, knob.since, knob.reason)?;
        if !knob.configured_by.is_empty() {
            writeln!(out, "        configured by {}", knob.configured_by.join(", "))?;
        }
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
        if let Some(capped) = &knob.capped {
            writeln!(out, "        capped: {capped}")?;
        }
        if let Some(drift) = &knob.drift {
            writeln!(out, "        drift: {drift}")?;
        }
        if let Some(until) = &knob.hands_off_until {
            writeln!(out, "        hands off until {until}")?;
        }
    }
    if let [said, resources @ ..] = explanation.pod.resize.as_slice() {
        writeln!(out, "\nresize that the kubelet has not carried out: {said}")?;
        for resources in resources {
            writeln!(out, "    {resources}")?;
        }
    }
    if !explanation.pod.high_baselines.is_empty() {
        writeln!(out, "\nbaselines above the limits")?;
        for baseline in &explanation.pod.high_baselines {
            writeln!(out, "    {baseline}")?;
        }
    }
    if !explanation.problems.is_empty() {
        writeln!(out, "\nproblems")?;
        for problem in &explanation.problems {
            writeln!(out, "    {problem}")?;
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
    if !explanation.remarks.is_empty() {
        writeln!(out, "\nwanted and not done")?;
        for remark in &explanation.remarks {
            writeln!(out, "    {}  {} by {}", remark.subject, remark.knob, remark.policy)?;
            writeln!(out, "        {}", remark.why)?;
        }
    }
    if !explanation.events.is_empty() {
        writeln!(out, "\nevents")?;
        for event in &explanation.events {
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            writeln!(
                out,
                "    {} {} ×{}: {}",
                field("kind"),
                field("reason"),
                event["count"],
                field("message").replace('\n', "\n        ")
            )?;
        }
    }
    Ok(())
}

fn write_eviction(out: &mut String, explanation: &Explanation) -> std::fmt::Result {
    let Some(EvictionReport { since, decision, .. }) = &explanation.pod.eviction else { return Ok(()) };
    writeln!(out, "\neviction: {} ({})", decision.outcome, decision.urgency)?;
    writeln!(out, "    by {} since {since}: {}: {}", decision.policy, decision.reason, decision.message)?;
    if decision.why.is_empty() { Ok(()) } else { writeln!(out, "    {}", decision.why) }
}

fn write_classes(out: &mut String, explanation: &Explanation) -> std::fmt::Result {
    if explanation.pod.classes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nshares of caches and memory bandwidth")?;
    for membership in &explanation.pod.classes {
        let class = &membership.class;
        writeln!(
            out,
            "    container {}  class {} of {}: {}",
            membership.container, class.class, class.policy, class.shares
        )?;
        writeln!(out, "        by {} since {}: {}", class.policy, membership.since, membership.reason)?;
        writeln!(out, "        the class since {}: {}", class.since, class.reason)?;
        if class.in_force && !class.group.is_empty() {
            writeln!(out, "        in the group {}: {}", class.group, class.schemata)?;
        }
        if !class.why.is_empty() {
            writeln!(out, "        {}: {}", if class.in_force { "in part" } else { "not in force" }, class.why)?;
        }
        for usage in &class.usage {
            let Some(bytes) = usage.occupancy_bytes else { continue };
            writeln!(out, "        {bytes} bytes in the cache of domain {}", usage.domain)?;
        }
    }
    Ok(())
}

fn write_locality(out: &mut String, explanation: &Explanation) -> std::fmt::Result {
    if explanation.pod.locality.is_empty() {
        return Ok(());
    }
    let list = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    writeln!(out, "\nmemory locality")?;
    for container in &explanation.pod.locality {
        let share = container.local_percent.map_or_else(|| "not known".to_owned(), |percent| format!("{percent} %"));
        let remote = container.remote_pages.unwrap_or(0);
        let nodes = list(&container.cpu_nodes);
        writeln!(
            out,
            "    container {}  local {share} (NUMA nodes {nodes}), {remote} pages elsewhere",
            container.container
        )?;
        let Some(migration) = &container.migration else { continue };
        writeln!(
            out,
            "        {}: {} of {} pages moved from {} to {}, {} of {} processes",
            migration.state,
            migration.pages_moved,
            migration.pages_found,
            list(&migration.from),
            list(&migration.to),
            migration.processes_done,
            migration.processes
        )?;
        writeln!(out, "        by {} since {}: {}", migration.policy, migration.since, migration.reason)?;
        if !migration.why.is_empty() {
            writeln!(out, "        because {}", migration.why)?;
        }
        if migration.pages_without_room > 0 {
            writeln!(out, "        no room on the target for {} pages", migration.pages_without_room)?;
        }
        for (errno, pages) in &migration.pages_failed {
            writeln!(out, "        {pages} pages stay: {errno}")?;
        }
        for failure in &migration.failures {
            writeln!(out, "        {failure}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use qosm_agent::report::PodPolicyReport;

    use super::*;

    #[test]
    fn a_policy_without_a_word_for_the_pod_acts_only_where_it_may_act_on_all() {
        let pod = serde_json::json!({"pod": "default/web", "uid": "u", "qos": "LS", "qosDeclared": true,
            "kubeQos": "Burstable", "cgroup": "", "containers": "1/1", "held": 0, "refused": 0, "problems": 0});
        let mut explanation = Explanation {
            pod: serde_json::from_value(pod).unwrap(),
            policies: Vec::new(),
            knobs: Vec::new(),
            refused: Vec::new(),
            remarks: Vec::new(),
            problems: Vec::new(),
            events: Vec::new(),
        };
        for (acts_on_all_pods, expected) in [(false, "hands off"), (true, "acts on all pods (grant all-pods)")] {
            explanation.policies = vec![PodPolicyReport { acts_on_all_pods, ..PodPolicyReport::default() }];
            assert!(render(&explanation).contains(expected), "{}", render(&explanation));
        }
    }
}
