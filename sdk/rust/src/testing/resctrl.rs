//! Caches and memory bandwidth in case files: their use, and the expected classes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use crate::mock::{ClassChange, Columns};
use crate::{
    BandwidthShare, CacheDomain, CacheShare, CacheUsage, ClassSample, ClassState, ContainerId, ContainerUsage, Share,
    Target,
};

/// Defaults of a cache: number of ways, and size.
const WAYS: u32 = 10;
const CACHE_BYTES: u64 = 20 << 20;

/// A cache and the memory bandwidth behind it, in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: two sockets, and no way to divide the second one's bandwidth
///     ticks:
///       - cacheDomains: [{id: 0, ways: 11, cacheBytes: 34603008}, {id: 1, dividesBandwidth: false}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].cache_domains.as_ref().map(Vec::len), Some(2));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CacheDomainRow {
    /// Number of the domain.
    pub id: u32,
    /// Ways that can be allocated; 0 = the cache cannot be divided. 10 by default.
    pub ways: Option<u32>,
    /// Size of the cache; 20 MiB by default.
    pub cache_bytes: Option<u64>,
    /// Whether the memory bandwidth can be divided; the default is yes.
    pub divides_bandwidth: Option<bool>,
}

/// Use of one domain; fields that are left out are not counted.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: usage of a class, of a container and of all others, by domain
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cacheDomains: [{id: 0}]
///         classUsage: {be: {0: {occupancyBytes: 6291456, totalBytes: 900000000}}}
///         containerUsage: {default/web/app: {0: {totalBytes: 100000000}}}
///         restUsage: {0: {totalBytes: 7}}
///     ",
/// )?;
/// let Some(usage) = &case.ticks[0].class_usage else { return Ok(()) };
/// assert_eq!(usage["be"][&0].total_bytes, Some(900_000_000));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UsageRow {
    /// Bytes that occupy the cache.
    pub occupancy_bytes: Option<u64>,
    /// Bytes moved to and from the memory of the same NUMA node.
    pub local_bytes: Option<u64>,
    /// Bytes moved to and from any memory.
    pub total_bytes: Option<u64>,
}

/// State of a class.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a class that found no place
///     ticks:
///       - classStates: {be: {inForce: false, why: no class is left}}
///     ",
/// )?;
/// let Some(states) = &case.ticks[0].class_states else { return Ok(()) };
/// assert!(!states["be"].in_force);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassStateRow {
    /// Whether the class's shares are in force.
    pub in_force: bool,
    /// Why not, or which part is not.
    #[serde(default)]
    pub why: String,
}

/// Share of a class on one domain; fields that are left out are as on all domains.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: one cache differs
///     ticks:
///       - classes: [{class: be, cachePercent: [0, 30], domains: {1: {cachePercent: [0, 10], bandwidthPercent: 50}}}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].classes[0].domains[&1].bandwidth_percent, Some(50));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ShareRow {
    /// Range of the ways, start and end in percent.
    pub cache_percent: Option<(u32, u32)>,
    /// Bit mask of the ways.
    pub cache_mask: Option<u64>,
    /// Percentage of the memory bandwidth.
    pub bandwidth_percent: Option<u32>,
    /// Memory bandwidth in megabytes per second.
    pub bandwidth_megabytes: Option<u32>,
}

/// A class that is defined, changed or given up.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: one class is defined, another one given up
///     ticks:
///       - classes:
///           - {class: be, cachePercent: [0, 30], bandwidthPercent: 100, reason: beClass}
///           - {class: ls, undefined: true}
///     ",
/// )?;
/// assert_eq!(case.ticks[0].classes[0].to_string(), "class be: ways 0-30 %, 100 % of the memory bandwidth");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClassExpectation {
    /// Name of the class.
    pub class: String,
    /// Whether the class is given up; the other fields are then left out.
    pub undefined: bool,
    /// Range of the ways, start and end in percent; all ways when left out.
    pub cache_percent: Option<(u32, u32)>,
    /// Bit mask of the ways, instead of `cache_percent`.
    pub cache_mask: Option<u64>,
    /// Percentage of the memory bandwidth; all of it when left out.
    pub bandwidth_percent: Option<u32>,
    /// Memory bandwidth in megabytes per second, instead of `bandwidth_percent`.
    pub bandwidth_megabytes: Option<u32>,
    /// Shares of individual domains.
    pub domains: BTreeMap<u32, ShareRow>,
    /// A part of the reason; any when left out.
    pub reason: Option<String>,
}

/// A pod or container that is assigned to a class, or taken out of it.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: one comes, one goes
///     ticks:
///       - members: [{target: pod default/web, class: ls}, {target: container default/db/log}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].members[1].to_string(), "container default/db/log in no class");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberExpectation {
    /// `pod namespace/name` or `container namespace/name/container`.
    pub target: String,
    /// The class from now on; none when left out.
    pub class: Option<String>,
    /// A part of the reason; any when left out.
    pub reason: Option<String>,
}

impl fmt::Display for ShareRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.cache_percent.map(|(start, end)| format!("ways {start}-{end} %")),
            self.cache_mask.map(|mask| format!("ways {mask:x}")),
            self.bandwidth_percent.map(|percent| format!("{percent} % of the memory bandwidth")),
            self.bandwidth_megabytes.map(|most| format!("{most} MB/s")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for ClassExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.undefined {
            return write!(f, "class {}: undefined", self.class);
        }
        write!(f, "class {}: {}", self.class, self.share())?;
        self.domains.iter().try_for_each(|(id, share)| write!(f, "; on domain {id} {share}"))
    }
}

impl fmt::Display for MemberExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class {
            Some(class) => write!(f, "{} in class {class}", self.target),
            None => write!(f, "{} in no class", self.target),
        }
    }
}

impl ClassExpectation {
    fn share(&self) -> ShareRow {
        ShareRow {
            cache_percent: self.cache_percent,
            cache_mask: self.cache_mask,
            bandwidth_percent: self.bandwidth_percent,
            bandwidth_megabytes: self.bandwidth_megabytes,
        }
    }
}

impl From<Share> for ShareRow {
    fn from(share: Share) -> Self {
        let mut row = Self::default();
        match share.cache {
            Some(CacheShare::Percent(range)) => row.cache_percent = Some(range),
            Some(CacheShare::Mask(mask)) => row.cache_mask = Some(mask),
            None => {}
        }
        match share.bandwidth {
            Some(BandwidthShare::Percent(percent)) => row.bandwidth_percent = Some(percent),
            Some(BandwidthShare::Megabytes(most)) => row.bandwidth_megabytes = Some(most),
            None => {}
        }
        row
    }
}

/// The definition of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Defined {
    share: ShareRow,
    domains: BTreeMap<u32, ShareRow>,
    reason: String,
}

/// The classes of a case, and their members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    defined: BTreeMap<String, Defined>,
    /// Class and reason, by member.
    members: BTreeMap<Target, (String, String)>,
}

impl Held {
    /// Applies one change.
    pub(super) fn change(&mut self, change: ClassChange) {
        match change {
            ClassChange::Define { class, share, domains, reason } => {
                let domains = domains.into_iter().map(|(id, share)| (id, share.into())).collect();
                self.defined.insert(class, Defined { share: share.into(), domains, reason });
            }
            ClassChange::Undefine { class } => {
                self.defined.remove(&class);
                self.members.retain(|_, (own, _)| *own != class);
            }
            ClassChange::Assign { target, class, reason } => drop(self.members.insert(target, (class, reason))),
            ClassChange::Release { target } => drop(self.members.remove(&target)),
        }
    }

    /// Drops members that are gone.
    pub(super) fn retain(&mut self, exists: impl Fn(Target) -> bool) {
        self.members.retain(|target, _| exists(*target));
    }

    pub(super) fn is_defined(&self, class: &str) -> bool {
        self.defined.contains_key(class)
    }

    /// Classes that changed. A different reason alone is no change.
    pub(super) fn classes_since(&self, before: &Self) -> Vec<ClassExpectation> {
        let same = |one: &Defined, other: &Defined| (one.share, &one.domains) == (other.share, &other.domains);
        let given_up = before.defined.keys().filter(|class| !self.defined.contains_key(*class));
        let given_up = given_up.map(|class| ClassExpectation {
            class: class.clone(),
            undefined: true,
            ..ClassExpectation::default()
        });
        let new = self
            .defined
            .iter()
            .filter(|(class, defined)| before.defined.get(*class).is_none_or(|old| !same(old, defined)));
        let new = new.map(|(class, defined)| ClassExpectation {
            class: class.clone(),
            undefined: false,
            cache_percent: defined.share.cache_percent,
            cache_mask: defined.share.cache_mask,
            bandwidth_percent: defined.share.bandwidth_percent,
            bandwidth_megabytes: defined.share.bandwidth_megabytes,
            domains: defined.domains.clone(),
            reason: Some(defined.reason.clone()),
        });
        new.chain(given_up).collect()
    }

    /// Members whose class changed.
    pub(super) fn members_since(
        &self,
        before: &Self,
        exists: impl Fn(Target) -> bool,
        name: impl Fn(Target) -> String,
    ) -> Vec<MemberExpectation> {
        let class = |held: &Self, target: &Target| held.members.get(target).map(|(class, _)| class.clone());
        let targets: BTreeSet<Target> = self.members.keys().chain(before.members.keys()).copied().collect();
        let changed =
            targets.into_iter().filter(|target| exists(*target) && class(self, target) != class(before, target));
        changed
            .map(|target| MemberExpectation {
                target: name(target),
                class: class(self, &target),
                reason: self.members.get(&target).map(|(_, reason)| reason.clone()),
            })
            .collect()
    }
}

/// The current use of caches and memory bandwidth, from the latest tick that sets it.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) domains: Vec<CacheDomainRow>,
    pub(super) classes: BTreeMap<String, BTreeMap<u32, UsageRow>>,
    pub(super) containers: BTreeMap<String, BTreeMap<u32, UsageRow>>,
    pub(super) rest: BTreeMap<u32, UsageRow>,
    pub(super) states: BTreeMap<String, ClassStateRow>,
}

impl Counted {
    /// Adds the rows to the columns, except those of containers, for which the caller knows the ids. Rows of a class appear once the policy
    /// has defined it.
    pub(super) fn show(&self, held: &Held, columns: &mut Columns) {
        let is_defined = |class: &&String| held.is_defined(class);
        columns.cache_domains = self.domains.iter().map(CacheDomainRow::domain).collect();
        let classes = self.classes.iter().filter(|(class, _)| is_defined(class));
        columns.class_usage =
            classes.map(|(class, usage)| ClassSample { class: class.clone(), usage: usages(usage) }).collect();
        columns.rest_usage = usages(&self.rest);
        let states = self.states.iter().filter(|(class, _)| is_defined(class));
        columns.class_states = states
            .map(|(class, row)| ClassState { class: class.clone(), in_force: row.in_force, why: row.why.clone() })
            .collect();
    }

    /// The sample of a container.
    pub(super) fn container(container: ContainerId, row: &BTreeMap<u32, UsageRow>) -> ContainerUsage {
        ContainerUsage { container, usage: usages(row) }
    }

    /// Describes the first domain that a row names and the case does not have.
    pub(super) fn slip(&self) -> Option<String> {
        let rows = self.classes.values().chain(self.containers.values()).chain([&self.rest]);
        let is_there = |id: &u32| self.domains.iter().any(|domain| domain.id == *id);
        let id = rows.flat_map(BTreeMap::keys).find(|id| !is_there(id))?;
        Some(format!("there is no cache domain {id}"))
    }

    /// Describes the first class that a row names and the policy never defined.
    pub(super) fn unknown_class(&self, is_known: impl Fn(&str) -> bool) -> Option<String> {
        let class = self.classes.keys().chain(self.states.keys()).find(|class| !is_known(class))?;
        Some(format!("class `{class}` was never defined"))
    }
}

impl CacheDomainRow {
    fn domain(&self) -> CacheDomain {
        CacheDomain {
            id: self.id,
            cache_ways: self.ways.unwrap_or(WAYS),
            cache_bytes: Some(self.cache_bytes.unwrap_or(CACHE_BYTES)),
            divides_bandwidth: self.divides_bandwidth.unwrap_or(true),
        }
    }
}

fn usages(rows: &BTreeMap<u32, UsageRow>) -> Vec<CacheUsage> {
    let usage = |(&domain, row): (&u32, &UsageRow)| CacheUsage {
        domain,
        occupancy_bytes: row.occupancy_bytes,
        local_bytes: row.local_bytes,
        total_bytes: row.total_bytes,
    };
    rows.iter().map(usage).collect()
}

/// Reduces each found reason to the part that the case expects, or to nothing if the case expects none.
pub(super) fn tell_reasons<T>(
    expected: &[T],
    found: &mut [T],
    like: impl Fn(&T, &T) -> bool,
    reason: impl Fn(&T) -> &Option<String>,
    put: impl Fn(&mut T, Option<String>),
) {
    for one in found {
        let told = expected.iter().find(|expected| like(expected, one)).and_then(|expected| reason(expected).clone());
        match told {
            None => put(one, None),
            Some(part) if reason(one).as_ref().is_some_and(|whole| whole.contains(&part)) => put(one, Some(part)),
            // The reason does not match: keep it, so that it shows up as a difference.
            Some(_) => {}
        }
    }
}
