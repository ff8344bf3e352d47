//! Arguments of what runs on an emulated resctrl.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Run two pods on an emulated resctrl: first a batch job takes cache and memory bandwidth from a web server, then the policy `llc-mba`
    /// limits it to its own part, then everything is restored. Needs root.
    #[command(
        after_help = "Examples:\n  sudo qosm demo resctrl\n  sudo qosm demo resctrl --profile amd --hold\n\nExit codes: 0 the demo showed the policy's effect; 1 it did not, or it cannot run here; 2 wrong arguments or input."
    )]
    Resctrl(DemoArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResctrlCommand {
    /// Mount an emulated resctrl until interrupted: it refuses what the kernel refuses, with the same messages, and limits no process.
    ///
    /// Standard input drives its counters, one command per line: `demand TASK BYTES BYTES_PER_SECOND [CACHE]` sets how much a thread would
    /// use of each cache (or of one) and of the memory behind it; `step SECONDS` moves the clock with --stepped.
    #[command(
        after_help = "Examples:\n  sudo qosm resctrl emulate /tmp/resctrl --profile amd\n  sudo qosm agent --resctrl /tmp/resctrl --policy llc-mba --pods pods    # in another terminal\n  echo \"demand $$ 8Mi 2G\" | sudo qosm resctrl emulate /tmp/resctrl"
    )]
    Emulate(EmulateArgs),
}

/// The machine that is emulated.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// The emulated machine: intel, intel-20-ways, haswell, amd, l3-only, l2-only, mb-only, cdp, few-closids, sub-numa, monitor-only; or a
    /// file (x.yaml, x.json, or a path with a slash) that describes a machine.
    #[arg(long, default_value = "intel", value_name = "NAME|FILE")]
    pub(crate) profile: String,
}

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// Mount point; the folder is created if it does not exist.
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
    /// Let the clock advance only by `step` on standard input.
    #[arg(long)]
    pub(crate) stepped: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
    /// The policy-level configuration of llc-mba.
    #[arg(long, value_name = "JSON")]
    pub(crate) policy_config: Option<String>,
    /// Duration of each of the two phases before it is measured, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=600))]
    pub(crate) seconds: u64,
    /// Keep everything running at the end until Ctrl-C, to inspect it with `qosm explain` and the like.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Folder of the default modules.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
}
