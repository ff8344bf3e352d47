//! Checks which crates depend on which, what the daemon links, and that each crate is compiled once. The data comes from cargo, so that a
//! misplaced dependency fails here and not in a review.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde::Deserialize;

/// The crates of this workspace with their dependencies among each other, in layers: each depends on earlier lines only.
const LAYERS: [(&str, &[&str]); 39] = [
    // No dependencies on other crates of the workspace.
    ("qosm-confinement", &[]),
    ("qosm-features", &[]),
    ("qosm-schema", &[]),
    ("qosm-rego", &[]),
    ("qosm-nri", &[]),
    ("qosm-resctrl-fuse", &[]),
    ("qosm-build", &[]),
    ("qosm-sdk", &[]),
    ("xtask", &["qosm-build"]),
    // Shared by three policies.
    ("cpu-sets", &[]),
    // Policies depend on the SDK.
    ("be-suppress", &["cpu-sets", "qosm-sdk"]),
    ("block-io", &["qosm-sdk"]),
    ("cpu-burst", &["qosm-sdk"]),
    ("cpu-identity", &["qosm-sdk"]),
    ("cpu-topology", &["cpu-sets", "qosm-sdk"]),
    ("eviction", &["qosm-sdk"]),
    ("llc-mba", &["qosm-sdk"]),
    ("reclaimed-resources", &["cpu-sets", "qosm-sdk"]),
    ("memory-locality", &["qosm-sdk"]),
    ("memory-qos", &["qosm-sdk"]),
    ("node-memory", &["qosm-sdk"]),
    ("startup-boost", &["qosm-sdk"]),
    ("service-class", &["qosm-sdk"]),
    ("my-policy", &["qosm-sdk"]),
    // The daemon. The four crates above the model do not depend on each other.
    ("qosm-model", &["qosm-schema"]),
    ("qosm-host", &["qosm-confinement", "qosm-model"]),
    ("qosm-engine", &["qosm-confinement", "qosm-model", "qosm-rego"]),
    ("qosm-registry", &["qosm-model"]),
    ("qosm-cluster", &["qosm-model"]),
    (
        "qosm-agent",
        &["qosm-cluster", "qosm-confinement", "qosm-engine", "qosm-host", "qosm-model", "qosm-nri", "qosm-registry"],
    ),
    ("qosm-terminal", &["qosm-model"]),
    ("qosm-open-module", &["qosm-engine", "qosm-host", "qosm-model", "qosm-registry", "qosm-terminal"]),
    ("qosm-replay", &["qosm-agent", "qosm-cluster", "qosm-engine", "qosm-terminal"]),
    ("qosm-watch", &["qosm-agent", "qosm-model"]),
    (
        "qosm",
        &[
            "qosm-agent",
            "qosm-cluster",
            "qosm-confinement",
            "qosm-engine",
            "qosm-features",
            "qosm-host",
            "qosm-model",
            "qosm-open-module",
            "qosm-registry",
            "qosm-replay",
            "qosm-terminal",
            "qosm-watch",
        ],
    ),
    // Programs that do not run on a node.
    ("qosm-cases", &["qosm-engine", "qosm-model", "qosm-sdk"]),
    (
        "qosm-policy",
        &[
            "qosm-agent",
            "qosm-build",
            "qosm-cases",
            "qosm-cluster",
            "qosm-engine",
            "qosm-host",
            "qosm-model",
            "qosm-open-module",
            "qosm-registry",
            "qosm-replay",
            "qosm-resctrl-fuse",
            "qosm-sdk",
            "qosm-terminal",
        ],
    ),
    ("qosm-book", &["qosm-agent", "qosm-cluster", "qosm-registry"]),
    (
        "qosm-benches",
        &[
            "cpu-burst",
            "qosm-agent",
            "qosm-cluster",
            "qosm-engine",
            "qosm-host",
            "qosm-model",
            "qosm-nri",
            "qosm-registry",
            "qosm-rego",
            "qosm-sdk",
        ],
    ),
];

/// Additional dependencies of tests.
const FOR_TESTS: [(&str, &str); 5] = [
    ("qosm-host", "qosm-resctrl-fuse"),
    ("qosm", "qosm-resctrl-fuse"),
    ("qosm", "qosm-nri"),
    ("qosm-book", "qosm-engine"),
    ("qosm-book", "qosm-sdk"),
];

/// Crates that the daemon must not link, with the reason. See docs/decisions/0014-authors-verbs-are-another-program.md.
const NOT_IN_THE_DAEMON: [(&str, &str); 12] = [
    ("fuser", "mounts file systems: the emulated resctrl"),
    ("qosm-resctrl-fuse", "emulates what a node has or has not"),
    ("qosm-build", "drives cargo, Go and opa"),
    ("qosm-cases", "plays authors' cases"),
    ("qosm-sdk", "is for policies, which are Wasm; on the node it would be their mock host"),
    ("wit-component", "makes components; an engine takes them"),
    ("wit-parser", "reads WIT text; the contract is compiled in"),
    ("wat", "reads WebAssembly text; a node takes binaries alone"),
    ("wast", "as `wat`"),
    ("wasm-metadata", "writes labels into modules"),
    ("toml_edit", "changes authors' manifests"),
    ("include_dir", "would hold project templates"),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

/// The kind of a dependency: `None` is an ordinary one, else `dev` or `build`.
#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Edge {
    fn is(&self, kind: Option<&str>) -> bool {
        self.dep_kinds.iter().any(|one| one.kind.as_deref() == kind)
    }
}

/// A cargo command in the workspace.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.."));
    cargo
}

/// All packages, with the features of the whole workspace, as it is built.
static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let printed = cargo().args(["metadata", "--format-version", "1", "--locked"]).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    serde_json::from_slice(&printed.stdout).unwrap()
});

fn package(id: &str) -> &'static Package {
    METADATA.packages.iter().find(|package| package.id == id).unwrap()
}

fn node(id: &str) -> &'static Node {
    METADATA.resolve.nodes.iter().find(|node| node.id == id).unwrap()
}

/// Dependencies between crates of the workspace. Tests of policies use further features of the SDK, which is no additional dependency.
fn edges(kind: Option<&str>) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let ours = |edge: &&Edge| edge.is(kind) && METADATA.workspace_members.contains(&edge.pkg);
    let imports = |id: &str| node(id).deps.iter().filter(ours).map(|edge| package(&edge.pkg).name.as_str()).collect();
    METADATA.workspace_members.iter().map(|id| (package(id).name.as_str(), imports(id))).collect()
}

/// The names of the crates that are linked into a program. Dependencies of procedural macros run in the compiler and do not count.
fn linked(program: &str) -> BTreeSet<&'static str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut pending: Vec<&str> =
        METADATA.workspace_members.iter().map(String::as_str).filter(|id| package(id).name == program).collect();
    assert_eq!(pending.len(), 1, "{program}");
    while let Some(id) = pending.pop() {
        let is_macro = package(id).targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"));
        if !is_macro && found.insert(id) {
            pending.extend(node(id).deps.iter().filter(|edge| edge.is(None)).map(|edge| edge.pkg.as_str()));
        }
    }
    found.into_iter().map(|id| package(id).name.as_str()).collect()
}

#[test]
fn crates_import_what_is_written_down_and_only_downwards() {
    let written: BTreeMap<_, BTreeSet<_>> =
        LAYERS.iter().map(|(name, imports)| (*name, imports.iter().copied().collect())).collect();
    assert_eq!(written.len(), LAYERS.len(), "a crate stands there twice");
    assert_eq!(edges(None), written);
    let mut below = BTreeSet::new();
    for (name, imports) in LAYERS {
        let upwards: Vec<_> = imports.iter().filter(|import| !below.contains(*import)).collect();
        assert!(upwards.is_empty(), "{name} imports {upwards:?}, which do not stand before it");
        below.insert(name);
    }
    assert_eq!(
        edges(Some("build")).values().map(BTreeSet::len).sum::<usize>(),
        0,
        "build scripts import nothing of ours"
    );
}

#[test]
fn tests_import_no_more_than_is_written_down() {
    let ordinary = edges(None);
    let further: Vec<_> = edges(Some("dev"))
        .into_iter()
        .flat_map(|(name, imports)| imports.into_iter().map(move |import| (name, import)))
        .filter(|(name, import)| !ordinary[name].contains(import))
        .collect();
    assert_eq!(further.into_iter().collect::<BTreeSet<_>>(), FOR_TESTS.into());
}

#[test]
fn the_daemon_links_no_workshop() {
    let daemon = linked("qosm");
    for name in ["qosm-agent", "wasmtime", "kube", "cap-std"] {
        assert!(daemon.contains(name), "{name} is linked, so the test should find it");
    }
    let found: Vec<_> = NOT_IN_THE_DAEMON.iter().filter(|(name, _)| daemon.contains(name)).collect();
    assert!(found.is_empty(), "the daemon links {found:#?}");
    // The purpose of the other program.
    let workshop = linked("qosm-policy");
    for name in ["fuser", "qosm-resctrl-fuse", "qosm-build", "wit-component", "wat", "wasm-metadata", "toml_edit"] {
        assert!(workshop.contains(name), "qosm-policy does not link {name}: is the ban on it still of use?");
    }
}

/// The units that cargo would compile, as `cargo build --unit-graph` prints them.
#[derive(Deserialize)]
struct UnitGraph {
    units: Vec<Unit>,
}

/// One run of the compiler or of a build script. Its dependencies are indexes into the list of units.
#[derive(Deserialize)]
struct Unit {
    pkg_id: String,
    target: serde_json::Value,
    features: Vec<String>,
    mode: String,
    dependencies: Vec<UnitDependency>,
}

#[derive(Deserialize)]
struct UnitDependency {
    index: usize,
}

impl UnitGraph {
    fn of(selection: &[&str]) -> Self {
        let mut command = cargo();
        // cargo prints the graph if it is nightly, or with RUSTC_BOOTSTRAP. Nothing is compiled.
        command.args(["build", "--release", "--locked", "--unit-graph", "-Zunstable-options"]).args(selection);
        // If a cargo configuration unifies the features of all selections, the test has to ignore that.
        command.env("RUSTC_BOOTSTRAP", "1").env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
        let printed = command.output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        serde_json::from_slice(&printed.stdout).unwrap()
    }

    /// A digest of each unit, of everything that determines how it and its dependencies are compiled.
    fn compiled(&self) -> Vec<String> {
        let mut known = vec![None; self.units.len()];
        (0..self.units.len()).map(|index| self.digest(index, &mut known)).collect()
    }

    fn digest(&self, index: usize, known: &mut Vec<Option<String>>) -> String {
        if let Some(digest) = &known[index] {
            return digest.clone();
        }
        let unit = &self.units[index];
        let mut beneath: Vec<String> =
            unit.dependencies.iter().map(|dependency| self.digest(dependency.index, known)).collect();
        beneath.sort();
        let Unit { pkg_id, target, features, mode, .. } = unit;
        let text = format!("{pkg_id} {} {mode} {features:?} {beneath:?}", target["kind"]);
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&text, &mut hasher);
        let digest = format!("{:016x}", std::hash::Hasher::finish(&hasher));
        known[index] = Some(digest.clone());
        digest
    }
}

/// What `selection` compiles differently from the whole workspace: the first such units, with the features on both sides.
fn compiled_again(selection: &[&str]) -> Vec<String> {
    let (selected, whole) = (UnitGraph::of(selection), UnitGraph::of(&["--workspace"]));
    assert!(whole.units.len() > selected.units.len() && selected.units.len() > 100, "{}", selected.units.len());
    let in_whole: BTreeSet<String> = whole.compiled().into_iter().collect();
    let compiled = selected.compiled();
    let again = |index: usize| !in_whole.contains(&compiled[index]);
    // The first units that differ: the units that depend on them are compiled again because of them.
    let begins = |unit: &Unit| unit.dependencies.iter().all(|dependency| !again(dependency.index));
    let differing = selected.units.iter().enumerate().filter(|(index, unit)| again(*index) && begins(unit));
    differing
        .map(|(_, unit)| {
            let others = whole.units.iter().filter(|other| other.pkg_id == unit.pkg_id && other.target == unit.target);
            let features: BTreeSet<&Vec<String>> = others.map(|other| &other.features).collect();
            format!("{} has {:?}, in the whole workspace {features:?}", unit.pkg_id, unit.features)
        })
        .collect()
}

#[test]
fn the_daemon_alone_is_compiled_as_with_the_whole_workspace() {
    let lacking = compiled_again(&["--package", "qosm"]);
    assert!(
        lacking.is_empty(),
        "`cargo build -p qosm` and `make build` compile these differently; name the features in runtime/features/Cargo.toml: \
         {lacking:#?}"
    );
}

#[test]
fn xtask_is_compiled_as_with_the_whole_workspace() {
    let config = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cargo/config.toml")).unwrap();
    let alias = config.lines().find_map(|line| line.strip_prefix("xtask = ")).unwrap();
    let words: Vec<_> = alias.trim_matches('"').split(' ').collect();
    let ["run", "--quiet", selection @ .., "--"] = words.as_slice() else { panic!("{alias}") };
    let again = compiled_again(selection);
    assert!(again.is_empty(), "`make` compiles these for xtask, and then once more: {again:#?}");
}
