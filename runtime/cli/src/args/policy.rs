//! Arguments of `qosm policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{BenchArgs, BuildArgs, DocArgs, LintArgs, NewArgs, OutputArgs, RunArgs, SocketArgs, TestArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Begin a policy: a project that builds, passes its tests and runs as it is.
    #[command(
        after_help = "Examples:\n  qosm policy new my-policy --lang rust\n  qosm policy new my-policy --lang rego --to policies/mine"
    )]
    New(NewArgs),
    /// Build a policy's module: a component from Rust, a bundle from Rego.
    #[command(
        after_help = "The module is target/NAME.wasm, or target/NAME.tar.gz, in the policy's folder. What compilers say goes to standard \
                      error, with file and line.\n\nExample:\n  qosm policy build my-policy"
    )]
    Build(BuildArgs),
    /// Run a policy's tests: those of its own code, then its cases against the module.
    #[command(
        after_help = "Of a module alone the cases are played: name them with --cases.\n\nExamples:\n  qosm policy test\n  \
                      qosm policy test my-policy follows-the-limit\n  \
                      qosm policy test module.wasm --cases tests/cases\n\nExit codes: 0 all hold; 1 one does not; 2 it was asked wrongly."
    )]
    Test(TestArgs),
    /// Try a policy on a node in a file, or on a recorded one: what it would set, and why. It is granted all that it imports.
    #[command(
        after_help = "Examples:\n  qosm policy run --facts recordings/node.yaml\n  qosm policy run my-policy --recording node.jsonl -o json"
    )]
    Run(RunArgs),
    /// Measure what an evaluation takes on made-up nodes, beside the default modules: time, and instructions executed.
    #[command(
        after_help = "Times are CPU time on this machine; fuel (Wasm instructions, about) is the same everywhere.\n\nExample:\n  qosm policy bench my-policy --containers 100,1000"
    )]
    Bench(BenchArgs),
    /// Print what a policy is, takes, and may touch, as Markdown.
    #[command(after_help = "Example:\n  qosm policy doc my-policy > my-policy/REFERENCE.md")]
    Doc(DocArgs),
    /// Tell what of a policy will trouble those who run it.
    #[command(
        after_help = "Example:\n  qosm policy lint my-policy\n\nExit codes: 0 nothing but hints; 1 errors or warnings; 2 it was asked wrongly."
    )]
    Lint(LintArgs),
    /// Tell what a module is and what it may touch, read off the component itself.
    #[command(after_help = "Examples:\n  qosm policy inspect target/policies/cpu-burst.wasm\n  \
                      qosm policy inspect registry.example.com/policies/cpu-burst:1.2.0")]
    Inspect(InspectArgs),
    /// Push a module to a registry, or into a folder or archive of artefacts.
    #[command(
        after_help = "The same module with the same labels is the same artefact, whoever pushes it: its date is \
                            SOURCE_DATE_EPOCH, or 1970.\n\nExample:\n  \
                            qosm policy push my-burst.wasm registry.example.com/policies/my-burst:1.0.0"
    )]
    Push(PushArgs),
    /// Pull a module into a file, if it may be believed.
    #[command(after_help = "Example:\n  qosm policy pull registry.example.com/policies/my-burst:1.0.0")]
    Pull(PullArgs),
    /// Tell whether an artefact may be believed, and which of its signatures count.
    #[command(
        after_help = "Example:\n  qosm policy verify --key cosign.pub registry.example.com/policies/my-burst:1.0.0"
    )]
    Verify(VerifyArgs),
    /// Copy an artefact with its signatures from a registry, folder or archive to another.
    #[command(after_help = "Examples:\n  qosm policy copy ghcr.io/a/b:1 oci-layout:b.tar:1\n  \
                            qosm policy copy oci-layout:b.tar:1 registry.example.com/b:1")]
    Copy(CopyArgs),
    /// List the versions in a repository; without one, what is in the local store.
    #[command(after_help = "Example:\n  qosm policy ls registry.example.com/policies/my-burst")]
    Ls(LsArgs),
    /// Write into a module who made it, from what, and under which licence.
    #[command(
        disable_version_flag = true,
        after_help = "Example:\n  qosm policy annotate my-burst.wasm --version 1.0.0 --licenses Apache-2.0 \
                            --source https://example.com/my-burst"
    )]
    Annotate(AnnotateArgs),
    /// Print what a module was made of, as a CycloneDX document.
    #[command(after_help = "Example:\n  qosm policy sbom my-burst.wasm > my-burst.cdx.json")]
    Sbom(SbomArgs),
    /// Put another module in the place of the one that a policy runs on this node, or the one before back.
    #[command(
        after_help = "The running version goes on until the other was fetched, verified, compiled, and has been evaluated once \
                            without effect; should the other fail soon after, the one before comes back by itself.\n\n\
                            Examples:\n  qosm policy swap cpu-burst oci://registry.example.com/policies/my-burst:1.0.0\n  \
                            qosm policy swap cpu-burst --back"
    )]
    Swap(SwapArgs),
    /// Try a parked policy again.
    Retry {
        /// The policy's name.
        policy: String,
        #[command(flatten)]
        socket: SocketArgs,
    },
}

/// How registries are reached.
#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    /// What is known about registries (YAML): `hosts`, `credentials`, `verification`, `limits`, as under `registries` in the agent's
    /// own file. Not said: registries.yaml in ~/.config/qosm or /etc/qosm, if it is there.
    #[arg(long, env = "QOSM_REGISTRIES", value_name = "FILE")]
    pub(crate) registries: Option<PathBuf>,
    /// Reach the registry over plain HTTP. Not needed for one on this machine.
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Certificates (PEM) that may vouch for the registry, beside the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Where artefacts are kept. Not said: ~/.cache/qosm/artifacts.
    #[arg(long, env = "QOSM_STORE", value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A component's file, an artefact, or the name of a default module.
    pub(crate) module: String,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// Where to: REGISTRY/REPOSITORY:TAG, oci-layout:FOLDER:TAG, oci-layout:FILE.tar:TAG.
    pub(crate) to: String,
    /// A further annotation of the manifest.
    #[arg(long = "annotation", value_name = "KEY=VALUE")]
    pub(crate) annotations: Vec<String>,
    /// Push it even if this version of qosm could not run it.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The artefact.
    pub(crate) from: String,
    /// The file. Not said: the name that the module gives itself, with `.wasm`.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Whose signatures count, beside what the registries' file says.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// A public key (PEM) that must have signed it; of several, one is enough.
    #[arg(long = "key", value_name = "FILE")]
    pub(crate) keys: Vec<PathBuf>,
    /// Each of the keys must have signed it.
    #[arg(long, requires = "keys")]
    pub(crate) all_keys: bool,
    /// An annotation that must have been signed with it.
    #[arg(long = "signed", value_name = "KEY=VALUE", requires = "keys")]
    pub(crate) signed: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The artefact.
    pub(crate) artifact: String,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The artefact.
    pub(crate) from: String,
    /// Where to.
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// REGISTRY/REPOSITORY.
    pub(crate) repository: Option<String>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// The file to write. Not said: the same one.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Its version.
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// What it is for, in a line.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Whom to turn to.
    #[arg(long)]
    pub(crate) authors: Option<String>,
    /// Its licences, as an SPDX expression.
    #[arg(long)]
    pub(crate) licenses: Option<String>,
    /// Where its source is: a URL.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Where more is to be read: a URL.
    #[arg(long)]
    pub(crate) homepage: Option<String>,
    /// The source's revision.
    #[arg(long)]
    pub(crate) revision: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SbomArgs {
    /// A component's file, an artefact, or the name of a default module.
    pub(crate) module: String,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SwapArgs {
    /// The policy's name.
    pub(crate) policy: String,
    /// The module: oci://REFERENCE, oci-layout:PATH, file:///PATH, builtin:NAME, or a path.
    #[arg(required_unless_present = "back", conflicts_with = "back")]
    pub(crate) module: Option<String>,
    /// Put the one before back.
    #[arg(long)]
    pub(crate) back: bool,
    /// How long to wait for the other version to run, in seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
