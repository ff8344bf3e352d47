//! Decides which process gets which cookie: a pure function of the scan.
//!
//! - A cookie is qosm's if the note on any container's cgroup lists it; every other cookie is foreign, and its
//!   processes keep it: they share cores with even fewer processes than the group would allow. A foreign cookie never
//!   becomes a group's cookie.
//! - A group keeps the cookie of qosm's that most of its processes have; at a tie, that of the process with the lowest
//!   PID, usually the oldest. If two groups could keep the same cookie, as after a group was split, the group with more
//!   processes keeps it.
//! - All other processes of the group's containers move to that cookie, and processes of containers in no group lose it.

use std::collections::{BTreeMap, BTreeSet};

use super::note::Cookie;

/// A process with its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) cookie: Option<Cookie>,
}

/// A container as the scan found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Index of the group that the container should be in; `None` if in none.
    pub(super) group: Option<usize>,
    /// Cookies in the note on its cgroup.
    pub(super) noted: BTreeSet<Cookie>,
    pub(super) processes: Vec<Process>,
}

/// How a group gets its cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// No process needs a cookie.
    None,
    /// Create a new cookie.
    New,
    /// Copy the cookie from one of these processes.
    Held { cookie: Cookie, by: Vec<u32> },
}

/// The decision for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDecision {
    pub(super) source: Source,
    /// Processes that should get the cookie, each with the index of its container.
    pub(super) moves: Vec<(usize, u32)>,
    /// Number of processes that already have the cookie.
    pub(super) settled: usize,
    /// Number of processes with a foreign cookie.
    pub(super) foreign: usize,
}

/// The decision for all containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) groups: Vec<GroupDecision>,
    /// Processes that should lose their cookie, each with the index of its container.
    pub(super) cleared: Vec<(usize, u32)>,
    /// qosm's cookies on the processes of each container.
    pub(super) seen: Vec<BTreeSet<Cookie>>,
}

/// Decides for the groups with the indices 0 to `groups` - 1.
pub(super) fn decide(groups: usize, containers: &[Scanned]) -> Decision {
    let own: BTreeSet<Cookie> = containers.iter().flat_map(|container| container.noted.iter().copied()).collect();
    let kept = kept_cookies(groups, containers, &own);
    let none = GroupDecision { source: Source::None, moves: Vec::new(), settled: 0, foreign: 0 };
    let mut decision = Decision { groups: vec![none; groups], cleared: Vec::new(), seen: Vec::new() };
    for (group, (cookie, by)) in &kept {
        if let Some(decided) = decision.groups.get_mut(*group) {
            decided.source = Source::Held { cookie: *cookie, by: by.clone() };
        }
    }
    for (place, container) in containers.iter().enumerate() {
        let of_qosm =
            container.processes.iter().filter_map(|process| process.cookie).filter(|cookie| own.contains(cookie));
        decision.seen.push(of_qosm.collect());
        let Some(group) = container.group else {
            let lose =
                container.processes.iter().filter(|process| process.cookie.is_some_and(|cookie| own.contains(&cookie)));
            decision.cleared.extend(lose.map(|process| (place, process.pid)));
            continue;
        };
        let wanted = kept.get(&group).map(|(cookie, _)| *cookie);
        let Some(decided) = decision.groups.get_mut(group) else { continue };
        for process in &container.processes {
            match process.cookie {
                Some(cookie) if Some(cookie) == wanted => decided.settled += 1,
                Some(cookie) if !own.contains(&cookie) => decided.foreign += 1,
                Some(_) | None => decided.moves.push((place, process.pid)),
            }
        }
    }
    for decided in &mut decision.groups {
        if decided.source == Source::None && !decided.moves.is_empty() {
            decided.source = Source::New;
        }
    }
    decision
}

/// The cookie that each group keeps, and the processes that have it.
fn kept_cookies(groups: usize, containers: &[Scanned], own: &BTreeSet<Cookie>) -> BTreeMap<usize, (Cookie, Vec<u32>)> {
    let mut holders: BTreeMap<(usize, Cookie), Vec<u32>> = BTreeMap::new();
    for container in containers {
        let Some(group) = container.group.filter(|&group| group < groups) else { continue };
        for process in &container.processes {
            if let Some(cookie) = process.cookie.filter(|cookie| own.contains(cookie)) {
                holders.entry((group, cookie)).or_default().push(process.pid);
            }
        }
    }
    let mut claims: Vec<((usize, Cookie), Vec<u32>)> = holders.into_iter().collect();
    claims.sort_by_key(|((group, _), by)| (std::cmp::Reverse(by.len()), by.iter().min().copied(), *group));
    let mut taken = BTreeSet::new();
    let mut kept = BTreeMap::new();
    for ((group, cookie), by) in claims {
        if !kept.contains_key(&group) && taken.insert(cookie) {
            kept.insert(group, (cookie, by));
        }
    }
    kept
}

#[cfg(test)]
mod tests;
