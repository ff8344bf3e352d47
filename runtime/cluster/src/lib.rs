//! Sources of pods and configuration: an API server, or a folder of manifests.
//!
//! Reading order: a [`Source`] gives a [`Snapshot`] when something changed. [`Folder`] watches files, [`Kubernetes`] an API
//! server, to which it also writes events and reports ([`Outbox`]); [`Controller`] counts the fleet. [`kubelet`] reads a
//! kubelet's own files. [`parse_objects`] reads one text; [`pod_from_value`], [`config_map_from_value`], [`node_from_value`] and
//! [`policy_module_from_value`] read one object each, and [`Quantity`] one amount. The results are the types of `qosm_model`;
//! their meaning for a policy is defined in `qosm_model::layering`.
//!
//! One unusable object does not stop the rest: it becomes a [`Problem`] that names the file, the document and the
//! field, or the object and the field.
//!
//! ```
//! let manifest = "
//! kind: Pod
//! metadata: {name: web}
//! spec:
//!   containers:
//!   - name: server
//!     resources: {limits: {cpu: 500m, memory: 1Gi}}
//! ";
//! let objects = qosm_cluster::parse_objects(manifest, "web.yaml");
//! assert!(objects.problems.is_empty());
//! assert_eq!(objects.pods[0].key(), "default/web");
//! // As the API server would have it, a request that is not said is the limit.
//! assert_eq!(objects.pods[0].containers[0].cpu_request.map(|request| request.0), Some(500));
//! ```
//!
//! [`Problem`]: qosm_model::problem::Problem
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod config_map;
pub mod controller;
pub mod fleet;
mod folder;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
pub mod kubelet;
pub mod kubernetes;
mod node;
pub mod node_report;
mod object;
mod pod;
pub mod policy_module;
mod quantity;
mod source;
mod text;
mod topology;
mod typed;

pub use self::config_map::config_map_from_value;
pub use self::controller::Controller;
pub use self::folder::{Folder, FolderError};
pub use self::kubernetes::{Kubernetes, Outbox};
pub use self::node::node_from_value;
pub use self::object::{Objects, Read, parse_objects};
pub use self::pod::{CGROUP_ANNOTATION, Giver, pod_from_value};
pub use self::policy_module::{PolicyModule, policy_module_from_value};
pub use self::quantity::{Quantity, QuantityError, parse_bytes};
pub use self::source::{Snapshot, Source};
pub use self::topology::{Topology, topology_from_value};
