//! Prints the table of the README from the last run of the benches.
//!
//! Exit status 0: every promise was measured and kept; 1: one was not. After a short run, whose figures mean nothing, it only checks that
//! each figure exists. `--forget` removes the results of earlier runs.

use std::fs;
use std::process::ExitCode;

use qosm_benches::figures::{self, Figure, Figures};

/// A line of the table.
struct Row {
    what: String,
    /// The promise; `None` = the figure is only reported.
    target: Option<&'static str>,
    measured: Option<Measured>,
}

struct Measured {
    text: String,
    is_kept: bool,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--forget") {
        return match figures::forget() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    match rows() {
        Ok(rows) => {
            print!("{}", table(&rows));
            println!("\n{}", machine());
            let is_good = |measured: &Measured| measured.is_kept || qosm_benches::is_short();
            let all = rows.iter().all(|row| row.measured.as_ref().is_some_and(is_good));
            if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn rows() -> anyhow::Result<Vec<Row>> {
    let mut rows = tick_rows(&figures::read("tick")?);
    rows.push(column_row(&figures::read("columns")?));
    rows.extend(cpu_rows(&figures::read("cpu")?));
    rows.extend(reaction_rows(&figures::read("reaction")?));
    rows.push(start_row(&figures::read("start")?));
    rows.extend(footprint_rows(&figures::read("footprint")?));
    rows.extend(resident_rows(&figures::read("resident")?));
    rows.push(load_row()?);
    rows.push(pull_row(&figures::read("pull")?));
    rows.push(swap_row(&figures::read("swap")?));
    rows.push(rego_row(&figures::read("rego")?));
    rows.push(Row {
        what: "memory QoS planned afresh for 300 pods".to_owned(),
        target: None,
        measured: figures::criterion("plan/memory-qos/300")?.map(|plan| reported(spread(plan.times(1e-6), 1, "ms"))),
    });
    Ok(rows)
}

fn tick_rows(tick: &Figures) -> Vec<Row> {
    let of = |count: u32, name: &str| tick.get(&format!("{count} {name}")).copied();
    let ratio = |count| {
        let (ratio, tick, pread, reads) =
            (of(count, "tick over pread")?, of(count, "tick us")?, of(count, "pread us")?, of(count, "reads")?);
        let text = format!(
            "{}; {:.0} µs against {:.0} µs for {:.0} reads",
            spread(ratio, 2, "×"),
            tick.median,
            pread.median,
            reads.median
        );
        Some((text, ratio.median))
    };
    let mut rows = vec![Row {
        what: "one CPU Burst tick, 300 containers, against the bare `pread`s of its files".to_owned(),
        target: Some("≤ 1.25 ×"),
        measured: ratio(300).map(|(text, ratio)| Measured { text, is_kept: ratio <= 1.25 }),
    }];
    rows.extend([30, 100, 1000].map(|count| Row {
        what: format!("the same with {count} containers"),
        target: None,
        measured: ratio(count).map(|(text, _)| reported(text)),
    }));
    rows.push(Row {
        what: "opening, reading and closing the same files, 300 containers, against that tick".to_owned(),
        target: None,
        measured: of(300, "open-read-close over tick").map(|ratio| reported(spread(ratio, 1, "×"))),
    });
    let share = || {
        let (share, wasm, native) = (of(300, "wasm over native of tick")?, of(300, "wasm us")?, of(300, "native us")?);
        let text = format!(
            "{}; the policy takes {:.0} µs in Wasm, {:.0} µs native",
            spread(share.times(100.0), 1, "%"),
            wasm.median,
            native.median
        );
        Some(Measured { text, is_kept: share.median <= 0.08 })
    };
    rows.push(Row {
        what: "Wasm's share of that tick: what the policy takes longer than native".to_owned(),
        target: Some("≤ 8 %"),
        measured: share(),
    });
    rows
}

fn column_row(columns: &Figures) -> Row {
    let measured = || {
        let (cpu, bandwidth) = (columns.get("cpu us a row")?, columns.get("bandwidth us a row")?);
        let text = format!("CPU {}; quotas {}", spread(*cpu, 3, "µs"), spread(*bandwidth, 3, "µs"));
        Some(Measured { text, is_kept: cpu.median.max(bandwidth.median) <= 0.15 })
    };
    Row { what: "a row of a column handed over to Wasm".to_owned(), target: Some("≤ 0.15 µs"), measured: measured() }
}

fn cpu_rows(cpu: &Figures) -> [Row; 2] {
    let measured = |mean: &str, percent: &str, most: f64| {
        let (mean, percent) = (cpu.get(mean)?.median, cpu.get(percent)?);
        let text = format!("{mean:.2} % ({:.2}–{:.2})", percent.lower, percent.upper);
        Some(Measured { text, is_kept: mean <= most })
    };
    [
        Row {
            what: "CPU of the agent, 300 containers, a tick a second, default modules".to_owned(),
            target: Some("≤ 0.5 % of one core"),
            measured: measured("mean percent", "percent", 0.5),
        },
        Row {
            what: "the same while it is recorded".to_owned(),
            target: Some("< 1 % of one core"),
            measured: measured("recorded mean percent", "recorded percent", 1.0),
        },
    ]
}

fn reaction_rows(reaction: &Figures) -> [Row; 3] {
    let reacted = |which: &str, p90: &str| {
        let (alarm, slow) = (reaction.get(which)?, reaction.get(p90)?.median);
        let text = format!("{}, nine of ten within {slow:.1} ms", spread(*alarm, 1, "ms"));
        Some(Measured { text, is_kept: slow <= 20.0 })
    };
    let at_work = || {
        let Measured { text, is_kept } = reacted("alarm millis", "alarm p90 millis")?;
        let interval = spread(*reaction.get("interval millis")?, 0, "ms");
        Some(Measured { text: format!("{text}; by a 1 s interval alone {interval}"), is_kept })
    };
    let idle = || {
        let (with, without) =
            (reaction.get("idle cpu percent")?.median, reaction.get("idle cpu percent, interval")?.median);
        // The agent reads one file a hundred times a second; the cost of these wake-ups depends on the machine.
        let woken = reaction.get("idle cpu percent, woken")?.median;
        let text =
            format!("{with:.2} % against {without:.2} %; a thread that wakes as often and does nothing: {woken:.2} %");
        Some(Measured { text, is_kept: with <= without + woken + 0.1 })
    };
    [
        Row {
            what: "from the first throttling of a container at work to its raised quota, beside 299 that are idle"
                .to_owned(),
            target: Some("≤ 20 ms, nine of ten"),
            measured: at_work(),
        },
        Row {
            what: "the same of one that was completely idle".to_owned(),
            target: Some("≤ 20 ms, nine of ten"),
            measured: reacted("idle alarm millis", "idle alarm p90 millis"),
        },
        Row {
            what: "CPU of the agent while its 300 containers are idle, with alarms against without".to_owned(),
            target: Some("≤ 0.1 % of one core more, besides its wake-ups"),
            measured: idle(),
        },
    ]
}

fn start_row(start: &Figures) -> Row {
    let measured = || {
        let of = |name: &str| start.get(name).map(|figure| figure.median);
        let (nri, slow, wait) = (of("nri millis")?, of("nri p90 millis")?, of("nri wait millis")?);
        let (inotify, interval) = (of("inotify millis")?, of("interval millis")?);
        let text = format!(
            "{nri:.1} ms, nine of ten within {slow:.1} ms, the runtime waits {wait:.1} ms; by the appearance of cgroups {inotify:.0} ms, by a \
             1 s interval alone {interval:.0} ms"
        );
        Some(Measured { text, is_kept: slow <= 0.0 })
    };
    Row {
        what: "from a container's first instruction to its first setting with NRI, of 50 that start at once beside 250"
            .to_owned(),
        target: Some("0 ms, nine of ten: before it"),
        measured: measured(),
    }
}

fn footprint_rows(footprint: &Figures) -> [Row; 2] {
    let of = |name: &str| footprint.get(name).map(|figure| figure.median);
    let memory = || {
        let (most, own, file, peak) = (of("most MiB")?, of("anonymous MiB")?, of("file MiB")?, of("peak MiB")?);
        let text =
            format!("{most:.1} MiB: {own:.1} its own, {file:.1} mapped files; {peak:.1} for a moment at the start");
        Some(Measured { text, is_kept: most <= 32.0 })
    };
    let descriptors = || {
        let (all, base, pod) = (of("descriptors")?, of("descriptors without pods")?, of("descriptors a pod")?);
        let text = format!("{pod:.1} a pod; {all:.0} with 100, {base:.0} without");
        Some(Measured { text, is_kept: pod <= 4.0 })
    };
    [
        Row {
            what: "resident memory of `qosm agent --kubernetes`, default modules, 100 pods".to_owned(),
            target: Some("≤ 32 MiB"),
            measured: memory(),
        },
        Row { what: "its descriptors".to_owned(), target: Some("≤ 4 a pod"), measured: descriptors() },
    ]
}

fn resident_rows(resident: &Figures) -> [Row; 3] {
    let of = |name: &str| resident.get(name).map(|figure| figure.median);
    let size = || {
        let (now, most) = (of("MiB")?, of("most MiB")?);
        Some(reported(format!("{now:.1} MiB (at most {most:.1})")))
    };
    [
        Row {
            what: "resident memory of the loop alone, without API server and sockets".to_owned(),
            target: None,
            measured: size(),
        },
        Row {
            what: "its growth over 20 000 ticks".to_owned(),
            target: Some("none"),
            // The allocator may still take a few pages once; a leak of four bytes a tick would exceed the bound.
            measured: of("growth KiB").map(|kib| Measured { text: format!("{kib:.0} KiB"), is_kept: kib <= 64.0 }),
        },
        Row {
            what: "resident memory with 20 modules, 100 pods".to_owned(),
            target: None,
            measured: of("many MiB").map(|mib| reported(format!("{mib:.1} MiB"))),
        },
    ]
}

fn load_row() -> anyhow::Result<Row> {
    let of =
        |name: &str| Ok::<_, anyhow::Error>(figures::criterion(&format!("load/{name}/100"))?.map(|f| f.times(1e-6)));
    let all = of("cpu-burst")?.zip(of("memory-qos")?).zip(of("memory-locality")?);
    let measured = all.map(|((cpu_burst, memory_qos), locality)| {
        let text = format!(
            "CPU Burst {}; memory QoS {}; memory locality {}",
            spread(cpu_burst, 1, "ms"),
            spread(memory_qos, 1, "ms"),
            spread(locality, 1, "ms")
        );
        Measured { text, is_kept: [cpu_burst, memory_qos, locality].iter().all(|figure| figure.median <= 5.0) }
    });
    Ok(Row {
        what: "load of a cached module to its first decision, 100 pods".to_owned(),
        target: Some("≤ 5 ms"),
        measured,
    })
}

fn pull_row(pull: &Figures) -> Row {
    let of = |name: &str| pull.get(name).copied();
    let parts = of("all ms").zip(of("pull ms")).zip(of("compile ms"));
    Row {
        what: "from a reference never seen to the first decision, registry on loopback, 100 pods".to_owned(),
        target: None,
        measured: parts.map(|((all, pull), compile)| {
            reported(format!(
                "{}; pull {:.0} ms, compiling {:.0} ms",
                spread(all, 0, "ms"),
                pull.median,
                compile.median
            ))
        }),
    }
}

fn swap_row(swap: &Figures) -> Row {
    let of = |name: &str| swap.get(name).copied();
    let all = of("swap us").zip(of("apply us")).zip(of("dry run us")).zip(of("first us"));
    let measured = all.map(|(((swap, apply), dry_run), first)| Measured {
        text: format!(
            "{}; applying the set {:.0} µs, the step before the dry run {:.0} µs, the step of the switch {:.0} µs",
            spread(swap.times(1e-3), 2, "ms"),
            apply.median,
            dry_run.median,
            first.median
        ),
        // The three moments are between different pairs of ticks, so each has the bound for itself.
        is_kept: [apply, dry_run, first].iter().all(|moment| moment.median <= 1000.0),
    });
    Row {
        what: "another version of a policy takes its place, 300 containers: what the loop does beyond ordinary ticks"
            .to_owned(),
        target: Some("≤ 1 ms between two ticks"),
        measured,
    }
}

fn rego_row(rego: &Figures) -> Row {
    let of = |name: &str| rego.get(name).copied();
    let beside = of("rego to opa, 100").zip(of("rego to opa-wasm, 100"));
    let parts = of("rego us a container").zip(of("rego to rust, 100")).zip(beside);
    Row {
        what: "an evaluation of a policy in Rego that looks at each of 100 containers".to_owned(),
        target: None,
        measured: parts.map(|((container, rust), (opa, opa_wasm))| {
            reported(format!(
                "{} a container; {} of CPU Burst's in Rust; {} of `opa`'s own of the same text and input; {} of the crate `opa-wasm`'s \
                 of the same module and input",
                spread(container, 2, "µs"),
                spread(rust, 1, "×"),
                spread(opa, 2, "×"),
                spread(opa_wasm, 2, "×")
            ))
        }),
    }
}

fn reported(text: String) -> Measured {
    Measured { text, is_kept: true }
}

fn spread(figure: Figure, digits: usize, unit: &str) -> String {
    let Figure { median, lower, upper } = figure;
    format!("{median:.digits$} {unit} ({lower:.digits$}–{upper:.digits$})")
}

fn table(rows: &[Row]) -> String {
    let mut text = "| figure | promise | measured | kept |\n| --- | --- | --- | --- |\n".to_owned();
    for Row { what, target, measured } in rows {
        let (shown, kept) = match (measured, target) {
            (None, _) => ("not measured", "**no**"),
            (Some(measured), None) => (measured.text.as_str(), ""),
            (Some(measured), Some(_)) => (measured.text.as_str(), if measured.is_kept { "yes" } else { "**no**" }),
        };
        text.push_str(&format!("| {what} | {} | {shown} | {kept} |\n", target.unwrap_or_default()));
    }
    text
}

/// The machine on which the benches ran.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    let model = model.map_or("an unnamed CPU", |(_, model)| model.trim());
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let cgroup = if fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false) { "v2" } else { "v1" };
    format!(
        "Measured on {model}, {cpus} CPUs, Linux {}, cgroup {cgroup}. Medians; in brackets the quartiles, for load and plan \
         the 95 % confidence interval.",
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_was_not_measured_is_not_kept() {
        let rows = tick_rows(&Figures::new());
        assert!(rows.iter().all(|row| row.measured.is_none()));
        assert!(table(&rows).lines().skip(2).all(|line| line.ends_with("| not measured | **no** |")));
    }

    #[test]
    fn a_promise_is_kept_up_to_its_bound() {
        for (ratio, kept) in [(1.25, "| yes |"), (1.26, "| **no** |")] {
            let figures = [("tick over pread", ratio), ("tick us", 500.0), ("pread us", 400.0), ("reads", 782.0)];
            let figures: Figures =
                figures.map(|(name, value)| (format!("300 {name}"), Figure::once(value))).into_iter().collect();
            let table = table(&tick_rows(&figures));
            assert!(table.lines().nth(2).is_some_and(|line| line.ends_with(kept)), "{table}");
        }
    }
}
