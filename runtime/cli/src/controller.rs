//! `qosm controller`: wiring of the one process that counts a fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qosm_agent::admin;
use qosm_cluster::{Controller, kubernetes};

use crate::args::{ControllerArgs, MetricsListen};
use crate::{Answer, agent, client};

pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<Answer> {
    agent::log(args.log_format);
    client::block_on(async {
        let api = kubernetes::connect(args.cluster.kubeconfig.as_deref()).await?;
        let ready = Arc::new(AtomicBool::new(false));
        if let MetricsListen::At(address) = args.metrics_listen {
            tokio::spawn(admin::serve_readiness(agent::listen(address)?, Arc::clone(&ready)));
        }
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "controller runs");
        let controller = Controller::new(api, std::env::var("POD_NAME").ok());
        tokio::select! {
            () = controller.run(move || ready.store(true, Ordering::Relaxed)) => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(Answer::Good)
    })
}
