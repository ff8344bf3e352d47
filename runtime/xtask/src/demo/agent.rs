//! The real agent, started as an operator without Kubernetes does: with a folder of manifests, a ConfigMap, and two folders of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::command;
use crate::demo::cgroup::{Groups, Pod};
use crate::interrupt::Interrupt;
use crate::workspace::Workspace;

/// Name of the demo's pod in commands.
pub(crate) const POD: &str = "demo/web";
/// UID of the pod, from which the name of its cgroup is derived.
pub(crate) const UID: &str = "7c1f6a52-3d0e-4b8f-9a64-0d5e2b9c8f10";
/// Name of its only container.
pub(crate) const CONTAINER: &str = "apache";

/// The pod's cgroups. A request of 100m CPU comes to 102 shares.
pub(crate) const WEB: Pod = Pod { tier: "burstable", uid: UID, container: CONTAINER, shares: 102 };

/// What an agent is started with.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The text of the ConfigMap.
    pub(crate) config_map: &'a str,
    /// Manifests of the pods: file name and text.
    pub(crate) manifests: &'a [(&'a str, String)],
    /// The agent's own configuration.
    pub(crate) agent_config: &'a str,
    /// Name of a pod that the agent knows once it has started.
    pub(crate) pod: &'a str,
}

/// A running agent. Dropping it stops it, and the agent then restores what it changed.
#[derive(Debug)]
pub(crate) struct Agent {
    process: Child,
    folder: TempDir,
    binary: PathBuf,
    log: PathBuf,
}

impl Agent {
    /// Writes manifests and ConfigMap, starts the agent with them and waits until it answers.
    ///
    /// # Errors
    ///
    /// If the agent is not built, exits or does not answer; the error includes the last line of its log.
    pub(crate) fn start(
        workspace: &Workspace,
        groups: &Groups,
        log: &Path,
        start: &Start<'_>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the agent")?;
        fs::create_dir(folder.path().join("pods")).context("the folder of manifests")?;
        fs::write(folder.path().join("config.yaml"), start.config_map).context("the ConfigMap")?;
        fs::write(folder.path().join("agent.json"), start.agent_config).context("the agent's configuration")?;
        for (name, text) in start.manifests {
            write_manifest(folder.path(), name, text)?;
        }
        let output = File::create(log).with_context(|| format!("{} cannot be made", log.display()))?;
        let errors = output.try_clone().context("the agent's log")?;
        let mut command = command_line(workspace, groups, folder.path());
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let process = command
            .spawn()
            .with_context(|| format!("{} cannot be started; `make build` makes it", workspace.binary().display()))?;
        let mut agent = Self { process, folder, binary: workspace.binary(), log: log.to_path_buf() };
        let deadline = Instant::now() + Duration::from_secs(60);
        // The agent is not ready while a module is being compiled, since that module decides nothing yet.
        let is_up = |agent: &Self| agent.ask(&["explain", start.pod]).is_ok_and(|text| !text.contains(" is being "));
        while !is_up(&agent) {
            agent.check()?;
            if Instant::now() > deadline {
                bail!("the agent does not answer; its log is {}", agent.log.display());
            }
            interrupt.sleep(Duration::from_millis(200))?;
        }
        Ok(agent)
    }

    /// Changes the annotation of the demo's pod, in the folder that the agent watches.
    ///
    /// # Errors
    ///
    /// When the manifest cannot be replaced.
    pub(crate) fn set_policy(&self, policy: &str, limit_milli: u32) -> Result<()> {
        write_manifest(self.folder.path(), MANIFEST, &manifest(policy, limit_milli))
    }

    /// Runs a command of `qosm` against this agent. Returns its output.
    ///
    /// # Errors
    ///
    /// If the command fails, with the last line of its output.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String> {
        command::output(Command::new(&self.binary).args(words).arg("--admin-socket").arg(self.socket()))
    }

    /// Starts `qosm record` on this agent. It ends by itself after `length`, or with the agent.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(crate) fn record(&self, file: &Path, length: Duration) -> Result<Child> {
        let mut record = Command::new(&self.binary);
        record.args(["record", "--for", &format!("{}s", length.as_secs()), "--file"]).arg(file);
        record.arg("--admin-socket").arg(self.socket()).stdin(Stdio::null());
        record.spawn().context("`qosm record` cannot be started")
    }

    /// Path of this agent's admin socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// Checks that the agent still runs.
    ///
    /// # Errors
    ///
    /// If the agent has exited.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait().context("the agent cannot be waited for")? {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.trim().lines().last().unwrap_or("its log is empty");
            bail!("the agent ended ({status}): {last}   (all of it: {})", self.log.display());
        }
        Ok(())
    }

    /// Asks the agent to end with SIGTERM, as systemd does, and waits until it has.
    ///
    /// # Errors
    ///
    /// If it fails, or does not end within 15 seconds.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.check()?;
        command::signal_group(&self.process, Signal::TERM);
        match command::wait(&mut self.process, Duration::from_secs(15)).context("the agent cannot be waited for")? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the agent ended badly ({status}); its log is {}", self.log.display()),
            None => bail!("the agent does not end; its log is {}", self.log.display()),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) && self.stop().is_err() {
            command::signal_group(&self.process, Signal::KILL);
            // The cgroups are removed, with all that the agent wrote to them.
            let _ = self.process.wait();
        }
    }
}

/// The agent's full command line.
fn command_line(workspace: &Workspace, groups: &Groups, folder: &Path) -> Command {
    let mut command = Command::new(workspace.binary());
    command.arg("agent");
    command.arg("--pods").arg(folder.join("pods"));
    command.arg("--config").arg(folder.join("config.yaml"));
    command.arg("--agent-config").arg(folder.join("agent.json"));
    command.arg("--state-dir").arg(folder.join("state"));
    command.arg("--admin-socket").arg(folder.join("admin.sock"));
    command.arg("--module-dir").arg(workspace.modules());
    command.args(["--cgroup-root", &groups.root(), "--create-cgroups", "--metrics-listen", "none"]);
    command
}

/// The cluster's configuration. Its threshold is above the default of 50 so that a busy laptop does not count as overloaded.
pub(crate) const CONFIG_MAP: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config
  namespace: koordinator-system
data:
  cpu-burst-config: |
    {"clusterStrategy": {"policy": "none", "sharePoolThresholdPercent": 90}}
"#;

/// Name of the pod's manifest.
pub(crate) const MANIFEST: &str = "web.yaml";

/// Manifest of the pod with this policy and limit.
pub(crate) fn manifest(policy: &str, limit_milli: u32) -> String {
    format!(
        r#"apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: demo
  uid: {UID}
  annotations:
    koordinator.sh/cpuBurst: '{{"policy": "{policy}"}}'
spec:
  containers:
    - name: {CONTAINER}
      image: apache2
      resources:
        requests:
          cpu: 100m
        limits:
          cpu: {limit_milli}m
"#
    )
}

fn write_manifest(folder: &Path, name: &str, text: &str) -> Result<()> {
    // Write to the parent folder first and rename: the agent must not read a partial manifest.
    let fresh = folder.join(name);
    fs::write(&fresh, text).context("the manifest cannot be written")?;
    fs::rename(&fresh, folder.join("pods").join(name)).context("the manifest cannot be written")
}
