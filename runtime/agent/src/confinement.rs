//! Which parts of the agent's confinement are in force.

use qosm_confinement::{Landlock, SeccompMode, Status};
use qosm_host::{Host, MoverConfinement, MoverState};
use serde::{Deserialize, Serialize};

/// How one process is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfinementReport {
    /// Its process ID, in its own PID namespace.
    pub pid: u32,
    /// Whether `no_new_privs` is set, so that no `execve` grants privileges.
    pub no_new_privileges: bool,
    /// ABI version of the Landlock rules that restrict its paths; `None` if no path is restricted.
    pub landlock_abi: Option<i32>,
    /// The state of Landlock as text; if it is not in force, with the reason.
    pub landlock: String,
    /// How its system calls are filtered: `filter`, `strict`, `off`.
    pub seccomp: String,
    /// Number of seccomp filters; 0 if there is none, or if the kernel does not count them.
    pub seccomp_filters: u32,
    /// Its effective capabilities.
    pub capabilities: Vec<String>,
    /// Its bounding set: capabilities that it, or a program that it starts, could gain.
    pub bounding_set: Vec<String>,
}

/// How the agent and its page mover are confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfinementReports {
    /// The agent.
    pub agent: ConfinementReport,
    /// The page mover; `None` if it does not answer, or is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_mover: Option<ConfinementReport>,
    /// Why the page mover does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_mover_away: Option<String>,
}

impl ConfinementReport {
    fn of_mover(mover: &MoverConfinement) -> Self {
        let (seccomp, seccomp_filters) = mover.seccomp_filters.map_or(("off", 0), |count| ("filter", count));
        Self {
            pid: mover.pid,
            no_new_privileges: mover.no_new_privileges,
            landlock_abi: None,
            landlock: "no Landlock: it would keep the page mover from looking into other processes".to_owned(),
            seccomp: seccomp.to_owned(),
            seccomp_filters,
            capabilities: qosm_confinement::capability_names(mover.capabilities),
            bounding_set: qosm_confinement::capability_names(mover.bounding_set),
        }
    }

    /// Reads the confinement of this process from the kernel. The kernel does not report Landlock, so it is passed in.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub fn of_this_process(landlock: &Landlock) -> std::io::Result<Self> {
        let status = Status::read()?;
        let (seccomp, seccomp_filters) = match status.seccomp {
            SeccompMode::Off => ("off", 0),
            SeccompMode::Strict => ("strict", 0),
            SeccompMode::Filter(count) => ("filter", count),
        };
        Ok(Self {
            pid: std::process::id(),
            no_new_privileges: status.no_new_privileges,
            landlock_abi: match landlock {
                Landlock::Enforced { abi } => Some(*abi),
                _ => None,
            },
            landlock: landlock.to_string(),
            seccomp: seccomp.to_owned(),
            seccomp_filters,
            capabilities: status.capabilities(),
            bounding_set: qosm_confinement::capability_names(status.bounding),
        })
    }
}

impl ConfinementReports {
    /// The confinement in force now. `landlock` is the result of enforcing Landlock before the agent was created.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub(crate) fn now(host: &Host, landlock: &Landlock) -> Result<Self, String> {
        let agent =
            ConfinementReport::of_this_process(landlock).map_err(|error| format!("/proc cannot be read: {error}"))?;
        let (page_mover, page_mover_away) = match host.page_mover() {
            Some(MoverState::Ready(mover)) => (Some(ConfinementReport::of_mover(&mover)), None),
            Some(MoverState::Away(why)) => (None, Some(why)),
            None => (None, None),
        };
        Ok(Self { agent, page_mover, page_mover_away })
    }
}
