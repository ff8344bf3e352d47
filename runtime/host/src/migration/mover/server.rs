//! The page mover's side of the connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use qosm_model::numa::{MigrationProgress, MigrationState, NumaId};

use super::protocol::{Channel, Event, MoverConfinement, Progress, Request, VERSION};
use crate::Host;
use crate::backend::Backend as _;
use crate::migration::job::{Job, MigrationLimits, Run};
use crate::mounts::Controller;

/// Interval between progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of open requests: more containers than any node has.
const MAX_OPEN: usize = 4096;

impl Host {
    /// Serves the client of this socket until it is closed: moves pages, and moves processes to core scheduling groups.
    /// Only accepts cgroups of containers: below the node's kubepods group, or below its cgroup root if that does not
    /// exist. The mover finds the processes itself, and takes core scheduling groups only from the notes on cgroups.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub fn serve_migrations(&mut self, socket: OwnedFd) -> io::Result<()> {
        let mut channel = Channel::new(socket);
        channel.send(&Event::Hello { version: VERSION, confinement: MoverConfinement::read()? })?;
        let mut open: BTreeMap<u64, (Arc<Run>, MigrationProgress)> = BTreeMap::new();
        let ended = loop {
            match channel.receive::<Request>(PROGRESS_INTERVAL) {
                Ok(Some(Request::Cancel { id })) => {
                    if let Some((run, _)) = open.get(&id) {
                        run.cancel();
                    }
                }
                Ok(Some(Request::Move { id, cgroup, from, to, limits })) => {
                    let run = Arc::new(Run::new(id));
                    let begun = if open.len() < MAX_OPEN {
                        self.begin_migration(&cgroup, &from, &to, limits.into(), &run)
                    } else {
                        Err("too many migrations are under way".to_owned())
                    };
                    if let Err(why) = begun {
                        tracing::warn!(cgroup, why, "a request is refused");
                        run.end(MigrationState::Failed, why);
                    }
                    open.insert(id, (run, MigrationProgress::default()));
                }
                Ok(Some(Request::CoreGroups)) => {
                    let report = self.reconcile_core_groups();
                    if let Err(error) = channel.send(&Event::CoreGroups(report.into())) {
                        break Err(error);
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!(%error, "a message that is no request is ignored");
                }
                Err(error) => break Err(error),
            }
            if let Err(error) = send_progress(&channel, &mut open) {
                break Err(error);
            }
        };
        for (run, _) in open.values() {
            run.cancel();
        }
        ended
    }

    fn begin_migration(
        &mut self,
        cgroup: &str,
        from: &[u32],
        to: &[u32],
        limits: MigrationLimits,
        run: &Arc<Run>,
    ) -> Result<(), String> {
        let tree = self.hierarchies.of(Controller::Memory).ok_or("the controller `memory` is not mounted")?;
        let cgroup = self.container_cgroup(cgroup)?;
        let topology = self.numa_topology();
        let nodes = |numbers: &[u32]| numbers.iter().map(|&number| NumaId(number)).collect::<Vec<_>>();
        let (from, to) = (nodes(from), nodes(to));
        if let Some(unknown) = from.iter().chain(&to).find(|&&id| topology.get(id).is_none()) {
            return Err(format!("there is no NUMA node {unknown}"));
        }
        let may_move_shared = self.node.capabilities.sys_nice;
        let job = Job { tree, cgroup, from, to, topology, limits, may_move_shared };
        self.backend.migrate(job, Arc::clone(run)).map_err(|error| error.to_string())
    }
}

/// Sends changed progress, and drops migrations that have ended.
fn send_progress(channel: &Channel, open: &mut BTreeMap<u64, (Arc<Run>, MigrationProgress)>) -> io::Result<()> {
    let mut ended = Vec::new();
    for (&id, (run, sent)) in open.iter_mut() {
        let now = run.progress();
        if now != *sent {
            channel.send(&Event::Progress { id, progress: Progress::from(now.clone()) })?;
            sent.clone_from(&now);
        }
        if now.state.has_ended() {
            ended.push(id);
        }
    }
    for id in ended {
        open.remove(&id);
    }
    Ok(())
}

/// Notifies the agent that the process behind this socket has exited, and when another one starts.
///
/// # Errors
///
/// If the agent is gone.
pub fn send_mover_exit(socket: OwnedFd, why: String, again_in: Duration) -> io::Result<()> {
    Channel::new(socket).send(&Event::Ended { why, seconds: again_in.as_secs() })
}
