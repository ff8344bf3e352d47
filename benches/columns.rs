//! The promise: a column is passed to a module in one call, for a fraction of a microsecond for each container.
//!
//! CPU Burst works on a single pod, and the columns contain rows of containers that do not belong to it. What grows with the rows is the
//! transfer, and the policy's check whether it knows the row: an upper bound. Quotas are passed only when one of them has changed, so each
//! evaluation changes one.
#![expect(clippy::expect_used, reason = "what fails must end the bench, not be measured")]

use std::hint::black_box;

use criterion::BenchmarkId;
use qosm_benches::figures::{self, Figures};
use qosm_benches::workload::{self, WINDOW};
use qosm_benches::{is_whole_run, modules, side_by_side};
use qosm_engine::{Cause, Columns, Compiler, Engine};
use qosm_model::unit::Micros;

const ROWS: [u32; 5] = [0, 30, 100, 300, 1000];
/// The number of rows that the summary reports.
const MANY: u32 = 300;

/// The first id that is unknown to the policy.
const STRANGERS: u32 = 1_000_000;

/// The same columns twice, with one quota that differs.
type Both = [Columns; 2];

fn cpu(rows: u32) -> Both {
    let columns = Columns {
        node: Some(workload::node()),
        cpu: Some(workload::cpu(STRANGERS, rows)),
        bandwidth: Some(workload::bandwidth(1, 1)),
        ..Columns::default()
    };
    [columns.clone(), columns]
}

/// Two rows for each pod: its own and its container's.
fn bandwidth(rows: u32) -> Both {
    [100_000, 200_000].map(|quota| {
        let mut column = workload::bandwidth(STRANGERS, rows / 2).to_vec();
        if let Some(last) = column.last_mut() {
            last.quota = Some(Micros(quota));
        }
        Columns {
            node: Some(workload::node()),
            cpu: Some(workload::cpu(1, 1)),
            bandwidth: Some(column.into()),
            ..Columns::default()
        }
    })
}

fn main() -> anyhow::Result<()> {
    let mut criterion = qosm_benches::criterion()?;
    let engine = Engine::new()?;
    let policy = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
    let mut module = workload::instance(&engine, &policy, 1)?;
    let mut figures = Figures::new();
    let mut group = criterion.benchmark_group("columns");
    for (name, columns) in [("cpu", cpu as fn(u32) -> Both), ("bandwidth", bandwidth)] {
        for rows in ROWS {
            let both = columns(rows);
            let mut turns = both.iter().cycle();
            group.bench_function(BenchmarkId::new(name, rows), |b| {
                b.iter(|| {
                    let columns = turns.next().expect("there are two, again and again");
                    module.evaluate(WINDOW, Cause::Interval, columns).expect("evaluated before")
                });
            });
        }
        if !is_whole_run() {
            continue;
        }
        let (none, many) = (columns(0), columns(MANY));
        // Both runners use the same module in turns.
        let module = std::cell::RefCell::new(&mut module);
        let evaluate = |both: &Both, turn: usize| -> anyhow::Result<()> {
            black_box(module.borrow_mut().evaluate(WINDOW, Cause::Interval, &both[turn % 2])?);
            Ok(())
        };
        let turns = side_by_side::run(&mut [&mut |turn| evaluate(&none, turn), &mut |turn| evaluate(&many, turn)])?;
        figures.insert(format!("{name} us a row"), turns.figure(|[none, many]| (many - none) / f64::from(MANY) * 1e6));
    }
    group.finish();
    criterion.final_summary();
    if is_whole_run() { figures::write("columns", &figures) } else { Ok(()) }
}
