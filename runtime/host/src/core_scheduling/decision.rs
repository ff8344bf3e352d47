//! Which process gets which cookie: a pure function of what was seen.
//!
//! - A cookie is qosm's if the note on any container's cgroup has it; any other cookie is somebody else's, and its processes keep it: they
//!   share cores with even fewer processes than the group would allow. It never becomes a group's cookie.
//! - A group keeps the cookie of qosm's that most of its processes have, at a tie that of the process with the lowest number, mostly the
//!   oldest. Where two groups could keep one cookie, as after a group was split, it goes to the one with more processes.
//! - All other processes of the group's containers are moved to that cookie, and processes of containers that are in no group lose it.

use std::collections::{BTreeMap, BTreeSet};

use super::note::Cookie;

/// A process with its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) cookie: Option<Cookie>,
}

/// A container as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Place of the group that it is wanted in.
    pub(super) group: Option<usize>,
    /// What its cgroup's note says.
    pub(super) noted: BTreeSet<Cookie>,
    pub(super) processes: Vec<Process>,
}

/// Where a group's cookie comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing needs it.
    None,
    /// It is made.
    New,
    /// These processes have it.
    Held { cookie: Cookie, by: Vec<u32> },
}

/// What is to be done for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDecision {
    pub(super) source: Source,
    /// Processes that are to get the cookie, each with the place of its container.
    pub(super) moves: Vec<(usize, u32)>,
    /// Processes that have it already.
    pub(super) settled: usize,
    /// Processes with somebody else's cookie.
    pub(super) foreign: usize,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) groups: Vec<GroupDecision>,
    /// Processes that are to lose their cookie, each with the place of its container.
    pub(super) cleared: Vec<(usize, u32)>,
    /// The cookies of qosm's on each container's processes.
    pub(super) seen: Vec<BTreeSet<Cookie>>,
}

/// Decides for `groups` groups.
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
