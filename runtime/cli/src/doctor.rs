//! `qosm doctor`: what this host supports.

mod confinement;
mod kubelet;
mod node_memory;
mod resctrl;
mod runtime;

use std::collections::BTreeMap;

use qosm_agent::confinement::ConfinementReports;
use qosm_agent::report::PodReport;
use qosm_host::resctrl::{Capabilities, ResctrlError};
use qosm_host::{BurstRule, CgroupVersion, Controller, ControllerFact, HostFacts, Support};
use qosm_model::knob::{Knob, Level};
use qosm_terminal::{Answer, print};
use serde_json::{Value, json};

use crate::args::{DoctorArgs, Output};
use crate::{client, host};

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Answer> {
    let facts = host::open(&args.host)?.facts();
    let resctrl = resctrl::probe(&args.host)?;
    let kubelet = kubelet::read(args.host.kubelet_root.as_deref(), args.kubelet_config.as_deref())?;
    // Only an agent knows what follows from a pod's limits; without one, this part is left out.
    let pods: Vec<PodReport> = client::get(&args.socket.admin_socket, "/v1/pods").unwrap_or_default();
    let baselines = high_baselines(&pods);
    let confined = confinement::ask(&args.socket.admin_socket);
    let runtime = runtime::ask(&args.socket.admin_socket);
    match args.output.output {
        Output::Json => {
            let mut document = document(&facts, &resctrl, &confined);
            document["highBaselines"] = baselines.into();
            document["containerRuntime"] = runtime::document(&runtime);
            document["kubelet"] = kubelet::document(&kubelet, &facts);
            print::json(&document)?;
        }
        Output::Table => {
            let baselines: String = baselines.iter().map(|line| format!("  {line}\n")).collect();
            let title = if baselines.is_empty() { "" } else { "\nbaselines above what limits give:\n" };
            print::text(&format!("{}{title}{baselines}", render(&facts, &kubelet, &resctrl, &confined, &runtime)))?;
        }
    }
    Ok(Answer::Good)
}

/// Baselines that look like another agent's leftovers, by pod.
fn high_baselines(pods: &[PodReport]) -> Vec<String> {
    pods.iter().flat_map(|pod| pod.high_baselines.iter().map(|note| format!("{}, {note}", pod.pod))).collect()
}

/// Why pages cannot be moved between NUMA nodes; `None` if they can. If an agent runs, its page mover decides, else the
/// capabilities of this process, which an agent would start with.
fn page_migration(facts: &HostFacts, confined: &Result<ConfinementReports, String>) -> Option<String> {
    if facts.numa_nodes < 2 {
        return Some("memory is on one node: no pages to be moved".to_owned());
    }
    if let Ok(reports) = confined {
        return reports
            .page_mover_away
            .as_ref()
            .map(|why| format!("pages cannot be moved, the page mover is away: {why}"));
    }
    // Only the owner may read /proc/PID/pagemap (mode 0400); CAP_DAC_OVERRIDE allows it as well.
    let reads = facts.capabilities.dac_read_search || facts.capabilities.dac_override;
    let wanted = [
        ("CAP_SYS_NICE", facts.capabilities.sys_nice),
        ("CAP_SYS_PTRACE", facts.capabilities.sys_ptrace),
        ("CAP_DAC_READ_SEARCH", reads),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(_, has)| !has).map(|(name, _)| *name).collect();
    (!missing.is_empty()).then(|| format!("pages of other users cannot be moved without {}", missing.join(" and ")))
}

fn numa(facts: &HostFacts, confined: &Result<ConfinementReports, String>) -> String {
    let balancing = if facts.numa_balancing { "; the kernel balances by itself too (numa_balancing)" } else { "" };
    match page_migration(facts, confined) {
        Some(why) => format!("{}; {why}{balancing}", facts.numa_nodes),
        None => format!("{}; pages can be moved{balancing}", facts.numa_nodes),
    }
}

/// Memory protection on the tiers. The values of the kubelet and of the agent cannot be told apart here.
fn tier_protection(facts: &HostFacts) -> Option<String> {
    let held = facts.tier_protection.iter().map(|(path, knob, value)| format!("{knob} of {path} is {value}"));
    let held: Vec<String> = held.collect();
    (!held.is_empty()).then(|| {
        format!(
            "{}: set by the kubelet's MemoryQoS, by a running agent, or both; qosm adds to protection that others set, and never reduces it",
            held.join(", ")
        )
    })
}

/// Why `memory.high` is not set on this kernel.
fn livelock(facts: &HostFacts) -> String {
    let release = facts.kernel_release.as_deref().unwrap_or_default();
    format!(
        "not set: on Linux {release} processes above it may reclaim for ever (fixed in 5.9); guardRails.memoryHighBeforeLinux59 sets it \
         all the same"
    )
}

/// The alarms that can run policies between ticks on this host, and those that cannot.
fn alarms(facts: &HostFacts) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut watched, mut missing) = (vec!["throttling", "new cgroups"], Vec::new());
    let is_v2 = |controller| {
        let of = |fact: &&ControllerFact| fact.controller == controller && fact.version == Some(CgroupVersion::V2);
        facts.controllers.iter().any(|fact| of(&fact))
    };
    if facts.psi {
        watched.push("pressure of the node");
    } else {
        missing.push("pressure: the kernel accounts none (boot with psi=1)");
    }
    if facts.psi && is_v2(Controller::Cpu) {
        watched.push("pressure of pods and containers");
    } else if facts.psi {
        missing.push("pressure of pods and containers: needs cgroup v2");
    }
    if facts.psi && !facts.capabilities.sys_resource {
        missing.push("pressure within windows below 2 s: needs CAP_SYS_RESOURCE");
    }
    if is_v2(Controller::Memory) {
        watched.push("memory events");
    } else {
        missing.push("memory events: need cgroup v2");
    }
    (watched, missing)
}

fn burst_rule(facts: &HostFacts) -> &'static str {
    if facts.burst_switch == Some(false) {
        return "off: kernel.sched_cfs_bw_burst_enabled is 0; `sysctl -w kernel.sched_cfs_bw_burst_enabled=1` turns bursts on";
    }
    match facts.burst_rule {
        BurstRule::BurstWithinQuota => "a burst is capped at the quota (mainline); 1000 % comes to 100 %",
        BurstRule::Unbounded => "a burst may exceed the quota",
        BurstRule::Unknown => "not known before the first write",
    }
}

/// One row for each knob, with its support on each level.
fn by_knob(facts: &HostFacts) -> BTreeMap<Knob, BTreeMap<Level, &Support>> {
    let mut rows: BTreeMap<Knob, BTreeMap<Level, &Support>> = BTreeMap::new();
    for fact in &facts.knobs {
        rows.entry(fact.knob).or_default().insert(fact.level, &fact.support);
    }
    rows
}

fn document(
    facts: &HostFacts,
    resctrl: &Result<Capabilities, ResctrlError>,
    confined: &Result<ConfinementReports, String>,
) -> Value {
    let controllers: Vec<Value> = facts
        .controllers
        .iter()
        .map(|fact| {
            json!({
                "controller": fact.controller.as_str(),
                "version": fact.version.map(|version| format!("{version:?}").to_lowercase()),
                "mount": fact.mount,
            })
        })
        .collect();
    let knobs: Vec<Value> = facts
        .knobs
        .iter()
        .map(|fact| {
            let why = match &fact.support {
                Support::Native => None,
                Support::Emulated { how } => Some(*how),
                Support::Unavailable { why } => Some(why.as_str()),
            };
            json!({
                "knob": fact.knob.kind_name(), "level": fact.level.as_str(), "support": fact.support.as_str(), "why": why,
            })
        })
        .collect();
    json!({
        "controllers": controllers,
        "hybrid": facts.hybrid,
        "recursiveProtection": facts.recursive_protection,
        "driver": facts.driver.as_str(),
        "driverSource": facts.driver_source.to_string(),
        "kubepods": facts.kubepods,
        "hasKubepods": facts.has_kubepods,
        "cpus": facts.cpus,
        "memoryBytes": facts.memory.0,
        "pageSizeBytes": facts.page_size.0,
        "numaNodes": facts.numa_nodes,
        "numaBalancing": facts.numa_balancing,
        "pageMigration": page_migration(facts, confined).is_none(),
        "kernelRelease": facts.kernel_release,
        "memoryHighLivelocks": facts.memory_high_livelocks,
        "protectedTiers": facts.tier_protection.iter().map(|(path, knob, value)| {
            json!({"cgroup": path, "knob": knob.kind_name(), "value": value.to_string()})
        }).collect::<Vec<_>>(),
        "psi": facts.psi,
        "alarms": {"watched": alarms(facts).0, "missing": alarms(facts).1},
        "resctrl": resctrl::is_usable(resctrl),
        "resctrlDetails": resctrl::document(resctrl),
        "schedExt": facts.sched_ext,
        "burstWithinQuota": match facts.burst_rule {
            BurstRule::BurstWithinQuota => Some(true),
            BurstRule::Unbounded => Some(false),
            BurstRule::Unknown => None,
        },
        "burstSwitch": facts.burst_switch,
        "unprobed": facts.unprobed,
        "capabilities": {
            "dacOverride": facts.capabilities.dac_override,
            "dacReadSearch": facts.capabilities.dac_read_search,
            "sysAdmin": facts.capabilities.sys_admin,
            "sysPtrace": facts.capabilities.sys_ptrace,
            "sysNice": facts.capabilities.sys_nice,
            "sysResource": facts.capabilities.sys_resource,
        },
        "confinement": confinement::document(confined),
        "knobs": knobs,
        "nodeMemory": node_memory::document(facts),
    })
}

fn render(
    facts: &HostFacts,
    kubelet: &kubelet::Kubelet,
    resctrl: &Result<Capabilities, ResctrlError>,
    confined: &Result<ConfinementReports, String>,
    runtime: &runtime::Runtime,
) -> String {
    let yes = |claim: bool| if claim { "yes" } else { "no" }.to_owned();
    let mut rows: Vec<(String, String)> = Vec::new();
    for fact in &facts.controllers {
        let at = match (&fact.version, &fact.mount) {
            (Some(version), Some(mount)) => format!("cgroup {} at {mount}", format!("{version:?}").to_lowercase()),
            _ => "not mounted".to_owned(),
        };
        rows.push((format!("controller {}", fact.controller.as_str()), at));
    }
    rows.push(("cgroup driver".to_owned(), format!("{} ({})", facts.driver.as_str(), facts.driver_source)));
    let kubepods = if facts.has_kubepods { "" } else { " (not there)" };
    rows.push(("kubepods".to_owned(), format!("{}{kubepods}", facts.kubepods)));
    rows.extend(kubelet::rows(kubelet, facts));
    rows.push(("container runtime (NRI)".to_owned(), runtime::row(runtime)));
    rows.push((
        "CPUs, memory".to_owned(),
        format!("{}, {} MiB, pages of {}", facts.cpus, facts.memory.0 >> 20, facts.page_size),
    ));
    rows.push(("NUMA nodes".to_owned(), numa(facts, confined)));
    if let Some(protection) = tier_protection(facts) {
        rows.push(("protected tiers".to_owned(), protection));
    }
    if facts.memory_high_livelocks {
        rows.push(("memory.high".to_owned(), livelock(facts)));
    }
    rows.extend(node_memory::rows(facts));
    rows.push(("pressure (PSI)".to_owned(), yes(facts.psi)));
    let (watched, missing) = alarms(facts);
    rows.push(("alarms".to_owned(), watched.join(", ")));
    rows.extend(missing.into_iter().map(|missing| ("  not".to_owned(), missing.to_owned())));
    rows.extend(resctrl::rows(resctrl, facts.capabilities.sys_admin));
    if let Some(state) = &facts.sched_ext {
        rows.push(("sched_ext".to_owned(), state.clone()));
    }
    rows.push(("CFS burst".to_owned(), burst_rule(facts).to_owned()));
    let capabilities = [
        ("DAC_OVERRIDE", facts.capabilities.dac_override),
        ("DAC_READ_SEARCH", facts.capabilities.dac_read_search),
        ("SYS_ADMIN", facts.capabilities.sys_admin),
        ("SYS_PTRACE", facts.capabilities.sys_ptrace),
        ("SYS_NICE", facts.capabilities.sys_nice),
        ("SYS_RESOURCE", facts.capabilities.sys_resource),
    ];
    let list = |wanted: bool| {
        let names: Vec<_> = capabilities.iter().filter(|(_, has)| *has == wanted).map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    rows.push(("capabilities".to_owned(), format!("{}; missing: {}", list(true), list(false))));
    rows.extend(confinement::rows(confined));
    if let Some(why) = &facts.unprobed {
        rows.push(("not tried out".to_owned(), why.clone()));
    }
    let wide = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text: String = rows.iter().map(|(name, value)| format!("{name:wide$}  {value}\n")).collect();
    text.push('\n');
    let mut reasons: Vec<String> = Vec::new();
    let table: Vec<Vec<String>> = by_knob(facts)
        .into_iter()
        .map(|(knob, levels)| {
            let mut row = vec![knob.to_string()];
            for level in Level::ALL {
                let support = levels.get(&level);
                row.push(support.map_or("-", |support| support.as_str()).to_owned());
                let why = match support {
                    None | Some(Support::Native) => continue,
                    Some(Support::Emulated { how }) => how,
                    Some(Support::Unavailable { why }) => why.as_str(),
                };
                let reason = format!("{knob}: {why}");
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
            row
        })
        .collect();
    text.push_str(&print::table(&["knob", "node", "tier", "pod", "container"], table));
    if !reasons.is_empty() {
        text.push('\n');
        for reason in reasons {
            text.push_str(&format!("{reason}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use qosm_host::Host;
    use qosm_host::simulated::{Kernel, Spec};

    use super::*;

    #[test]
    fn bursts_that_the_kernel_has_switched_off_are_told_with_the_way_to_turn_them_on() {
        for (switch, told) in [
            (
                "0\n",
                "off: kernel.sched_cfs_bw_burst_enabled is 0; `sysctl -w kernel.sched_cfs_bw_burst_enabled=1` turns bursts on",
            ),
            ("1\n", "a burst may exceed the quota"),
        ] {
            let proc = BTreeMap::from([("sys/kernel/sched_cfs_bw_burst_enabled".to_owned(), switch.to_owned())]);
            let spec = Spec { kernel: Kernel::Alibaba, proc, ..Spec::default() };
            assert_eq!(burst_rule(&Host::simulated(&spec).unwrap().facts()), told);
        }
    }
}
