//! `qosm policy swap`: replaces the module of a running policy, and reports the outcome.

use std::time::{Duration, Instant};

use anyhow::bail;
use qosm_agent::admin::SwapRequest;
use qosm_agent::policy_set::Swapped;
use qosm_agent::report::PolicyReport;
use qosm_registry::Reference;
use qosm_terminal::{Answer, print};
use serde_json::json;

use crate::args::{Output, SwapArgs};
use crate::client;

/// Interval between two requests for progress.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &SwapArgs) -> anyhow::Result<Answer> {
    let socket = &args.socket.admin_socket;
    let before = report(args)?;
    // A path is relative to this process; the agent has another working directory.
    let module = args.module.as_ref().map(|module| absolute(module)).transpose()?;
    let request = SwapRequest { policy: args.policy.clone(), module };
    let swapped: Swapped = serde_json::from_slice(&client::post(socket, "/v1/swap", &request)?)?;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let mut reported = String::new();
    loop {
        let now = report(args)?;
        match &now.pending_update {
            // The report is older than the swap.
            _ if now.policy_set < swapped.policy_set => {}
            // The outcome of another update does not concern this swap.
            Some(update) if !is_meant(&update.module, &swapped) => {}
            Some(update) if !update.pending => bail!(
                "{policy} runs on as before: {}; `qosm policy swap {policy} --back` calls the swap off",
                update.why,
                policy = args.policy
            ),
            Some(update) => report_once(&mut reported, &update.why),
            None if now.health == "fetching" => report_once(&mut reported, now.error.as_deref().unwrap_or_default()),
            // A module with the same content keeps running under its new name.
            None if is_there(&now, &swapped) => return done(args, &before, &now),
            None if now.health == "not-loaded" => bail!("{}", now.error.unwrap_or_default()),
            None => {}
        }
        if Instant::now() > until {
            bail!("it does not run after {} s; the agent keeps trying: see `qosm get policies`", args.timeout);
        }
        std::thread::sleep(QUERY_INTERVAL);
    }
}

fn absolute(module: &str) -> anyhow::Result<String> {
    let path = |path: &str| std::path::absolute(path).map(|path| path.display().to_string());
    if let Some(layout) = module.strip_prefix("oci-layout:") {
        return Ok(format!("oci-layout:{}", path(layout)?));
    }
    if ["builtin:", "file://", "oci://"].iter().any(|scheme| module.starts_with(scheme)) {
        return Ok(module.to_owned());
    }
    // A reference without `oci://`, as other commands accept it.
    if !std::path::Path::new(module).exists() && module.parse::<Reference>().is_ok() {
        return Ok(format!("oci://{module}"));
    }
    Ok(path(module)?)
}

fn report(args: &SwapArgs) -> anyhow::Result<PolicyReport> {
    let all: Vec<PolicyReport> = client::get(&args.socket.admin_socket, "/v1/policies")?;
    let known = all.iter().map(|report| report.policy.clone()).collect::<Vec<_>>().join(", ");
    match all.into_iter().find(|report| report.policy == args.policy) {
        Some(report) => Ok(report),
        None => bail!("no policy `{}` runs on this node; there are: {known}", args.policy),
    }
}

fn is_there(now: &PolicyReport, swapped: &Swapped) -> bool {
    is_meant(&now.reference, swapped) && now.error.is_none()
}

fn is_meant(module: &str, swapped: &Swapped) -> bool {
    let wanted = swapped.module.clone().unwrap_or_else(|| format!("builtin:{}", swapped.policy));
    module.trim_start_matches("file://") == wanted.trim_start_matches("file://")
}

fn report_once(reported: &mut String, news: &str) {
    if reported != news {
        eprintln!("{news}");
        news.clone_into(reported);
    }
}

fn done(args: &SwapArgs, before: &PolicyReport, now: &PolicyReport) -> anyhow::Result<Answer> {
    if args.output.output == Output::Json {
        print::json(&json!({"policy": args.policy, "before": before, "now": now}))?;
    } else {
        let line = |report: &PolicyReport| format!("{} {} ({})", report.reference, report.module, report.digest);
        if args.module.is_none() && line(before) == line(now) {
            print::text(&format!(
                "{}\nis   {}\nthe pending version, which never ran, is cancelled\n",
                args.policy,
                line(now)
            ))?;
            return Ok(Answer::Good);
        }
        print::text(&format!("{}\nwas  {}\nis   {}\n", args.policy, line(before), line(now)))?;
        if let Some(trusted) = &now.trusted {
            print::text(&format!("     {trusted}\n"))?;
        }
        print::text(&format!("to undo it: qosm policy swap {} --back\n", args.policy))?;
    }
    Ok(Answer::Good)
}
