//! Plays a recording for `qosm top` and `qosm ui`.

use std::path::Path;

use anyhow::bail;
use qosm_agent::Mode;
use qosm_agent::replay::Replay;
use qosm_agent::report::PolicyReport;
use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_replay::Recording;
use qosm_watch::moment::Moment;

use crate::args::ModuleArgs;
use crate::plan;

/// A recording, and the policies that it is played through.
pub(crate) struct Played {
    replay: Replay,
    recording: Recording,
}

impl Played {
    pub(crate) fn open(path: &Path, modules: &ModuleArgs) -> anyhow::Result<Self> {
        let (facts, recording) = Recording::open(path)?;
        let engine = Engine::new()?;
        let policies = plan::load_entries(&engine, modules, facts.policies.clone())?;
        let replay = Replay::new(&facts, Objects::default(), engine, policies, Mode::Enforce);
        let replay = replay.map_err(|error| recording.unfit(error))?;
        Ok(Self { replay, recording })
    }

    /// Passes each moment and the policies' reports to `take`, until it returns `false`.
    pub(crate) fn each(self, mut take: impl FnMut(Moment, Vec<PolicyReport>) -> bool) -> anyhow::Result<()> {
        let Self { mut replay, recording } = self;
        replay.open();
        let mut before = replay.usage();
        let mut is_wanted = true;
        recording.play(
            |line| {
                replay.play(line)?;
                let now = replay.usage();
                let moment = Moment::between(&before, &now);
                before = now;
                Ok((moment, replay.agent().policy_reports()))
            },
            |(moment, policies): &(Moment, Vec<PolicyReport>)| {
                is_wanted = is_wanted && take(moment.clone(), policies.clone());
                if is_wanted { Ok(()) } else { bail!("the reader has ended") }
            },
        )
    }
}
