//! Reports the results of the demo: a table, and the same data as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::demo::measure::{Phase, SETTLE, Summary, millis, percent, percentile};

/// Machine and parameters of the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// CPUs of the machine.
    pub(crate) cpus: usize,
    /// The cgroup version.
    pub(crate) cgroup: &'static str,
    /// The container's CPU limit.
    pub(crate) limit_milli: u32,
    /// CPU time of a request.
    pub(crate) cost: Duration,
    /// Requests a second.
    pub(crate) rate: f64,
}

/// The results as a table.
pub(crate) fn table(setting: &Setting, before: &Phase, after: &Phase) -> String {
    let (one, two) = (before.summary(), after.summary());
    let time = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
    let range = |(least, most): (Duration, Duration)| {
        if least == most { millis(Some(least)) } else { format!("{} to {}", millis(Some(least)), millis(Some(most))) }
    };
    let burst = |summary: &Summary| summary.burst.map_or("not in this kernel".to_owned(), range);
    let rows: [(&str, String, String); 9] = [
        ("", format!("policy {}", before.policy), format!("policy {}", after.policy)),
        ("throttled periods", format!("{:.1} %", one.throttled_percent), format!("{:.1} %", two.throttled_percent)),
        ("latency p50", time(one.p50), time(two.p50)),
        ("latency p95", time(one.p95), time(two.p95)),
        ("latency p99", time(one.p99), time(two.p99)),
        ("requests answered", one.requests.to_string(), two.requests.to_string()),
        ("CPUs used", format!("{:.2}", one.cpus), format!("{:.2}", two.cpus)),
        ("quota each 100 ms", range(one.quota), range(two.quota)),
        ("burst on top", burst(&one), burst(&two)),
    ];
    let mut text = String::new();
    for (name, left, right) in rows {
        text += &format!("  {name:<20}{left:>18}{right:>20}\n");
    }
    text + &format!(
        "\n  Apache, {:.1} ms of CPU a page, {:.1} requests a second, limit {} milli-CPU; {} CPUs, Linux {}, {}.\n  \
         Each phase is counted from its second {} on.\n",
        setting.cost.as_secs_f64() * 1000.0,
        setting.rate,
        setting.limit_milli,
        setting.cpus,
        setting.kernel,
        setting.cgroup,
        SETTLE + 1,
    )
}

/// Whether the second phase was throttled less than a third as much as the first, with a lower 99th percentile.
pub(crate) fn shows_the_effect(before: &Phase, after: &Phase) -> bool {
    let (before, after) = (before.summary(), after.summary());
    after.throttled_percent < before.throttled_percent / 3.0 && after.p99 < before.p99
}

/// All results, second by second.
pub(crate) fn json(setting: &Setting, phases: &[&Phase]) -> Value {
    let micros = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let phase = |phase: &&Phase| {
        let summary = phase.summary();
        let seconds = phase.seconds.iter().map(|second| {
            json!({
                "second": second.at,
                "counted": second.at > SETTLE,
                "periods": second.periods,
                "throttled_periods": second.throttled,
                "throttled_percent": percent(second.throttled, second.periods),
                "requests": second.latencies.len(),
                "p50_usec": micros(Some(percentile(&second.latencies, 50))),
                "p99_usec": micros(Some(percentile(&second.latencies, 99))),
                "cpu_usec": micros(Some(second.usage)),
                "quota_usec": micros(second.quota),
                "burst_usec": micros(second.burst),
            })
        });
        json!({
            "policy": phase.policy,
            "requests": summary.requests,
            "throttled_percent": summary.throttled_percent,
            "p50_usec": micros(Some(summary.p50)),
            "p95_usec": micros(Some(summary.p95)),
            "p99_usec": micros(Some(summary.p99)),
            "cpus_used": summary.cpus,
            "quota_usec": [micros(Some(summary.quota.0)), micros(Some(summary.quota.1))],
            "burst_usec": summary.burst.map(|(least, most)| [micros(Some(least)), micros(Some(most))]),
            "seconds": seconds.collect::<Vec<_>>(),
        })
    };
    json!({
        "kernel": setting.kernel,
        "cpus": setting.cpus,
        "cgroup": setting.cgroup,
        "limit_milli": setting.limit_milli,
        "page_cpu_usec": micros(Some(setting.cost)),
        "requests_per_second": setting.rate,
        "phases": phases.iter().map(phase).collect::<Vec<_>>(),
    })
}
