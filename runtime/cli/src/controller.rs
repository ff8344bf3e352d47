//! `qosm controller`: settings and wiring of the fleet controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qosm_agent::admin;
use qosm_cluster::controller::colocation::{ColocationRules, EvictionRules, PerMinute, PublicationRules};
use qosm_cluster::controller::lease::LeaseName;
use qosm_cluster::controller::{Controller, ControllerOptions, NodeTopology};
use qosm_cluster::kubernetes;
use qosm_terminal::{Answer, block_on, log};

use crate::agent;
use crate::args::{ColocationArgs, ControllerArgs, MetricsListen, NodeTopologyArg};

pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<Answer> {
    log::start(args.log_format);
    block_on(async {
        let api = kubernetes::connect_without_retries(args.cluster.kubeconfig.as_deref()).await?;
        let ready = Arc::new(AtomicBool::new(false));
        if let MetricsListen::At(address) = args.metrics_listen {
            tokio::spawn(admin::serve_readiness(agent::listen(address)?, Arc::clone(&ready)));
        }
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "controller runs");
        let controller = Controller::new(api, options(args));
        let ended = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        controller.run(move || ready.store(true, Ordering::Relaxed), ended).await;
        Ok(Answer::Good)
    })
}

fn options(args: &ControllerArgs) -> ControllerOptions {
    let pod = std::env::var("POD_NAME").ok();
    // Outside of a pod, the host name and the process ID make the identity unique.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let identity = pod.clone().unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    let lease = args.lease.clone().map(|lease| LeaseName { namespace: lease.namespace, name: lease.name, identity });
    let node_topology = args.node_topology.map(|what| match what {
        NodeTopologyArg::Publish => NodeTopology::Publish,
        NodeTopologyArg::Withdraw => NodeTopology::Withdraw,
    });
    ControllerOptions { instance: pod, lease, colocation: rules(&args.colocation), node_topology }
}

fn rules(args: &ColocationArgs) -> Option<ColocationRules> {
    // The flag's default counts where it is absent.
    let protected = args.protected_namespaces.iter().filter(|_| !args.no_protected_namespaces);
    args.colocation.then(|| ColocationRules {
        publication: PublicationRules {
            names: args.publish.iter().cloned().collect(),
            max_percent_of_capacity: args.max_percent_of_capacity,
        },
        evictions: EvictionRules {
            per_minute: PerMinute {
                node: args.max_evictions_of_node,
                namespace: args.max_evictions_of_namespace,
                fleet: args.max_evictions,
            },
            protected_namespaces: protected.cloned().collect(),
            daemon_set_pods: args.evict_daemon_set_pods,
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        colocation: ColocationArgs,
    }

    #[test]
    fn protected_namespaces_replace_the_default_and_may_be_none() {
        for (flags, expected) in [
            ("", Some("kube-system")),
            ("--protected-namespace=payments --protected-namespace=ci", Some("ci payments")),
            ("--no-protected-namespaces", Some("")),
            ("--no-protected-namespaces --protected-namespace=ci", None),
        ] {
            let line = Line::try_parse_from(["qosm", "--colocation"].into_iter().chain(flags.split_whitespace())).ok();
            let rules = line.and_then(|line| rules(&line.colocation));
            let protected = rules.map(|rules| Vec::from_iter(rules.evictions.protected_namespaces).join(" "));
            assert_eq!(protected.as_deref(), expected, "{flags}");
        }
    }
}
