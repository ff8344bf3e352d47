//! Decides when the shares of NUMA nodes are written into the node's NodeResourceTopology.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempts::Attempts;
use super::{Job, Next};

/// Interval at which unchanged shares are checked again: the program that owns the object may have replaced it.
pub(super) const ZONES_INTERVAL: Duration = Duration::from_secs(300);

/// Amounts by resource and NUMA node.
pub(in super::super) type Zones = BTreeMap<String, BTreeMap<u32, u64>>;

/// The written shares of one node.
#[derive(Debug, Default)]
pub(super) struct ZonesState {
    /// `None` until the first write: an earlier controller may have written shares.
    pub(super) written: Option<Zones>,
    /// Whether a write is wanted that has not succeeded yet. The Node's annotation does not tell: it may be removed before the write
    /// is repeated.
    pub(super) is_owed: bool,
    pub(super) again: Duration,
    pub(super) attempts: Attempts,
}

impl ZonesState {
    /// Adds the job that is due, if any, and when to look again.
    pub(super) fn look(&mut self, node: &str, zones: Zones, is_managed: bool, next: &mut Next, jobs: &mut Vec<Job>) {
        let is_done = match &self.written {
            None => zones.is_empty() && !is_managed && !self.is_owed,
            Some(written) if *written == zones && !zones.is_empty() && next.now < self.again => {
                next.no_later(Some(self.again));
                true
            }
            Some(written) => *written == zones && zones.is_empty(),
        };
        self.is_owed = !is_done;
        if is_done || self.attempts.is_under_way {
            return;
        }
        if self.attempts.is_free(next.now) {
            self.attempts.is_under_way = true;
            jobs.push(Job::PublishZones { node: node.to_owned(), zones });
        } else {
            next.no_later(Some(self.attempts.not_before));
        }
    }
}
