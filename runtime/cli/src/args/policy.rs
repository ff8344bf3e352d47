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
    /// Create a policy: a project that builds, passes its tests and runs as it is.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    New(Author),
    /// Build a policy's module: a component from Rust, a bundle from Rego.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Build(Author),
    /// Run a policy's tests: those of its own code, then its cases against the module.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Test(Author),
    /// Try a policy on a node from a file or a recording: show what it would set, and why. All interfaces that it imports are granted.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Run(Author),
    /// Measure time and executed instructions of an evaluation on synthetic nodes, beside those of the default modules.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench(Author),
    /// Print a policy's reference as Markdown: what it does, its fields, and what it may touch.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Doc(Author),
    /// Check a policy for mistakes that would trouble its operators.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lint(Author),
    /// Show what a module is and what it may touch, read from the component itself.
    #[command(after_help = "Examples:\n  qosm policy inspect target/policies/cpu-burst.wasm\n  \
                      qosm policy inspect registry.example.com/policies/cpu-burst:1.2.0")]
    Inspect(InspectArgs),
    /// Push a module to a registry, or into a folder or archive of artefacts.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Push(Author),
    /// Pull a module into a file, if it is trusted.
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
    /// List the versions in a repository; without a repository, the content of the local store.
    #[command(after_help = "Example:\n  qosm policy ls registry.example.com/policies/my-burst")]
    Ls(LsArgs),
    /// Write metadata into a module: version, authors, source, licence.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Annotate(Author),
    /// Print the software bill of materials of a module, as a CycloneDX document.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sbom(Author),
    /// Replace the module that a policy runs on this node, or go back to the previous one.
    #[command(
        after_help = "The running version goes on until the new one is fetched, verified, compiled, and evaluated once \
                            without effect. If the new one fails within its rollback window, the previous one comes back by itself.\n\n\
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
    /// The module: a component's file, an artefact, or the name of a default module.
    pub(crate) module: String,
    /// Folder of the default modules.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Reference of the artefact.
    pub(crate) from: String,
    /// File to write. Default: the module's own name, with `.wasm`.
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
    /// Reference of the artefact.
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
    /// Reference of the artefact.
    pub(crate) from: String,
    /// Reference of the copy.
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The repository, as REGISTRY/REPOSITORY, or a layout, as oci-layout:PATH.
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
    /// Go back to the previous module.
    #[arg(long)]
    pub(crate) back: bool,
    /// Maximum time to wait until the new version runs, in seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
