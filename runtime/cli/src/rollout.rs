//! `qosm rollout` and `qosm crds`: a cluster's PolicyModules, seen through the API server.

use std::time::{Duration, Instant};

use qosm_cluster::fleet::{self, FleetError};
use qosm_cluster::policy_module::{PolicyModule, PolicyModuleStatus};
use qosm_terminal::{Answer, block_on, print};

use crate::args::{Output, RolloutArgs};

/// Interval between two counts while waiting.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A hundred years: the clock has no moment for the longest durations.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) fn status(args: &RolloutArgs) -> anyhow::Result<Answer> {
    let until = Instant::now() + args.wait.unwrap_or_default().unsigned_abs().min(MAX_WAIT);
    let (module, status) = block_on(async {
        let fleet = fleet::Fleet::connect(args.cluster.kubeconfig.as_deref()).await?;
        loop {
            let is_last = Instant::now() >= until;
            match fleet.count(&args.module).await {
                Ok((module, status)) if is_last || is_done(&status) => return Ok((module, status)),
                // `--wait` also waits for an unreachable API server.
                Err(FleetError::List { what, why }) if !is_last => eprintln!("{what} cannot be listed: {why}"),
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::sleep(POLL_INTERVAL.min(left)).await;
        }
    })?;
    match args.output.output {
        Output::Json => print::json(&status)?,
        Output::Table => print::text(&render(&module, &status))?,
    }
    Ok(if is_done(&status) { Answer::Good } else { Answer::Bad })
}

/// Whether every node to be updated runs the current generation without errors.
fn is_done(status: &PolicyModuleStatus) -> bool {
    let is = |type_: &str| status.conditions.iter().any(|known| known.type_ == type_ && known.status == "True");
    is("Selected") && is("Healthy") && !is("Progressing")
}

fn render(module: &PolicyModule, status: &PolicyModuleStatus) -> String {
    let mut text = format!(
        "PolicyModule {}, generation {}: {}, {}\n",
        module.metadata.name.as_deref().unwrap_or_default(),
        module.metadata.generation.unwrap_or_default(),
        module.spec.module,
        serde_json::to_value(module.spec.mode)
            .ok()
            .and_then(|mode| mode.as_str().map(str::to_owned))
            .unwrap_or_default(),
    );
    for condition in &status.conditions {
        text.push_str(&format!("{:<12} {:<6} {}\n", condition.type_, condition.status, condition.message));
    }
    if !status.digests.is_empty() {
        text.push('\n');
        let rows = status
            .digests
            .iter()
            .map(|count| vec![count.nodes.to_string(), count.version.clone(), count.digest.clone()]);
        text.push_str(&print::table(&["nodes", "version", "digest"], rows));
    }
    text
}

pub(crate) fn crds(name: Option<&str>) -> anyhow::Result<Answer> {
    print::text(&fleet::crds(name)?)?;
    Ok(Answer::Good)
}
