//! Background reclaim by the host, on a simulated kernel that has `memory.reclaim` and no watermarks.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use qosm_host::simulated::{Kernel, Spec, Versions};
use qosm_host::{Executed, FreePages, Host, Support, Wanted};
use qosm_model::column::MemoryCounters;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::unit::{Bytes, Micros};

const POD: Target = Target::Pod(PodId(1));
const LS: Target = Target::Container(ContainerId(1));
const BE: Target = Target::Container(ContainerId(2));
const LS_PATH: &str = "kubepods/burstable/podu/ls";
const BE_PATH: &str = "kubepods/burstable/podu/be";
const MIB: u64 = 1 << 20;
const SECOND: Micros = Micros(1_000_000);

fn node(spec: &Spec) -> Host {
    let mut host = Host::simulated(spec).unwrap();
    for (target, path) in [(POD, "kubepods/burstable/podu"), (LS, LS_PATH), (BE, BE_PATH)] {
        host.create(path).unwrap();
        host.attach(target, path).unwrap();
    }
    host
}

fn watermarks(target: Target, ratio: i64, scale: i64, adj: i64) -> Vec<Wanted> {
    [(Knob::WmarkRatio, ratio), (Knob::WmarkScale, scale), (Knob::WmarkMinAdj, adj)]
        .into_iter()
        .map(|(knob, value)| Wanted { target, knob, value: Value::Number(value) })
        .collect()
}

fn carry_out(host: &mut Host, wanted: &[Wanted]) {
    let plan = host.plan(wanted);
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    for step in &plan.steps {
        assert_eq!(host.execute(step).unwrap(), Executed::Done(step.to), "{step:?}");
    }
    assert!(host.plan(wanted).steps.is_empty());
}

/// Fills a container with this usage, of which `file` is page cache and the rest anonymous memory.
fn fill(host: &mut Host, path: &str, usage: u64, file: u64) {
    let counters = MemoryCounters {
        usage: Bytes(usage),
        file: Bytes(file),
        inactive_file: Bytes(file),
        anon: Bytes(usage - file),
        ..MemoryCounters::default()
    };
    host.simulated_mut().unwrap().set_memory_counters(path, counters).unwrap();
}

fn limit(host: &mut Host, path: &str, file: &str, bytes: u64) {
    host.simulated_mut().unwrap().set_file(path, file, &bytes.to_string()).unwrap();
}

fn usage(host: &mut Host, path: &str) -> u64 {
    host.simulated_mut().unwrap().read_file(path, "memory.current").unwrap().trim().parse().unwrap()
}

fn run(host: &mut Host, time: Micros) {
    host.simulated_mut().unwrap().reclaim_for(time);
}

#[test]
fn says_native_emulated_or_unavailable() {
    let v2 = |kernel, missing: &[&str]| Spec {
        kernel,
        missing_files: missing.iter().map(|&file| file.to_owned()).collect(),
        ..Spec::default()
    };
    let v1 = Spec { versions: Versions::V1, ..Spec::default() };
    let refusing = Spec { refusing_files: BTreeSet::from(["memory.reclaim".to_owned()]), ..Spec::default() };
    for (spec, support) in [
        (v2(Kernel::Alibaba, &[]), "native"),
        (v2(Kernel::Mainline, &[]), "emulated"),
        (v2(Kernel::Mainline, &["memory.reclaim"]), "unavailable"),
        (refusing, "unavailable"),
        (v1, "unavailable"),
    ] {
        let mut host = node(&spec);
        for knob in [Knob::WmarkRatio, Knob::WmarkScale, Knob::WmarkMinAdj] {
            assert_eq!(host.support(LS, knob).as_str(), support, "{knob} of {spec:?}");
            let facts = host.facts();
            assert!(facts.knobs.iter().filter(|fact| fact.knob == knob).all(|fact| fact.support.as_str() == support));
        }
        let other = host.support(LS, Knob::OomPriority);
        assert!(!matches!(other, Support::Emulated { .. }));
    }
}

#[test]
fn values_read_back_and_no_file_is_written() {
    let mut host = node(&Spec::default());
    host.simulated_mut().unwrap().record_writes();
    assert_eq!(
        host.read(LS, Knob::WmarkScale).unwrap(),
        Value::Number(50),
        "as in a new cgroup of a kernel that has it"
    );
    carry_out(&mut host, &watermarks(LS, 95, 20, -25));
    for (knob, value) in [(Knob::WmarkRatio, 95), (Knob::WmarkScale, 20), (Knob::WmarkMinAdj, -25)] {
        assert_eq!(host.read(LS, knob).unwrap(), Value::Number(value));
    }
    assert_eq!(host.read(BE, Knob::WmarkRatio).unwrap(), Value::Number(0));
    assert_eq!(host.file(LS, Knob::WmarkRatio).unwrap().file, "memory.reclaim");
    assert!(host.simulated_mut().unwrap().take_writes().is_empty());
    let plan = host.plan(&watermarks(LS, 101, 20, -26));
    let refused: Vec<_> = plan.refused.iter().map(|(_, knob, _)| *knob).collect();
    assert_eq!(refused, [Knob::WmarkRatio], "{plan:?}");
    assert_eq!(plan.clamped[0].given, Value::Number(-25));
}

#[test]
fn keeps_a_container_below_its_watermark_until_released() {
    let mut host = node(&Spec::default());
    limit(&mut host, LS_PATH, "memory.max", 200 * MIB);
    limit(&mut host, LS_PATH, "memory.high", 100 * MIB);
    carry_out(&mut host, &watermarks(LS, 90, 1000, 0));
    fill(&mut host, LS_PATH, 89 * MIB, 89 * MIB);
    run(&mut host, SECOND);
    assert_eq!(usage(&mut host, LS_PATH), 89 * MIB, "below the watermark");
    fill(&mut host, LS_PATH, 99 * MIB, 99 * MIB);
    run(&mut host, SECOND);
    assert_eq!(usage(&mut host, LS_PATH), 80 * MIB, "memory.high is the smaller limit");
    let report = host.reclaim_report(LS).unwrap();
    assert_eq!((report.rounds, report.reclaimed), (1, Bytes(19 * MIB)));

    carry_out(&mut host, &watermarks(LS, 0, 50, 0));
    fill(&mut host, LS_PATH, 99 * MIB, 99 * MIB);
    run(&mut host, SECOND);
    assert_eq!(usage(&mut host, LS_PATH), 99 * MIB, "released");
    assert_eq!(host.reclaim_report(LS), None);
}

#[test]
fn memory_in_use_stays_and_is_polled_at_growing_intervals() {
    let mut host = node(&Spec::default());
    limit(&mut host, LS_PATH, "memory.max", 100 * MIB);
    carry_out(&mut host, &watermarks(LS, 90, 1000, 0));
    fill(&mut host, LS_PATH, 99 * MIB, 4 * MIB);
    let simulation = host.simulated_mut().unwrap();
    simulation.record_writes();
    simulation.reclaim_for(Micros(60 * SECOND.0));
    let asked = simulation.take_writes().len();
    assert_eq!(usage(&mut host, LS_PATH), 95 * MIB);
    let report = host.reclaim_report(LS).unwrap();
    assert_eq!((report.reclaimed, report.last_error), (Bytes(4 * MIB), None));
    assert!((5..=15).contains(&report.exhausted), "{report:?}");
    assert_eq!(asked, 0, "none of it was a success");
}

#[test]
fn a_cgroup_that_goes_takes_its_watermarks_with_it() {
    let mut host = node(&Spec::default());
    limit(&mut host, LS_PATH, "memory.max", 100 * MIB);
    carry_out(&mut host, &watermarks(LS, 90, 1000, 0));
    host.simulated_mut().unwrap().remove_cgroup(LS_PATH).unwrap();
    run(&mut host, SECOND);
    assert!(host.read(LS, Knob::WmarkRatio).unwrap_err().is_gone());
    host.create(LS_PATH).unwrap();
    assert!(host.read(LS, Knob::WmarkRatio).unwrap_err().is_gone(), "another one of the same name");
    host.attach(LS, LS_PATH).unwrap();
    assert_eq!(host.read(LS, Knob::WmarkRatio).unwrap(), Value::Number(0));
    limit(&mut host, LS_PATH, "memory.max", 100 * MIB);
    fill(&mut host, LS_PATH, 99 * MIB, 99 * MIB);
    run(&mut host, SECOND);
    assert_eq!(usage(&mut host, LS_PATH), 99 * MIB);
}

#[test]
fn while_the_node_runs_short_be_gives_first() {
    let mut host = node(&Spec::default());
    for path in [LS_PATH, BE_PATH] {
        limit(&mut host, path, "memory.max", 100 * MIB);
    }
    carry_out(&mut host, &[watermarks(LS, 95, 20, -25), watermarks(BE, 95, 20, 50)].concat());
    let mut after = |free| {
        for path in [LS_PATH, BE_PATH] {
            fill(&mut host, path, 94 * MIB, 94 * MIB);
        }
        host.simulated_mut().unwrap().set_free_pages(FreePages { free, min: 60, low: 80, high: 100, managed: 1280 });
        run(&mut host, SECOND);
        (usage(&mut host, LS_PATH) / MIB, usage(&mut host, BE_PATH) / MIB)
    };
    assert_eq!(after(10_000), (94, 94));
    assert_eq!(after(110), (94, 51));
    assert_eq!(after(50), (94, 41));
}

#[test]
fn without_a_limit_anywhere_be_gives_first_and_ls_nothing() {
    let mut host = node(&Spec::default());
    carry_out(&mut host, &[watermarks(LS, 95, 20, -25), watermarks(BE, 95, 20, 50)].concat());
    let mut after = |free| {
        for path in [LS_PATH, BE_PATH] {
            fill(&mut host, path, 94 * MIB, 94 * MIB);
        }
        host.simulated_mut().unwrap().set_free_pages(FreePages { free, min: 60, low: 80, high: 100, managed: 1280 });
        run(&mut host, SECOND);
        (usage(&mut host, LS_PATH) / MIB, usage(&mut host, BE_PATH) / MIB)
    };
    assert_eq!(after(10_000), (94, 94));
    assert_eq!(after(50), (94, 0), "the simulation never has enough again");
}

#[test]
fn the_description_names_the_limit_that_counts() {
    let mut host = node(&Spec::default());
    let reported = |host: &Host, high: Option<i64>| {
        let mut planned = vec![
            (Knob::WmarkRatio, Value::Number(95)),
            (Knob::WmarkScale, Value::Number(20)),
            (Knob::WmarkMinAdj, Value::Number(50)),
        ];
        planned.extend(high.map(|high| (Knob::MemoryHigh, Value::Number(high))));
        host.describe_software_reclaim(BE, &planned).unwrap()
    };
    let free = "; and while free memory of a NUMA node is near the kernel's watermarks, before the kernel takes from all groups alike";
    assert_eq!(
        reported(&host, None),
        format!(
            "it has no limit, nor has any group above it: memory is taken from it while more than 7945689497 of the node's \
             8589934592 bytes are not available{free}"
        )
    );
    limit(&mut host, "kubepods", "memory.max", 1000 * MIB);
    assert_eq!(
        reported(&host, None),
        format!(
            "it has no limit: memory is taken from it while kubepods uses more than 969932800 of its 1048576000 bytes{free}"
        )
    );
    limit(&mut host, "kubepods/burstable/podu", "memory.max", 100 * MIB);
    assert!(reported(&host, None).contains("while kubepods/burstable/podu uses more than"), "the smallest one");
    limit(&mut host, BE_PATH, "memory.max", 50 * MIB);
    assert_eq!(
        reported(&host, None),
        "it is reclaimed from 49807360 down to 49702503 bytes of the 52428800 that it may use; while the node runs short up to 50 % earlier"
    );
    assert!(reported(&host, Some(20 << 20)).contains("of the 20971520 that it may use"), "a bound that is planned too");
    let off = [(Knob::WmarkRatio, Value::Number(0))];
    assert_eq!(host.describe_software_reclaim(LS, &off).as_deref(), Some("it is off"));
}

#[test]
fn a_falling_memory_high_comes_down_in_steps_and_ends_at_its_target() {
    for (file, steps) in [(100, 1), (0, 16)] {
        let mut host = node(&Spec { cgroups: BTreeMap::new(), ..Spec::default() });
        fill(&mut host, LS_PATH, 100 * MIB, file * MIB);
        host.simulated_mut().unwrap().record_writes();
        carry_out(&mut host, &[Wanted { target: LS, knob: Knob::MemoryHigh, value: Value::Number(20 << 20) }]);
        let writes = host.simulated_mut().unwrap().take_writes();
        let bounds: Vec<u64> = writes
            .iter()
            .filter(|write| write.file == "memory.high")
            .map(|write| write.text.parse().unwrap())
            .collect();
        assert_eq!((bounds.len(), bounds.last()), (steps, Some(&(20 << 20))), "{writes:?}");
        assert!(bounds.is_sorted_by(|a, b| a > b) && bounds[0] <= 100 * MIB);
    }
}

#[test]
fn memory_reclaim_refuses_what_the_kernel_refuses() {
    let mut host = node(&Spec::default());
    fill(&mut host, LS_PATH, 10 * MIB, 6 * MIB);
    let simulation = host.simulated_mut().unwrap();
    let mut write = |text: &str| {
        let answer = simulation.set_file(LS_PATH, "memory.reclaim", text).map_err(|error| error.raw_os_error());
        let left = simulation.read_file(LS_PATH, "memory.current").unwrap().trim().parse::<u64>().unwrap();
        (answer.err().flatten(), left >> 10)
    };
    const EINVAL: Option<i32> = Some(22);
    const EAGAIN: Option<i32> = Some(11);
    assert_eq!(write("all"), (EINVAL, 10 << 10));
    assert_eq!(write("-1"), (EINVAL, 10 << 10));
    assert_eq!(write(""), (EINVAL, 10 << 10));
    assert_eq!(write("0"), (None, 10 << 10));
    assert_eq!(write("512K"), (None, (10 << 10) - 512));
    assert_eq!(write("1048576 swappiness=0"), (None, (9 << 10) - 512));
    assert_eq!(write("1G"), (EAGAIN, 4 << 10));
}
