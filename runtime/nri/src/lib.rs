//! A plug-in of the container runtime: NRI (Node Resource Interface), as containerd since 1.7 and CRI-O since 1.26 speak it.
//!
//! [`serve`] registers over a connection and hands each [`RuntimeEvent`] to its caller: which containers run, which one is about to
//! start, which one has stopped. A container that is about to start has its cgroup and its limits, and its first instruction waits for
//! [`StartReply`], but no longer than [`PluginOptions::budget`], whatever happens to the event. Requests are never answered with an error,
//! since an error fails the container. The plug-in adjusts nothing: `qosm-host` writes to the cgroup instead.
//!
//! `qosm-agent` opens the socket, reconnects, and decides what is done about a container.
//!
//! In reading order: [`RuntimeEvent`], [`serve`], `messages` (the protocol's), `ttrpc` (calls), `multiplex` (two directions on one
//! connection), `cgroup_path`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod cgroup_path;
mod event;
// Not behind a feature: the crates above would be compiled once for their tests and once more without. No program links it.
#[doc(hidden)]
pub mod fake_runtime;
mod messages;
mod multiplex;
mod plugin;
mod starts;
mod ttrpc;

pub use cgroup_path::cgroup_path;
pub use event::{Adjustment, PodSandbox, RunningContainer, RuntimeEvent, RuntimeInfo, StartOutcome, StartReply};
pub use plugin::{NriError, PluginOptions, serve};
