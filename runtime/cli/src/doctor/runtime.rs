//! `qosm doctor`: the connection to the container runtime, as the running agent reports it, else whether the socket exists.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use qosm_agent::config::NriConfig;
use qosm_agent::nri::RuntimeLink;
use serde_json::{Value, json};

use crate::client;

/// The agent's report, or what this process finds without an agent.
pub(crate) enum Runtime {
    /// The agent's report.
    Agent(RuntimeLink),
    /// Whether the usual socket exists.
    Socket { path: String, is_there: bool },
}

/// Asks the running agent.
pub(crate) fn ask(socket: &Path) -> Runtime {
    match client::get(socket, "/v1/runtime") {
        Ok(link) => Runtime::Agent(link),
        Err(_) => {
            let nri = NriConfig::default().socket;
            let is_there = std::fs::metadata(&nri).is_ok_and(|found| found.file_type().is_socket());
            Runtime::Socket { path: nri.display().to_string(), is_there }
        }
    }
}

/// The row of the table.
pub(crate) fn row(runtime: &Runtime) -> String {
    const BY_CGROUP: &str = "new containers are found by their cgroups, and get their settings after their start";
    match runtime {
        Runtime::Agent(RuntimeLink::Connected { runtime, version }) => {
            format!(
                "connected to {runtime} {version}; new containers have their settings before their first instruction"
            )
        }
        Runtime::Agent(RuntimeLink::Away { socket, why }) => {
            format!("not connected at {socket}: {why}; containers start all the same: {BY_CGROUP}")
        }
        Runtime::Agent(RuntimeLink::Absent { socket }) => format!("no socket {socket}; {BY_CGROUP}"),
        Runtime::Agent(RuntimeLink::Off) => format!("off (nri.mode in the agent's file); {BY_CGROUP}"),
        Runtime::Socket { path, is_there: true } => format!("{path} is there; an agent connects to it"),
        Runtime::Socket { path, is_there: false } => format!("no socket {path}; {BY_CGROUP}"),
    }
}

/// The JSON document.
pub(crate) fn document(runtime: &Runtime) -> Value {
    match runtime {
        Runtime::Agent(link) => json!(link),
        Runtime::Socket { path, is_there } => json!({"state": null, "socket": path, "hasSocket": is_there}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_says_what_becomes_of_new_containers() {
        let text = |text: &str| text.to_owned();
        let connected = RuntimeLink::Connected { runtime: text("containerd"), version: text("v2.4.1") };
        let away = RuntimeLink::Away { socket: text("/s"), why: text("the runtime closed the connection") };
        let states = [
            Runtime::Agent(connected.clone()),
            Runtime::Agent(away),
            Runtime::Agent(RuntimeLink::Absent { socket: text("/s") }),
            Runtime::Agent(RuntimeLink::Off),
            Runtime::Socket { path: text("/s"), is_there: false },
        ];
        for state in states {
            assert!(row(&state).contains("new containers"), "{}", row(&state));
        }
        assert_eq!(
            document(&Runtime::Agent(connected)),
            json!({"state": "connected", "runtime": "containerd", "version": "v2.4.1"})
        );
    }
}
