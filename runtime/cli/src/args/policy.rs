//! Arguments of `qosm policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use qosm_open_module::{KeyArgs, RegistryArgs};
use qosm_terminal::OutputArgs;

use super::{Author, BY_AUTHORS, SocketArgs};
use crate::completions::policies;

#[derive(Debug, Subcommand)]
#[command(after_help = BY_AUTHORS)]
pub(crate) enum PolicyCommand {
    /// Begin a policy: a project that builds, passes its tests and runs as it is.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    New(Author),
    /// Build a policy's module: a component from Rust, a bundle from Rego.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Build(Author),
    /// Run a policy's tests: those of its own code, then its cases against the module.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Test(Author),
    /// Try a policy on a node in a file, or on a recorded one: what it would set, and why. It is granted all that it imports.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Run(Author),
    /// Measure what an evaluation takes on made-up nodes, beside the default modules: time, and instructions executed.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench(Author),
    /// Print what a policy is, takes, and may touch, as Markdown.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Doc(Author),
    /// Show what in a policy will trouble its operators.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lint(Author),
    /// Show what a module is and what it may touch, read from the component itself.
    #[command(after_help = "Examples:\n  qosm policy inspect target/policies/cpu-burst.wasm\n  \
                      qosm policy inspect registry.example.com/policies/cpu-burst:1.2.0")]
    Inspect(InspectArgs),
    /// Push a module to a registry, or into a folder or archive of artefacts.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Push(Author),
    /// Pull a module into a file, if it may be believed.
    #[command(after_help = "Example:\n  qosm policy pull registry.example.com/policies/my-burst:1.0.0")]
    Pull(PullArgs),
    /// Show whether an artefact is trusted, and which of its signatures count.
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
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Annotate(Author),
    /// Print what a module was made of, as a CycloneDX document.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sbom(Author),
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
        #[arg(add = ArgValueCandidates::new(policies))]
        policy: String,
        #[command(flatten)]
        socket: SocketArgs,
    },
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
pub(crate) struct SwapArgs {
    /// The policy's name.
    #[arg(add = ArgValueCandidates::new(policies))]
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
