//! `qosm doctor`: how a running agent and its page mover are confined.

use std::path::Path;

use qosm_agent::confinement::{ConfinementReport, ConfinementReports};
use serde_json::{Value, json};

use crate::client;

/// The confinement that the running agent reports, or why the agent cannot be asked.
pub(crate) fn ask(socket: &Path) -> Result<ConfinementReports, String> {
    client::get(socket, "/v1/confinement").map_err(|error| format!("{error:#}"))
}

/// The rows of the table.
pub(crate) fn rows(asked: &Result<ConfinementReports, String>) -> Vec<(String, String)> {
    let report = match asked {
        Ok(report) => report,
        Err(why) => return vec![("confinement".to_owned(), format!("not known: {why}"))],
    };
    let mut rows = vec![("confinement".to_owned(), format!("agent, pid {}", report.agent.pid))];
    rows.extend(of_process(&report.agent));
    if let Some(mover) = &report.page_mover {
        rows.push(("page mover".to_owned(), format!("pid {}", mover.pid)));
        rows.extend(of_process(mover));
    }
    rows.extend(report.page_mover_away.iter().map(|why| ("page mover".to_owned(), format!("away: {why}"))));
    rows
}

fn of_process(report: &ConfinementReport) -> Vec<(String, String)> {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let seccomp = match (report.seccomp.as_str(), report.seccomp_filters) {
        ("filter", 0) => "filtered".to_owned(),
        ("filter", count) => format!("filtered ({count})"),
        ("off", _) => "all".to_owned(),
        (other, _) => other.to_owned(),
    };
    let row = |name: &str, text: String| (format!("  {name}"), text);
    vec![
        row("new privileges", if report.no_new_privileges { "none" } else { "by execve" }.to_owned()),
        row("paths", report.landlock.clone()),
        row("system calls", seccomp),
        row("capabilities", list(&report.capabilities)),
    ]
}

/// The JSON document.
pub(crate) fn document(asked: &Result<ConfinementReports, String>) -> Value {
    match asked {
        Ok(report) => json!(report),
        Err(why) => json!({"agent": null, "why": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_is_told_line_by_line() {
        let report = ConfinementReport {
            pid: 7,
            no_new_privileges: true,
            landlock_abi: Some(7),
            landlock: "Landlock ABI 7".to_owned(),
            seccomp: "filter".to_owned(),
            seccomp_filters: 2,
            capabilities: vec!["SETGID".to_owned(), "SETUID".to_owned()],
            bounding_set: Vec::new(),
        };
        let mover = ConfinementReport { pid: 9, landlock: "no Landlock".to_owned(), ..report.clone() };
        let reports = ConfinementReports { agent: report, page_mover: Some(mover), page_mover_away: None };
        let rendered = |reports: &ConfinementReports| {
            let lines: Vec<_> =
                rows(&Ok(reports.clone())).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
            lines.join("\n")
        };
        insta::assert_snapshot!(rendered(&reports), @r"
        confinement: agent, pid 7
          new privileges: none
          paths: Landlock ABI 7
          system calls: filtered (2)
          capabilities: SETGID, SETUID
        page mover: pid 9
          new privileges: none
          paths: no Landlock
          system calls: filtered (2)
          capabilities: SETGID, SETUID
        ");
        assert_eq!(document(&Ok(reports.clone()))["agent"]["landlockAbi"], 7);
        let alone =
            ConfinementReports { page_mover: None, page_mover_away: Some("one NUMA node".to_owned()), ..reports };
        assert!(rendered(&alone).ends_with("page mover: away: one NUMA node"));
        let away = Err("no agent answers".to_owned());
        assert_eq!(rows(&away)[0].1, "not known: no agent answers");
        assert_eq!(document(&away)["why"], "no agent answers");
    }
}
