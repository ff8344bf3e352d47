//! `qosm policy bench`: what an evaluation takes on made-up nodes, beside the default modules.

mod node;
mod wish;

use std::time::Duration;

use anyhow::Context;
use qosm_engine::{Cause, Compiler, Engine, Grants, Instance, Limits, Module, PodView};
use qosm_model::layering::{CompiledProtocol, Layers};
use qosm_model::pod::Node as ClusterNode;
use qosm_model::protocol::Description;
use qosm_model::unit::Micros;
use serde_json::{Map, Value, json};

use self::node::Node;
use super::subject::Subject;
use crate::args::{BenchArgs, Output};
use crate::{Answer, modules, print};

/// Evaluations before any is measured: caches are warm, and what a policy does once is done.
const WARM_UP: u32 = 10;
/// Evaluations that are measured, of all policies in turns.
const MEASURED: u32 = 200;
/// Evaluations of which the instructions are counted; these are the same each time.
const COUNTED: u32 = 20;
/// What the bench shows is how long it takes, not that it takes too long.
const PATIENCE: Duration = Duration::from_secs(2);

/// A policy to be measured.
struct Entrant {
    name: String,
    version: String,
    wasm: Vec<u8>,
    /// The policy's own configuration.
    config: Map<String, Value>,
    /// What each pod asks for.
    pod_config: Map<String, Value>,
    is_subject: bool,
}

/// What one policy takes at one number of containers.
struct Row {
    name: String,
    version: String,
    containers: u32,
    median: Duration,
    p95: Duration,
    fuel: u64,
    memory: u64,
    settings: usize,
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Answer> {
    let subject = Subject::open(&args.subject)?;
    let (engine, counting) = (Engine::new()?, Engine::metered()?);
    let mut entrants = vec![entrant(&subject, &engine, args)?];
    if !args.alone {
        entrants.extend(defaults(&engine, args, &entrants)?);
    }
    let mut rows = Vec::new();
    for &containers in &args.containers {
        rows.extend(measure(&engine, &counting, &entrants, containers)?);
    }
    for entrant in entrants.iter().filter(|entrant| entrant.is_subject) {
        eprintln!("each pod asks for {}", Value::Object(entrant.pod_config.clone()));
    }
    match args.output.output {
        Output::Json => print::json(&rows.iter().map(document).collect::<Vec<_>>())?,
        Output::Table => print::text(&table(&rows))?,
    }
    let idle: Vec<_> = rows.iter().filter(|row| row.settings == 0 && row.name == entrants[0].name).collect();
    if !idle.is_empty() {
        eprintln!(
            "note: {} sets nothing here, so this may not be its work: say with --pod-config what pods ask for",
            idle[0].name
        );
    }
    Ok(Answer::Good)
}

fn entrant(subject: &Subject, engine: &Engine, args: &BenchArgs) -> anyhow::Result<Entrant> {
    let (_, description) = subject.load(engine)?;
    let pod_config = match &args.pod_config {
        Some(said) => modules::object(said, "--pod-config")?,
        None => wish::of(&description),
    };
    let config = modules::object(&args.config, "--config")?;
    let Description { name, version, .. } = description;
    Ok(Entrant { name, version, wasm: subject.wasm.clone(), config, pod_config, is_subject: true })
}

/// The default modules that are there, without the one that is measured already.
fn defaults(engine: &Engine, args: &BenchArgs, entrants: &[Entrant]) -> anyhow::Result<Vec<Entrant>> {
    let folder = modules::default_dir(args.subject.module_dir.as_deref());
    let mut found = Vec::new();
    for name in modules::DEFAULTS {
        let path = folder.join(format!("{name}.wasm"));
        let Ok(wasm) = std::fs::read(&path) else {
            eprintln!("note: the default module {name} is not in {}, and not measured beside", folder.display());
            continue;
        };
        if entrants.iter().any(|entrant| entrant.wasm == wasm) {
            continue;
        }
        let subject = Subject { place: path.display().to_string(), wasm, project: None };
        let (_, description) = subject.load(engine)?;
        let pod_config = wish::of(&description);
        let Description { name, version, .. } = description;
        found.push(Entrant { name, version, wasm: subject.wasm, config: Map::new(), pod_config, is_subject: false });
    }
    Ok(found)
}

/// All policies on nodes of that size, in turns: whatever else the machine does hits all of them alike.
fn measure(engine: &Engine, counting: &Engine, entrants: &[Entrant], containers: u32) -> anyhow::Result<Vec<Row>> {
    let mut running = Vec::new();
    for entrant in entrants {
        let node = Node::new(containers);
        let begin = |engine: &Engine| begin(engine, entrant, &node);
        let context = || format!("{} does not run with {containers} containers", entrant.name);
        let fuel = fuel(begin(counting).with_context(context)?, &node).with_context(context)?;
        running.push((entrant, fuel, begin(engine).with_context(context)?, node, Vec::new(), 0));
    }
    for tick in 0..WARM_UP + MEASURED {
        for (entrant, _, instance, node, times, settings) in &mut running {
            let staged = evaluate(instance, node, tick);
            let staged = staged.with_context(|| format!("{} fails with {containers} containers", entrant.name))?;
            *settings = staged.max(*settings);
            if tick >= WARM_UP {
                times.push(instance.elapsed());
            }
        }
    }
    let row =
        |(entrant, fuel, instance, _, mut times, settings): (&Entrant, u64, Instance, Node, Vec<Duration>, usize)| {
            times.sort_unstable();
            Row {
                name: entrant.name.clone(),
                version: entrant.version.clone(),
                containers,
                median: quantile(&times, 50),
                p95: quantile(&times, 95),
                fuel,
                memory: instance.memory().0,
                settings,
            }
        };
    Ok(running.into_iter().map(row).collect())
}

/// An instance that knows its pods.
fn begin(engine: &Engine, entrant: &Entrant, node: &Node) -> anyhow::Result<Instance> {
    // A child would compile for an engine that does not count.
    let module: Module = engine.load(&entrant.wasm, None, &Compiler::InProcess)?;
    let description = engine.describe(&module)?;
    let grants: Grants = module.imports().iter().copied().collect();
    let limits = Limits { evaluation: PATIENCE, ..Limits::default() };
    let mut instance = engine.instantiate(&module, &entrant.name, &grants, &limits, Vec::new())?;
    let (config, pod_config) = configured(&description, entrant, node)?;
    instance.configure(&config)?;
    let pod_config = Value::Object(pod_config).to_string();
    let views: Vec<_> = node
        .pods()
        .iter()
        .map(|(id, pod, containers)| PodView { id: *id, pod, containers, config: &pod_config, annotated: true })
        .collect();
    let told = instance.pods(&views, &[])?;
    if let Some(rejection) = told.rejections.first() {
        anyhow::bail!(
            "it rejects the bench's pods: {}: {}; say with --pod-config what they ask for",
            rejection.field,
            rejection.message
        );
    }
    Ok(instance)
}

/// What the module is configured with, and what it is told that each pod asks for: merged and checked as on a node.
fn configured(
    description: &Description,
    entrant: &Entrant,
    node: &Node,
) -> anyhow::Result<(String, Map<String, Value>)> {
    let own = Value::Object(entrant.config.clone());
    let Some(protocol) = &description.protocol else {
        return Ok((own.to_string(), Map::new()));
    };
    let compiled = CompiledProtocol::compile(protocol.clone()).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let (layers, _) = Layers::build(compiled.into(), &[], &ClusterNode::default(), None);
    let config = match protocol.class_field {
        Some(_) => json!({"policy": own, "classes": layers.classes()}),
        None => own,
    };
    let (Some(key), Some((_, pod, _))) = (protocol.annotation_keys.first(), node.pods().first()) else {
        return Ok((config.to_string(), entrant.pod_config.clone()));
    };
    let mut asking = pod.clone();
    asking.annotations.insert(key.clone(), Value::Object(entrant.pod_config.clone()).to_string());
    let effective = layers.for_pod(&asking);
    if let Some(problem) = effective.problems.first() {
        anyhow::bail!("pods cannot ask for that: {problem}");
    }
    Ok((config.to_string(), effective.values))
}

/// One evaluation; how many settings it stages.
fn evaluate(instance: &mut Instance, node: &Node, tick: u32) -> anyhow::Result<usize> {
    let (window, cause) =
        if tick == 0 { (Micros(0), Cause::ConfigChanged) } else { (Micros(1_000_000), Cause::Interval) };
    Ok(instance.evaluate(window, cause, &node.columns(tick))?.settings.len())
}

/// Instructions of the median evaluation.
fn fuel(mut instance: Instance, node: &Node) -> anyhow::Result<u64> {
    let mut counts = Vec::new();
    for tick in 0..WARM_UP + COUNTED {
        evaluate(&mut instance, node, tick)?;
        if tick >= WARM_UP {
            counts.extend(instance.fuel());
        }
    }
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().context("the engine does not count")
}

/// The value below which so many percent lie.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

fn document(row: &Row) -> Value {
    json!({
        "policy": row.name,
        "version": row.version,
        "containers": row.containers,
        "medianMicros": micros(row.median),
        "p95Micros": micros(row.p95),
        "fuel": row.fuel,
        "memoryBytes": row.memory,
        "settings": row.settings,
    })
}

fn table(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.containers.to_string(),
            format!("{} {}", row.name, row.version),
            format!("{:.1} µs", micros(row.median)),
            format!("{:.1} µs", micros(row.p95)),
            row.fuel.to_string(),
            format!("{} KiB", row.memory >> 10),
            row.settings.to_string(),
        ]
    });
    print::table(&["containers", "policy", "median", "p95", "fuel", "memory", "settings"], cells)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let times: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(
            (quantile(&times, 50), quantile(&times, 95)),
            (Duration::from_micros(50), Duration::from_micros(95))
        );
        assert_eq!(quantile(&[], 50), Duration::ZERO);
    }
}
