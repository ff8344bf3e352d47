//! `qosm doctor`: resctrl. Only policies such as `llc-mba` need it.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::resctrl::{
    self, Availability, BandwidthInfo, BandwidthUnit, CacheId, CacheInfo, Capabilities, Inventory, MonitoringInfo,
    MountOptions, ResctrlError, ThreadThrottleMode,
};
use qosm_model::problem::chain;
use serde_json::{Value, json};

use crate::args::HostArgs;

/// Reads what this machine's resctrl supports.
pub(crate) fn probe(args: &HostArgs) -> anyhow::Result<Result<Capabilities, ResctrlError>> {
    let proc = Dir::open_ambient_dir(&args.proc, ambient_authority())?;
    let at = args.resctrl.as_ref().map(qosm_agent::config::MountPoint::as_str);
    Ok(resctrl::capabilities(&proc, at, |path| Dir::open_ambient_dir(path, ambient_authority())))
}

/// Whether policies can use resctrl: it is mounted, or can be mounted.
pub(crate) fn is_usable(found: &Result<Capabilities, ResctrlError>) -> bool {
    match found {
        Ok(Capabilities { availability: Availability::NotMounted { .. }, .. }) => true,
        Ok(found) => matches!(found.mounted, Some(Ok(_))),
        Err(_) => false,
    }
}

/// The rows of the table; `may_mount` tells whether the agent could mount resctrl.
pub(crate) fn rows(found: &Result<Capabilities, ResctrlError>, may_mount: bool) -> Vec<(String, String)> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![("resctrl".to_owned(), format!("not known: {}", chain(error)))],
    };
    let mut rows = vec![("resctrl".to_owned(), found.availability.to_string())];
    let mut row = |name: &str, text: String| rows.push((format!("  {name}"), text));
    match &found.mounted {
        None if matches!(found.availability, Availability::NotMounted { .. }) => row(
            "by the agent",
            if may_mount { "at a policy's first need" } else { "not: it would need CAP_SYS_ADMIN" }.to_owned(),
        ),
        None => {}
        Some(Err(error)) => row("not", chain(error)),
        Some(Ok(found)) => {
            for (resource, cache) in &found.info.caches {
                row(resource.as_str(), ways(cache));
            }
            for (resource, bandwidth) in &found.info.bandwidths {
                row(resource.as_str(), shares(bandwidth));
            }
            if let Some(text) = closids(found) {
                row("CLOSIDs", text);
            }
            row("counted", counted(found.info.monitoring.as_ref()));
            for shared in &found.shared {
                row(
                    "shared",
                    format!(
                        "{} has {} of the ways that other hardware uses as well ({}, cache {}: {})",
                        shared.group,
                        shared.ways.ways(),
                        shared.resource,
                        shared.cache,
                        shared.ways
                    ),
                );
            }
        }
    }
    rows
}

fn ways(cache: &CacheInfo) -> String {
    let mut text = format!(
        "{} ways (mask {}), at least {} for a group, {}",
        cache.cbm_mask.ways(),
        cache.cbm_mask,
        // The kernel accepts empty masks where it reports 0; a share has at least one way.
        cache.min_cbm_bits.max(1),
        caches(&cache.ids)
    );
    if cache.sparse_masks {
        text.push_str("; masks may have holes");
    }
    if !cache.shareable_bits.is_empty() {
        let shared = cache.shareable_bits;
        text.push_str(&format!("; other hardware uses {} of them as well (mask {shared})", shared.ways()));
    }
    text
}

fn shares(bandwidth: &BandwidthInfo) -> String {
    let unit = match bandwidth.unit {
        BandwidthUnit::Percent => "percent",
        BandwidthUnit::EighthsOfGigabyte => "1/8 GB/s",
        BandwidthUnit::MegabytesPerSecond => "MB/s (mba_MBps)",
    };
    let mut text = format!(
        "in {unit}, from {} in steps of {}, {} is no limit, {}",
        bandwidth.min_bandwidth,
        bandwidth.bandwidth_gran,
        bandwidth.maximum,
        caches(&bandwidth.ids)
    );
    if bandwidth.unit == BandwidthUnit::Percent && !bandwidth.delay_linear {
        text.push_str("; not linear: the kernel takes no value");
    }
    if bandwidth.thread_throttle_mode == Some(ThreadThrottleMode::Max) {
        text.push_str("; two threads of one core get the stricter value");
    }
    text
}

fn caches(ids: &[CacheId]) -> String {
    let list = ids.iter().map(CacheId::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {list}", if ids.len() == 1 { "cache" } else { "caches" })
}

fn closids(found: &Inventory) -> Option<String> {
    let (all, free) = (found.info.closids()?, found.free_closids()?);
    let mut text = format!("{all}, of which {free} free; the root has one");
    let own: Vec<_> = found.own_control_groups().map(ToString::to_string).collect();
    for (whose, groups) in [("qosm has", &own), ("others have", &found.foreign)] {
        if !groups.is_empty() {
            text.push_str(&format!("; {whose} {}", groups.join(", ")));
        }
    }
    Some(text)
}

fn counted(monitoring: Option<&MonitoringInfo>) -> String {
    let Some(monitoring) = monitoring else {
        return "nothing: policies decide without usage counters".to_owned();
    };
    let events = features(monitoring);
    format!("{}, for {} groups at a time (RMIDs)", events.join(", "), monitoring.num_rmids)
}

fn features(monitoring: &MonitoringInfo) -> Vec<&'static str> {
    let all = [
        ("llc_occupancy", monitoring.llc_occupancy),
        ("mbm_total_bytes", monitoring.mbm_total),
        ("mbm_local_bytes", monitoring.mbm_local),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// The JSON document.
pub(crate) fn document(found: &Result<Capabilities, ResctrlError>) -> Value {
    let found = match found {
        Ok(found) => found,
        Err(error) => return json!({"state": "unknown", "detail": chain(error)}),
    };
    let state = match (&found.availability, &found.mounted) {
        (Availability::NoKernelSupport { .. }, _) => "no-kernel-support",
        (Availability::NoHardware { .. }, _) => "no-hardware",
        (Availability::NotMounted { .. }, _) => "not-mounted",
        (Availability::Elsewhere { .. }, _) => "elsewhere",
        (Availability::Mounted { .. }, Some(Err(_))) => "unreadable",
        (Availability::Mounted { .. }, _) => "mounted",
    };
    let mut document = json!({
        "state": state, "detail": found.availability.to_string(), "vendor": found.vendor.to_string().to_lowercase(),
    });
    if let Availability::Mounted { path, options, is_emulated } = &found.availability {
        document["path"] = json!(path);
        document["options"] = json!(names(*options));
        document["emulated"] = json!(is_emulated);
    }
    match &found.mounted {
        Some(Ok(found)) => document["has"] = inventory(found),
        Some(Err(error)) => document["error"] = json!(chain(error)),
        None => {}
    }
    document
}

fn names(options: MountOptions) -> Vec<&'static str> {
    let all =
        [("cdp", options.cdp), ("cdpl2", options.cdpl2), ("mba_MBps", options.mba_mbps), ("debug", options.debug)];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

fn inventory(found: &Inventory) -> Value {
    let ids = |ids: &[CacheId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
    let caches = found.info.caches.iter().map(|(resource, cache)| {
        json!({
            "resource": resource.as_str(), "closids": cache.num_closids, "ways": cache.cbm_mask.ways(),
            "mask": cache.cbm_mask.to_string(), "minWays": cache.min_cbm_bits,
            "sharedMask": cache.shareable_bits.to_string(), "sparseMasks": cache.sparse_masks, "caches": ids(&cache.ids),
        })
    });
    let bandwidths = found.info.bandwidths.iter().map(|(resource, bandwidth)| {
        json!({
            "resource": resource.as_str(), "closids": bandwidth.num_closids,
            "unit": match bandwidth.unit {
                BandwidthUnit::Percent => "percent",
                BandwidthUnit::EighthsOfGigabyte => "eighths-of-gigabyte-per-second",
                BandwidthUnit::MegabytesPerSecond => "megabytes-per-second",
            },
            "min": bandwidth.min_bandwidth, "step": bandwidth.bandwidth_gran, "max": bandwidth.maximum.0,
            "linear": bandwidth.delay_linear,
            "threadThrottleMode": bandwidth.thread_throttle_mode.map(|mode| match mode {
                ThreadThrottleMode::Max => "max",
                ThreadThrottleMode::PerThread => "per-thread",
            }),
            "caches": ids(&bandwidth.ids),
        })
    });
    let shared = found.shared.iter().map(|shared| {
        json!({
            "group": shared.group.to_string(), "resource": shared.resource.as_str(), "cache": shared.cache.0,
            "mask": shared.ways.to_string(),
        })
    });
    json!({
        "cacheLines": caches.collect::<Vec<_>>(),
        "bandwidthLines": bandwidths.collect::<Vec<_>>(),
        "monitoring": found.info.monitoring.as_ref().map(|monitoring| json!({
            "rmids": monitoring.num_rmids, "features": features(monitoring),
            "maxThresholdOccupancyBytes": monitoring.max_threshold_occupancy.map(|bytes| bytes.0),
        })),
        "closids": found.info.closids(),
        "freeClosids": found.free_closids(),
        "ownGroups": found.own.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "foreignGroups": found.foreign,
        "sharedWithHardware": shared.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
