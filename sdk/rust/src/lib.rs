//! Write qosm policies in Rust.
//!
//! A policy is an ordinary type that implements [`Policy`]. The same code is tested natively, against a
//! [`mock::MockHost`], and shipped as a component: [`export!`] does nothing but on `wasm32`.
//!
//! Reading order: [`Policy`] (what you write), [`Host`] (what you may ask and stage), [`Pod`] (what you are given),
//! [`Description`] and [`Protocol`] (how operators configure you), [`mock`] (a host for unit tests) and, with the feature
//! `testing`, the runner of case files.
//!
//! An import is a permission, and a component imports what it calls: a policy that never calls
//! [`CpuBandwidth::set_quota`] cannot be granted, and cannot need, the right to set a quota. That is why every method takes
//! `H: Host` by type and why there is no `dyn Host`.
//!
//! ```
//! use qosm_sdk::{Description, Host, Pod, PodId, Policy, Protocol, Rejection, Target, Tick};
//! use serde::Deserialize;
//!
//! /// Lets every container of a pod save up `percent` of its CPU limit.
//! #[derive(Default)]
//! struct Saver {
//!     pods: Vec<Pod<Saving>>,
//! }
//!
//! #[derive(Deserialize)]
//! struct Saving {
//!     percent: u64,
//! }
//!
//! impl Policy for Saver {
//!     type Config = ();
//!     type PodConfig = Saving;
//!
//!     fn describe() -> Description {
//!         Description::new("saver", "0.1.0", "Lets containers save up CPU time.").protocol(
//!             Protocol::new()
//!                 .annotation("example.org/saver")
//!                 .schema(r#"{"type":"object","properties":{"percent":{"type":"integer","minimum":0,"maximum":100}}}"#),
//!         )
//!     }
//!
//!     fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<Saving>>, removed: &[PodId]) -> Vec<Rejection> {
//!         self.pods.retain(|pod| !removed.contains(&pod.id) && upserted.iter().all(|new| new.id != pod.id));
//!         self.pods.extend(upserted);
//!         Vec::new()
//!     }
//!
//!     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
//!         for pod in &self.pods {
//!             for container in &pod.containers {
//!                 let target = Target::Container(container.id);
//!                 match (&pod.config, container.cpu_limit_milli) {
//!                     (Some(saving), Some(limit)) => host.set_burst(target, limit * saving.percent, "asked for"),
//!                     _ => host.release_burst(target),
//!                 }
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! qosm_sdk::export!(Saver);
//!
//! // In a test:
//! use qosm_sdk::{Container, PodFacts, Session, mock};
//! let mut host = mock::MockHost::default();
//! let mut saver = Session::<Saver>::default();
//! let pod = PodFacts {
//!     config: r#"{"percent": 50}"#.into(),
//!     containers: vec![Container { cpu_limit_milli: Some(2000), ..mock::container(7, "app") }],
//!     ..mock::pod(1, "default", "web")
//! };
//! saver.pods(&mut host, vec![pod], &[])?;
//! saver.evaluate(&mut host, mock::tick(1_000))?;
//! assert_eq!(host.held(Target::Container(7), mock::CPU_BURST), Some(mock::Value::Number(100_000)));
//! # Ok::<(), String>(())
//! ```

#[doc(hidden)]
pub mod bindings;
mod bucket;
mod describe;
mod ewma;
mod host;
mod hysteresis;
pub mod mock;
mod pod;
mod pods;
mod policy;
mod rate;
mod scale;
mod schema;
mod session;
#[cfg(feature = "testing")]
pub mod testing;

pub use bindings::exports::qosm::policy::lifecycle::Rejection;
pub use bindings::qosm::policy::cpu_stat::{Bandwidth, Sample as CpuSample};
pub use bindings::qosm::policy::log::Level;
pub use bindings::qosm::policy::memory_protection::{Bound, Protection};
pub use bindings::qosm::policy::memory_stat::Sample as MemorySample;
pub use bindings::qosm::policy::node::Sample as NodeSample;
pub use bindings::qosm::policy::numa_stat::{NumaNode, Sample as NumaSample, Share as NumaShare};
pub use bindings::qosm::policy::page_migration::{
    ProcessFailure, Progress as MigrationProgress, State as MigrationState,
};
pub use bindings::qosm::policy::pod_event::Kind as EventKind;
pub use bindings::qosm::policy::pressure::{Sample as PressureSample, Stall};
pub use bindings::qosm::policy::types::{
    Alarm, Cause, Container, ContainerId, ContainerKind, ContainerState, ExtendedResource, KubeQos, Pod as PodFacts,
    PodId, PressureScope, PressureTrigger, QosClass, StalledResource, Target, Tick, Tier, Trigger,
};
pub use bucket::TokenBucket;
pub use describe::{Description, Preset, Protocol};
pub use ewma::Ewma;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use host::Granted;
pub use host::{
    CpuBandwidth, CpuStat, Cpuset, Host, Log, MemoryProtection, MemoryStat, Node, NumaStat, PageMigration, PodEvent,
    Pressure, State,
};
pub use hysteresis::Hysteresis;
pub use pod::{NoConfig, Pod};
pub use pods::Pods;
pub use policy::Policy;
pub use rate::{MilliCpu, Rate, RecentRate};
pub use scale::{percent_of, scale};
pub use schemars;
pub use session::Session;

/// Makes the crate's component out of a [`Policy`]. To be called once, in the root of a `cdylib`; does nothing natively.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::qosm::policy::lifecycle as contract;

            // The instance goes as a whole: nobody ever drops what is in it, so the code for that may be left out.
            ::std::thread_local! {
                static SESSION: ::std::cell::RefCell<
                    ::std::option::Option<::std::mem::ManuallyDrop<$crate::Session<$policy>>>,
                > = const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }

            fn with<T>(call: impl ::std::ops::FnOnce(&mut $crate::Session<$policy>) -> T) -> T {
                SESSION.with_borrow_mut(|session| call(session.get_or_insert_default()))
            }

            struct Component;

            impl contract::Guest for Component {
                fn describe() -> contract::Description {
                    <$policy as $crate::Policy>::describe().into()
                }

                fn configure(config: ::std::string::String) -> ::std::result::Result<(), ::std::string::String> {
                    with(|session| session.configure(&mut $crate::Granted, &config))
                }

                fn pods(
                    upserted: ::std::vec::Vec<contract::Pod>,
                    removed: ::std::vec::Vec<contract::PodId>,
                ) -> ::std::result::Result<::std::vec::Vec<contract::Rejection>, ::std::string::String> {
                    with(|session| session.pods(&mut $crate::Granted, upserted, &removed))
                }

                fn evaluate(tick: contract::Tick) -> ::std::result::Result<(), ::std::string::String> {
                    with(|session| session.evaluate(&mut $crate::Granted, tick))
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
