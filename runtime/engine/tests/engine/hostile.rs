//! Hostile modules. The second line of each file in `tests/hostile` has the expected outcome:
//!
//!     ;; expect: STEP: OUTCOME: PART OF THE ERROR
//!
//! Steps are `start`, `describe`, `description` (the description is invalid), `configure`, `pods` and `evaluate`; all
//! earlier ones must succeed. Outcomes are those of `CallError::outcome`, or `ok`. Each module ends in bounded time, and
//! another module of the same engine still evaluates in time, during and after it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use qosm_engine::{CallError, Cause, Compiler, EngineError, Instance, Interface, Limits, Module, Staged};
use qosm_model::setting::Setting;
use qosm_model::unit::{Bytes, Micros};
use rustix::time::{ClockId, clock_gettime};

use crate::contract::{ENGINE, cpu, everything, pod, view};
use crate::guest;

/// Far more CPU time than all calls together may take, `describe` included, plus the delay of the watchdog on a busy
/// machine. A call without a limit would take hours or never end.
const BOUND: Duration = Duration::from_secs(20);

/// An instance of another module, called while hostile ones run.
static NEIGHBOUR: LazyLock<Mutex<Instance>> = LazyLock::new(|| {
    let module = ENGINE.load(&guest::worker(), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "neighbour", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    instance.pods(&[view(&pod("web-1"), "{}")], &[]).unwrap();
    Mutex::new(instance)
});

fn neighbour_decides() {
    let mut neighbour = NEIGHBOUR.lock().unwrap_or_else(PoisonError::into_inner);
    let staged = neighbour.evaluate(Micros(1), Cause::Interval, &cpu([10, 11])).unwrap();
    assert_eq!(staged.settings.len(), 2);
}

/// The step at which the module failed, the outcome and the error's text; `None` if it did not fail. Only a module that is to be stopped
/// for its time has little of it: any other outcome is the same on a slow machine.
fn run(module: &Module, expected: &str) -> (Option<(&'static str, String)>, Option<Staged>) {
    let call = |error: &CallError| (error.export().as_str(), format!("{}: {error}", error.outcome()));
    match ENGINE.describe(module) {
        Ok(_) => {}
        Err(EngineError::Instantiate(error) | EngineError::Describe(error)) => return (Some(call(&error)), None),
        Err(error) => return (Some(("description", format!("flaw: {error}"))), None),
    }
    let mut limits = Limits::default();
    if !expected.contains(": timeout:") {
        limits.evaluation = Duration::from_secs(10);
    }
    let mut instance = match ENGINE.instantiate(module, "hostile", &everything(), &limits, Vec::new()) {
        Ok(instance) => instance,
        Err(EngineError::Instantiate(error)) => return (Some(call(&error)), None),
        Err(error) => panic!("{error}"),
    };
    let web = pod("web-1");
    let columns = cpu(0..1000);
    let result = instance
        .configure("{}")
        .and_then(|_| instance.pods(&[view(&web, "{}")], &[]))
        .and_then(|_| instance.evaluate(Micros(0), Cause::Interval, &columns));
    assert!(instance.memory() <= limits.memory);
    match result {
        Ok(staged) => (None, Some(staged)),
        Err(error) => {
            assert_eq!(instance.is_usable(), matches!(error, CallError::Refused(_)), "{error}");
            if !instance.is_usable() {
                assert!(matches!(instance.configure("{}"), Err(CallError::Spent { .. })));
            }
            (Some(call(&error)), None)
        }
    }
}

fn check(file: &str) {
    let text = guest::file(&format!("hostile/{file}.wat"));
    let expected = text.lines().find_map(|line| line.strip_prefix(";; expect: ")).unwrap();
    let module = ENGINE.load(&guest::component(&text), None, &Compiler::InProcess).unwrap();
    neighbour_decides();

    // The neighbour is evaluated while the hostile module runs.
    let ended = AtomicBool::new(false);
    let (outcome, staged, took) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                neighbour_decides();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let start = cpu_time();
        let (outcome, staged) = run(&module, expected);
        let took = cpu_time() - start;
        ended.store(true, Ordering::Relaxed);
        neighbour.join().unwrap();
        (outcome, staged, took)
    });
    assert!(took < BOUND, "took {took:?} of CPU time");

    let (step, rest) = expected.split_once(": ").unwrap();
    match outcome {
        None => {
            assert_eq!(rest, "ok", "it ended well");
            let staged = staged.unwrap();
            assert!(staged.state.is_none() && staged.log.len() <= 64);
            let is_cut =
                |setting: &Setting| matches!(setting, Setting::Hold { reason, .. } if reason.len() == 4096 + "…".len());
            assert!(staged.settings.iter().all(is_cut), "{:?}", staged.settings);
        }
        Some((ended_in, error)) => {
            assert_eq!(ended_in, step, "{error}");
            let (outcome, part) = rest.split_once(':').unwrap_or_else(|| panic!("should have gone well: {error}"));
            assert!(error.starts_with(outcome), "`{error}` should be `{outcome}`");
            assert!(error.to_lowercase().contains(&part.trim().to_lowercase()), "`{error}` should say `{part}`");
            assert!(error.len() < 8192 && !error.contains(char::is_control));
        }
    }
    neighbour_decides();
}

macro_rules! hostile {
    ($($file:ident)*) => {
        $(#[test] fn $file() { check(stringify!($file)); })*

        #[test]
        fn no_file_is_left_out() {
            let files: BTreeSet<_> = std::fs::read_dir(guest::manifest_dir().join("tests/hostile"))
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            let tested = BTreeSet::from([$(stringify!($file).to_owned()),*]);
            assert_eq!(files, tested);
        }
    };
}

hostile! {
    bad_event_reason bad_json bad_name deep_recursion escape_in_name event_flood forged_container forged_event forged_idle forged_in_configure forged_pod
    forged_rejection garbage_alignment garbage_list garbage_pointer garbage_realloc garbage_string giant_argument
    giant_description giant_error giant_output giant_reason import_in_describe import_in_start invalid_enum invalid_result
    invalid_target invalid_tier invalid_utf8 log_flood long_error loop_in_clean_up loop_in_configure loop_in_describe
    loop_in_evaluate loop_in_pods loop_in_realloc loop_in_start loop_of_calls loop_of_fills memory_at_once memory_bomb
    memory_from_the_start million_rejections million_settings number_out_of_range schema_backtracks
    schema_doubles schema_doubles_in_config schema_from_the_node state_giant state_too_large
    table_bomb table_from_the_start trap_in_configure trap_in_describe trap_in_evaluate trap_in_pods trap_in_start
}

#[test]
fn dropped_lines_are_counted() {
    let module =
        ENGINE.load(&guest::component(&guest::file("hostile/log_flood.wat")), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "flood", &everything(), &Limits::default(), Vec::new()).unwrap();
    let staged = instance.evaluate(Micros(0), Cause::Interval, &cpu([])).unwrap();
    assert_eq!((staged.log.len(), staged.log_dropped), (64, 10_000 - 64));
    assert!(staged.log.iter().all(|line| line.message.len() <= 1024));
}

#[test]
fn a_limit_is_kept() {
    let module = ENGINE
        .load(&guest::component(&guest::file("hostile/loop_in_evaluate.wat")), None, &Compiler::InProcess)
        .unwrap();
    for limit in [Duration::from_millis(2), Duration::from_millis(40)] {
        let limits = Limits { evaluation: limit, ..Limits::default() };
        let mut instance = ENGINE.instantiate(&module, "loop", &everything(), &limits, Vec::new()).unwrap();
        let start = cpu_time();
        let error = instance.evaluate(Micros(0), Cause::Interval, &cpu([])).unwrap_err();
        let took = cpu_time() - start;
        assert!(matches!(error, CallError::TimedOut { limit: reported, .. } if reported == limit));
        assert!(instance.elapsed() >= limit, "stopped after {:?}", instance.elapsed());
        assert!(took < BOUND, "stopped after {took:?} of CPU time");
    }
}

#[test]
fn late_calls_on_several_threads_end_only_themselves() {
    let looping = ENGINE
        .load(&guest::component(&guest::file("hostile/loop_in_evaluate.wat")), None, &Compiler::InProcess)
        .unwrap();
    std::thread::scope(|scope| {
        for limit in [5, 10, 15, 20] {
            let looping = &looping;
            scope.spawn(move || {
                let limits = Limits { evaluation: Duration::from_millis(limit), ..Limits::default() };
                let mut instance = ENGINE.instantiate(looping, "loop", &everything(), &limits, Vec::new()).unwrap();
                instance.evaluate(Micros(0), Cause::Interval, &cpu([])).unwrap_err();
                assert!(instance.elapsed() >= limits.evaluation, "another instance's deadline ended it");
            });
        }
    });
}

#[test]
fn memory_comes_back_when_an_instance_is_dropped() {
    let module =
        ENGINE.load(&guest::component(&guest::file("hostile/memory_bomb.wat")), None, &Compiler::InProcess).unwrap();
    let bomb = || {
        let mut instance = ENGINE.instantiate(&module, "bomb", &everything(), &Limits::default(), Vec::new()).unwrap();
        instance.evaluate(Micros(0), Cause::Interval, &cpu([])).unwrap_err();
        assert_eq!(instance.memory(), Bytes(32 << 20));
    };
    bomb();
    let before = resident_kib();
    (0..50).for_each(|_| bomb());
    // Other tests run beside this one; 50 leaked instances would be 1.6 GB.
    assert!(resident_kib() < before + (400 << 10), "{} KiB before, {} KiB now", before, resident_kib());
}

/// CPU time of this thread, which does not depend on the load of the machine.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn without_a_grant_nothing_runs() {
    let module =
        ENGINE.load(&guest::component(&guest::file("hostile/forged_pod.wat")), None, &Compiler::InProcess).unwrap();
    for granted in Interface::ALL {
        let grants = [granted].into_iter().collect();
        let result = ENGINE.instantiate(&module, "sly", &grants, &Limits::default(), Vec::new());
        assert_eq!(result.is_ok(), granted == Interface::MemoryProtection, "{granted}");
    }
}
