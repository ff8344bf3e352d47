//! `qosm pause`, `resume` and `policy retry`: requests to a running agent.

use anyhow::Context;
use qosm_agent::admin::{PauseRequest, Paused, PodQuery, PolicyQuery};
use qosm_agent::report::PodReport;
use qosm_terminal::{Answer, Usage, print};

use crate::args::{HoldArgs, PauseArgs, ResumeArgs, SocketArgs};
use crate::client;

pub(crate) fn pause(args: &PauseArgs) -> anyhow::Result<Answer> {
    let pod = full_name(&args.pod)?;
    let until = args.duration.map(|duration| jiff::Timestamp::now().saturating_add(duration)).transpose()?;
    let request = PauseRequest { pod: pod.to_owned(), until_millis: until.map(|until| until.as_millisecond()) };
    let answer = client::post(&args.socket.admin_socket, "/v1/pause", &request)?;
    let Paused { known } = serde_json::from_slice(&answer).context("the agent's answer cannot be read")?;
    if !known {
        eprintln!("note: there is no pod {pod} on this node now; the pause waits for it");
    }
    print::text(&match until {
        Some(until) => format!("{pod}: paused until {until}\n"),
        None => format!("{pod}: paused until resumed (qosm resume {pod})\n"),
    })?;
    Ok(Answer::Good)
}

pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<Answer> {
    let pod = full_name(&args.pod)?;
    let socket = &args.socket.admin_socket;
    client::post(socket, "/v1/resume", &PodQuery { pod: pod.to_owned() })?;
    let pods: Vec<PodReport> = client::get(socket, "/v1/pods")?;
    if let Some(by) = pods.into_iter().find(|report| report.pod == pod).and_then(|report| report.paused) {
        anyhow::bail!("{}", still_paused(pod, &by));
    }
    print::text(&format!("{pod}: resumed\n"))?;
    Ok(Answer::Good)
}

/// Explains a pause that is not the operator's.
fn still_paused(pod: &str, by: &str) -> String {
    let way_out = if by.starts_with("by annotation") {
        "remove its annotation qosm.io/paused (qosm.io/hold by its old name)"
    } else {
        "its namespace is in `guardRails.protectedNamespaces` of the agent's configuration"
    };
    format!("{pod} is still paused {by}: {way_out}")
}

/// The old name of [`pause`] and, with `--lift`, of [`resume`].
pub(crate) fn hold(args: HoldArgs) -> anyhow::Result<Answer> {
    let HoldArgs { pause, lift } = args;
    let new = if lift { "resume" } else { "pause" };
    eprintln!("note: `qosm hold{}` is called `qosm {new}` now", if lift { " --lift" } else { "" });
    if lift { resume(&ResumeArgs { pod: pause.pod, socket: pause.socket }) } else { self::pause(&pause) }
}

/// Checks that a pod's name has a namespace: a pause outlives the pod, so the namespace of a name alone cannot be looked up.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_goes_on_is_explained_by_its_source() {
        for (by, expected) in [
            (
                "by annotation",
                "shop/web is still paused by annotation: remove its annotation qosm.io/paused (qosm.io/hold by its old name)",
            ),
            (
                "by the guard rail protectedNamespaces",
                "shop/web is still paused by the guard rail protectedNamespaces: its namespace is in `guardRails.protectedNamespaces` of the agent's configuration",
            ),
        ] {
            assert_eq!(still_paused("shop/web", by), expected);
        }
    }
}
