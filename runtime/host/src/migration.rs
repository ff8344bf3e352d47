//! Moving the pages of containers between NUMA nodes: requested by the loop, done by a thread, or by another process
//! that has the privileges for it ([`mover`]).

mod job;
mod move_pages;
mod mover;
mod process;
mod worker;

use std::sync::Arc;

use qosm_model::knob::Target;
use qosm_model::numa::{Migration, MigrationSample};
use qosm_model::pod::ContainerId;

use crate::Host;
use crate::backend::Backend as _;
use crate::error::HostError;
use crate::mounts::Controller;

pub use job::MigrationLimits;
pub(crate) use job::{Job, Run};
pub(crate) use mover::Client as MoverClient;
pub use mover::{MoverAddress, MoverConfinement, MoverState, send_mover_exit};
pub(crate) use worker::{Directories as WorkerDirectories, Worker};

impl Host {
    /// Sets the limits of all migrations that begin from now on.
    pub fn limit_migrations(&mut self, limits: MigrationLimits) {
        self.migration_limits = limits;
    }

    /// Queues a migration of a container's pages and returns at once; [`Host::migrations`] returns its progress. An
    /// earlier migration of the container is cancelled.
    ///
    /// # Errors
    ///
    /// [`HostError::NotAttached`], [`HostError::Gone`], [`HostError::Unsupported`] without a memory hierarchy, and
    /// [`HostError::Migrate`] if the thread cannot be started.
    pub fn migrate(&mut self, migration: &Migration) -> Result<(), HostError> {
        let target = Target::Container(migration.container);
        self.stop_migration(migration.container);
        let Some(tree) = self.hierarchies.of(Controller::Memory) else {
            let why = "the controller `memory` is not mounted".to_owned();
            return Err(HostError::Unsupported { what: "page migration".to_owned(), why });
        };
        let Some(cgroup) = self.attached_path(target).map(str::to_owned) else {
            return Err(HostError::NotAttached { target });
        };
        if !self.is_same(target, tree) {
            return Err(HostError::Gone { path: cgroup });
        }
        let run = Arc::new(Run::new(migration.token));
        let job = Job {
            tree,
            cgroup: cgroup.clone(),
            from: migration.from.clone(),
            to: migration.to.clone(),
            topology: self.numa_topology(),
            limits: self.migration_limits,
            may_move_shared: self.node.capabilities.sys_nice,
        };
        self.backend.migrate(job, Arc::clone(&run)).map_err(|source| HostError::Migrate { path: cgroup, source })?;
        self.migrations.insert(migration.container, run);
        Ok(())
    }

    /// Cancels a container's migration, if there is one, after the current slice. Moved pages stay on their new node.
    pub fn stop_migration(&mut self, container: ContainerId) {
        if let Some(run) = self.migrations.get(&container) {
            run.cancel();
        }
    }

    /// Progress of each container's latest migration, until the container is detached.
    pub fn migrations(&self) -> Vec<MigrationSample> {
        self.migrations
            .iter()
            .map(|(&container, run)| MigrationSample { container, progress: run.progress() })
            .collect()
    }

    /// Cancels a migration and drops its progress when the container is detached.
    pub(crate) fn forget_migration(&mut self, target: Target) {
        if let Target::Container(container) = target
            && let Some(run) = self.migrations.remove(&container)
        {
            run.cancel();
        }
    }
}

impl Drop for Host {
    /// Cancels all migrations: the worker ends after at most one more slice.
    fn drop(&mut self) {
        for run in self.migrations.values() {
            run.cancel();
        }
    }
}
