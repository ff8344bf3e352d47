//! `qosm policy bench`: measures evaluations on synthetic nodes, beside the default modules.

mod node;
pub(crate) mod sample_config;

use std::time::Duration;

use anyhow::{Context, bail};
use qosm_engine::{Cause, Columns, Compiler, Engine, Grants, Instance, Limits, Module, PodView};
use qosm_model::layering::{CompiledProtocol, Layers, check_config};
use qosm_model::pod::Node as ClusterNode;
use qosm_model::protocol::Description;
use qosm_model::unit::Micros;
use qosm_open_module::{DEFAULTS, default_dir};
use qosm_terminal::{Answer, Output, Usage, document as documents, print};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use self::node::Node;
use crate::args::BenchArgs;
use crate::subject::Subject;

/// Evaluations before the measurement, which warm the caches and let a policy do its one-time work.
const WARM_UP: u32 = 10;
/// Evaluations that are measured; the policies take turns.
const MEASURED: u32 = 200;
/// Evaluations whose instructions are counted. The count is the same on every run.
const COUNTED: u32 = 20;
/// Time limit of an evaluation: long enough that the bench measures slow policies instead of failing.
const PATIENCE: Duration = Duration::from_secs(2);

/// A policy that takes part in the bench.
struct Entrant {
    description: Description,
    /// Compiled for the engine of nodes, and for the engine that counts instructions.
    modules: [Module; 2],
    /// The policy's own configuration.
    config: Map<String, Value>,
    /// The configuration of each pod.
    pod_config: Map<String, Value>,
}

/// The result of one policy for one number of containers.
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
    let engines = [&engine, &counting];
    let measured = subject_of(&subject, engines, args)?;
    if measured.description.protocol.is_some() {
        eprintln!("each pod asks for {}", Value::Object(measured.pod_config.clone()));
    }
    let advice = advice(&measured.description);
    let name = measured.description.name.clone();
    let mut entrants = vec![measured];
    if !args.alone {
        entrants.extend(defaults(engines, args, &subject)?);
    }
    let mut rows = Vec::new();
    for &containers in &args.containers {
        rows.extend(measure(engines, &entrants, containers)?);
    }
    match args.output.output {
        Output::Json => print::json(&rows.iter().map(document).collect::<Vec<_>>())?,
        Output::Table => print::text(&table(&rows))?,
    }
    if rows.iter().any(|row| row.settings == 0 && row.name == name) {
        eprintln!("note: {name} sets nothing here, so this may not be its work: {advice}");
    }
    Ok(Answer::Good)
}

fn subject_of(subject: &Subject, engines: [&Engine; 2], args: &BenchArgs) -> anyhow::Result<Entrant> {
    let mut entrant = entrant(subject, engines)?;
    entrant.config = documents::object(&args.config, "--config")?;
    let Description { name, config_schema, .. } = &entrant.description;
    let problems = check_config(name, config_schema.as_ref(), &entrant.config);
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        bail!(Usage(problems.join("; ")));
    }
    if let Some(text) = &args.pod_config {
        entrant.pod_config = documents::object(text, "--pod-config")?;
    }
    Ok(entrant)
}

/// A policy with its default configuration, and a pod configuration that its protocol accepts.
fn entrant(subject: &Subject, [engine, counting]: [&Engine; 2]) -> anyhow::Result<Entrant> {
    let (module, description) = subject.load(engine)?;
    // Compile in this process: a child process compiles for an engine that does not count.
    let counted = counting.load(&subject.wasm, None, &Compiler::InProcess)?;
    let pod_config = sample_config::of(&description);
    Ok(Entrant { description, modules: [module, counted], config: Map::new(), pod_config })
}

/// The default modules that exist, except the one that is measured already.
fn defaults(engines: [&Engine; 2], args: &BenchArgs, measured: &Subject) -> anyhow::Result<Vec<Entrant>> {
    let folder = default_dir(args.subject.module_dir.as_deref());
    let mut found = Vec::new();
    for name in DEFAULTS {
        let path = folder.join(format!("{name}.wasm"));
        let Ok(wasm) = std::fs::read(&path) else {
            eprintln!("note: the default module {name} is not in {}, and not measured beside", folder.display());
            continue;
        };
        if measured.wasm != wasm {
            let subject = Subject { place: path.display().to_string(), wasm, project: None };
            found.push(entrant(&subject, engines)?);
        }
    }
    Ok(found)
}

/// Measures all policies on nodes of one size in turns, so that other load on the machine affects all alike.
fn measure(engines: [&Engine; 2], entrants: &[Entrant], containers: u32) -> anyhow::Result<Vec<Row>> {
    let mut running = Vec::new();
    for (place, entrant) in entrants.iter().enumerate() {
        match start(engines, entrant, containers) {
            Ok(started) => running.push(started),
            Err(error) => excuse(place == 0, entrant, containers, error)?,
        }
    }
    for tick in 0..WARM_UP + MEASURED {
        let mut place = 0;
        while let Some((entrant, _, instance, node, times, settings)) = running.get_mut(place) {
            let columns = node.columns(tick);
            let begun = cpu_time();
            let staged = evaluate(instance, &columns, tick);
            let took = cpu_time().saturating_sub(begun);
            match staged {
                Ok(staged) => {
                    *settings = staged.max(*settings);
                    if tick >= WARM_UP {
                        times.push(took);
                    }
                    place += 1;
                }
                Err(error) => {
                    excuse(place == 0, entrant, containers, error)?;
                    running.remove(place);
                }
            }
        }
    }
    let row = |(entrant, fuel, instance, _, mut times, settings): Started<'_>| {
        times.sort_unstable();
        Row {
            name: entrant.description.name.clone(),
            version: entrant.description.version.clone(),
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

/// A policy in the measurement: fuel of an evaluation, the instance to be timed, its node, its times, and the number of its settings.
type Started<'a> = (&'a Entrant, u64, Instance, Node, Vec<Duration>, usize);

fn start<'a>([engine, counting]: [&Engine; 2], entrant: &'a Entrant, containers: u32) -> anyhow::Result<Started<'a>> {
    let node = Node::new(containers);
    let [module, counted] = &entrant.modules;
    let fuel = fuel(begin(counting, counted, entrant, &node)?, &node)?;
    Ok((entrant, fuel, begin(engine, module, entrant, &node)?, node, Vec::new(), 0))
}

/// Handles a policy that does not run: an error if it is the one in question, else only a note.
fn excuse(is_measured: bool, entrant: &Entrant, containers: u32, error: anyhow::Error) -> anyhow::Result<()> {
    let error = error.context(format!("{} does not run with {containers} containers", entrant.description.name));
    if is_measured {
        return Err(error);
    }
    eprintln!("note: {error:#}; it is left out");
    Ok(())
}

/// An instance that was given the node's pods.
fn begin(engine: &Engine, module: &Module, entrant: &Entrant, node: &Node) -> anyhow::Result<Instance> {
    let grants: Grants = module.imports().iter().copied().collect();
    let limits = Limits { evaluation: PATIENCE, ..Limits::default() };
    let mut instance = engine.instantiate(module, &entrant.description.name, &grants, &limits, Vec::new())?;
    let (config, pod_config) = configured(entrant, node)?;
    instance.configure(&config)?;
    let pod_config = Value::Object(pod_config).to_string();
    let views: Vec<_> = node
        .pods()
        .iter()
        .map(|(id, pod, containers)| PodView { id: *id, pod, containers, config: &pod_config, annotated: true })
        .collect();
    let answer = instance.pods(&views, &[])?;
    if let Some(rejection) = answer.rejections.first() {
        anyhow::bail!(
            "it rejects the bench's pods: {}: {}; {}",
            rejection.field,
            rejection.message,
            advice(&entrant.description)
        );
    }
    Ok(instance)
}

/// The policy-level configuration and those of the pods, merged and validated as on a node.
fn configured(entrant: &Entrant, node: &Node) -> anyhow::Result<(String, Map<String, Value>)> {
    let own = Value::Object(entrant.config.clone());
    let Some(protocol) = &entrant.description.protocol else {
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

/// The flag that gives the policy something to set: pods cannot configure a policy without a protocol.
fn advice(description: &Description) -> &'static str {
    match description.protocol {
        Some(_) => "say with --pod-config what pods ask for",
        None => "configure it with --config",
    }
}

/// Runs one evaluation. Returns the number of settings that it stages.
fn evaluate(instance: &mut Instance, columns: &Columns, tick: u32) -> anyhow::Result<usize> {
    let (window, cause) =
        if tick == 0 { (Micros(0), Cause::ConfigChanged) } else { (Micros(1_000_000), Cause::Interval) };
    Ok(instance.evaluate(window, cause, columns)?.settings.len())
}

/// CPU time of this thread so far, in user and kernel mode. It does not include time of other processes.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Fuel of the median evaluation.
fn fuel(mut instance: Instance, node: &Node) -> anyhow::Result<u64> {
    let mut counts = Vec::new();
    for tick in 0..WARM_UP + COUNTED {
        evaluate(&mut instance, &node.columns(tick), tick)?;
        if tick >= WARM_UP {
            counts.extend(instance.fuel());
        }
    }
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().context("the engine does not count")
}

/// The percentile `percent` of the sorted values.
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
    use qosm_model::protocol::Protocol;

    use super::*;

    #[test]
    fn only_a_policy_that_pods_configure_is_told_their_flag() {
        let mut description = Description {
            name: "tried".to_owned(),
            version: "0.1.0".to_owned(),
            summary: String::new(),
            protocol: None,
            config_schema: None,
            interval_millis: 0,
            triggers: Vec::new(),
        };
        assert_eq!(advice(&description), "configure it with --config");
        description.protocol = Some(Protocol {
            annotation_keys: Vec::new(),
            config_map_key: None,
            class_field: None,
            namespace_list_key: None,
            defaults: Map::new(),
            presets: Vec::new(),
            schema: json!({}),
            node_only_fields: Vec::new(),
        });
        assert_eq!(advice(&description), "say with --pod-config what pods ask for");
    }

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
