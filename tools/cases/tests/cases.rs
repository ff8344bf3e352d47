//! The default modules and those of examples, as components: the cases that hold for a policy's own code hold for its module too, and no
//! component imports more than its policy needs.
//!
//! The components are in `policies/` and `example-policies/` of cargo's target directory, where `make build` puts them; the default ones
//! may also be in `QOSM_MODULE_DIR`.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use qosm_cases::Wasm;
use qosm_engine::{Compiler, Engine, Interface};
use qosm_sdk::testing::run_folder;

/// A policy with a built module.
#[derive(Clone, Copy)]
struct Built {
    name: &'static str,
    /// Path of its crate, from the repository's root.
    source: &'static str,
    /// The folder of its kind of modules.
    folder: &'static str,
}

const fn default(name: &'static str, source: &'static str) -> Built {
    Built { name, source, folder: "policies" }
}

const fn example(name: &'static str, source: &'static str) -> Built {
    Built { name, source, folder: "example-policies" }
}

const BE_SUPPRESS: Built = default("be-suppress", "policies/be-suppress");
const BLOCK_IO: Built = default("block-io", "policies/block-io");
const CPU_BURST: Built = default("cpu-burst", "policies/cpu-burst");
const CPU_IDENTITY: Built = default("cpu-identity", "policies/cpu-identity");
const CPU_TOPOLOGY: Built = default("cpu-topology", "policies/cpu-topology");
const EVICTION: Built = default("eviction", "policies/eviction");
const MEMORY_QOS: Built = default("memory-qos", "policies/memory-qos");
const MEMORY_LOCALITY: Built = default("memory-locality", "policies/memory-locality");
const LLC_MBA: Built = default("llc-mba", "policies/llc-mba");
const NODE_MEMORY: Built = default("node-memory", "policies/node-memory");
const RECLAIMED_RESOURCES: Built = default("reclaimed-resources", "policies/reclaimed-resources");
const TEMPLATE: Built = example("my-policy", "sdk/templates/rust");
const SERVICE_CLASS: Built = example("service-class", "examples/third-party-annotation");
const STARTUP_BOOST: Built = example("startup-boost", "examples/startup-boost");

impl Built {
    fn wasm(self) -> Result<Vec<u8>, Box<dyn Error>> {
        let said = std::env::var_os("QOSM_MODULE_DIR").filter(|_| self.folder == "policies");
        let folder = match said {
            Some(folder) => PathBuf::from(folder),
            // From target/debug/deps/cases-1234.
            None => std::env::current_exe()?.ancestors().nth(3).unwrap_or(Path::new(".")).join(self.folder),
        };
        let file = folder.join(self.name).with_extension("wasm");
        if !file.is_file() {
            let file = file.display();
            return Err(
                format!("{file} is missing: run `make build` first, or say the folder in QOSM_MODULE_DIR").into()
            );
        }
        Ok(std::fs::read(file)?)
    }

    /// Plays its cases, each to a fresh instance that is granted what the module imports and nothing else.
    fn play(self) -> Result<(), Box<dyn Error>> {
        let engine = Engine::new()?;
        let module = engine.load(&self.wasm()?, None, &Compiler::InProcess)?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(self.source).join("tests/cases");
        Ok(run_folder(folder, || Wasm::start(&engine, &module, self.name))?)
    }

    fn imports(self) -> Result<Vec<Interface>, Box<dyn Error>> {
        let inspection = Engine::new()?.inspect(&self.wasm()?)?;
        assert_eq!(inspection.unknown_imports, <[String; 0]>::default(), "{}", self.name);
        Ok(inspection.imports)
    }
}

#[test]
fn the_cases_of_be_suppress_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    BE_SUPPRESS.play()
}

#[test]
fn the_cases_of_cpu_burst_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    CPU_BURST.play()
}

#[test]
fn the_cases_of_cpu_identity_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    CPU_IDENTITY.play()
}

#[test]
fn the_cases_of_cpu_topology_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    CPU_TOPOLOGY.play()
}

#[test]
fn the_cases_of_eviction_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    EVICTION.play()
}

#[test]
fn the_cases_of_memory_qos_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    MEMORY_QOS.play()
}

#[test]
fn the_cases_of_memory_locality_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    MEMORY_LOCALITY.play()
}

#[test]
fn the_cases_of_llc_mba_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    LLC_MBA.play()
}

#[test]
fn the_cases_of_block_io_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    BLOCK_IO.play()
}

#[test]
fn the_cases_of_node_memory_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    NODE_MEMORY.play()
}

#[test]
fn the_cases_of_reclaimed_resources_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    RECLAIMED_RESOURCES.play()
}

#[test]
fn the_cases_of_the_template_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    TEMPLATE.play()
}

#[test]
fn the_cases_of_startup_boost_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    STARTUP_BOOST.play()
}

#[test]
fn the_cases_of_service_class_hold_in_wasm() -> Result<(), Box<dyn Error>> {
    SERVICE_CLASS.play()
}

#[test]
fn be_suppress_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{ClusterConfig, CpuBandwidth, CpuStat, CpuTopology, CpuWeight, Cpuset, Log, Node, NodeObject};
    use Interface::{PodObject, State};
    let imports =
        [Log, State, Node, CpuStat, NodeObject, PodObject, ClusterConfig, CpuTopology, CpuBandwidth, CpuWeight, Cpuset];
    assert_eq!(BE_SUPPRESS.imports()?.into_iter().collect::<BTreeSet<_>>(), imports.into_iter().collect());
    Ok(())
}

#[test]
fn block_io_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{BlockIo, ClusterConfig, Log};
    let imports = [Log, ClusterConfig, BlockIo];
    assert_eq!(BLOCK_IO.imports()?.into_iter().collect::<BTreeSet<_>>(), imports.into_iter().collect());
    Ok(())
}

#[test]
fn node_memory_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{ClusterConfig, Log, MemoryProtection, Node, NodeKnobs};
    let imports = [Log, Node, ClusterConfig, MemoryProtection, NodeKnobs];
    assert_eq!(NODE_MEMORY.imports()?.into_iter().collect::<BTreeSet<_>>(), imports.into_iter().collect());
    Ok(())
}

#[test]
fn cpu_burst_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{CpuBandwidth, CpuStat, Log, Node, State};
    assert_eq!(CPU_BURST.imports()?, [Log, State, Node, CpuStat, CpuBandwidth]);
    Ok(())
}

#[test]
fn cpu_identity_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{ClusterConfig, CpuIdentity, CpuWeight, Log, NodeKnobs};
    assert_eq!(CPU_IDENTITY.imports()?, [Log, ClusterConfig, CpuWeight, CpuIdentity, NodeKnobs]);
    Ok(())
}

#[test]
fn cpu_topology_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{CpuBandwidth, CpuTopology, Cpuset, Log, NodeObject, PodEvent, PodObject, State};
    let needed = [Log, State, NodeObject, PodObject, CpuTopology, CpuBandwidth, Cpuset, PodEvent];
    assert_eq!(CPU_TOPOLOGY.imports()?, needed);
    Ok(())
}

#[test]
fn eviction_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{
        ClusterConfig, CpuStat, CpuTopology, Eviction, Log, MemoryStat, Node, NodeObject, PodObject, State,
    };
    let needed = [Log, State, Node, CpuStat, MemoryStat, NodeObject, PodObject, ClusterConfig, CpuTopology, Eviction];
    assert_eq!(EVICTION.imports()?, needed);
    Ok(())
}

#[test]
fn memory_qos_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{Log, MemoryProtection, Node};
    assert_eq!(MEMORY_QOS.imports()?, [Log, Node, MemoryProtection]);
    Ok(())
}

#[test]
fn memory_locality_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{Cpuset, Log, NumaStat, PageMigration, PodEvent, State};
    assert_eq!(MEMORY_LOCALITY.imports()?, [Log, State, NumaStat, Cpuset, PageMigration, PodEvent]);
    Ok(())
}

#[test]
fn llc_mba_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{Log, PodEvent, ResctrlAllocation, ResctrlMonitor, State};
    assert_eq!(LLC_MBA.imports()?, [Log, State, ResctrlMonitor, ResctrlAllocation, PodEvent]);
    Ok(())
}

#[test]
fn reclaimed_resources_imports_what_it_needs_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{
        ClusterConfig, CpuBandwidth, CpuStat, CpuWeight, Log, MemoryLimit, MemoryStat, Node, NodeObject, NodeResource,
        PodObject, State,
    };
    assert_eq!(
        RECLAIMED_RESOURCES.imports()?,
        [
            Log,
            State,
            Node,
            CpuStat,
            MemoryStat,
            NodeObject,
            PodObject,
            ClusterConfig,
            CpuBandwidth,
            CpuWeight,
            MemoryLimit,
            NodeResource
        ]
    );
    Ok(())
}

#[test]
fn examples_import_what_they_need_and_no_more() -> Result<(), Box<dyn Error>> {
    use Interface::{CpuBandwidth, CpuStat, Log, MemoryProtection, Node, State};
    // Each imports `log`, because `export!` logs the message and line of a panic.
    assert_eq!(TEMPLATE.imports()?, [Log, MemoryProtection]);
    assert_eq!(SERVICE_CLASS.imports()?, [Log, CpuStat, CpuBandwidth, MemoryProtection]);
    assert_eq!(STARTUP_BOOST.imports()?, [Log, State, Node, CpuStat, CpuBandwidth]);
    Ok(())
}
