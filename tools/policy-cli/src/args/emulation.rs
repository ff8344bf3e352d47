//! Arguments of what runs on an emulated resctrl.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Two pods on an emulated resctrl: the batch job in the cache and the memory bandwidth of the web server, then held in its own
    /// part by the policy `llc-mba`, then everything put back. Needs root.
    #[command(
        after_help = "Examples:\n  sudo qosm demo resctrl\n  sudo qosm demo resctrl --profile amd --hold\n\nExit codes: 0 it showed what it should; 1 it did not, or cannot run here; 2 it was asked wrongly."
    )]
    Resctrl(DemoArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResctrlCommand {
    /// Mount an emulated resctrl until interrupted: it refuses what the kernel refuses, with the same messages, and limits no process.
    ///
    /// Its counters follow standard input, a line each: `demand TASK BYTES BYTES_PER_SECOND [CACHE]` is what a
    /// thread would take of each cache (or one) and of the memory behind it; `step SECONDS` moves the clock with --stepped.
    #[command(
        after_help = "Examples:\n  sudo qosm resctrl emulate /tmp/resctrl --profile amd\n  sudo qosm agent --resctrl /tmp/resctrl --policy llc-mba --pods pods    # in another terminal\n  echo \"demand $$ 8Mi 2G\" | sudo qosm resctrl emulate /tmp/resctrl"
    )]
    Emulate(EmulateArgs),
}

/// The machine that is emulated.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// The machine: intel, intel-20-ways, haswell, amd, l3-only, l2-only, mb-only, cdp, few-closids, sub-numa, monitor-only; or a file
    /// (x.yaml, x.json, or with a slash) that describes one.
    #[arg(long, default_value = "intel", value_name = "NAME|FILE")]
    pub(crate) profile: String,
}

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// Where to; the folder is made if it is not there.
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
    /// Let the clock stand still but for `step` on standard input.
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
    /// How long each of the two phases lasts before it is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=600))]
    pub(crate) seconds: u64,
    /// Keeps everything running at the end until Ctrl-C, to look at with `qosm explain` and the like.
    #[arg(long)]
    pub(crate) hold: bool,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
}
