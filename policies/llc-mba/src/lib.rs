//! Shares of the last-level cache and of memory bandwidth, by QoS class and by pod (resctrl: Intel RDT, AMD QoS).
//!
//! Each enabled QoS class is a class of shares that contains its pods; pods with shares of their own are in a class with all pods that ask
//! for the same shares. Each evaluation computes and declares the whole plan. The host maps classes to groups of the kernel and percentages
//! to ways, and handles processors that run out of CLOSIDs.
//!
//! Reading order: `config` and `annotation` (configuration), `shares`, `plan` (pods and their classes), `report` (events), and for the
//! profile `dynamic`: `signal` (measurements), `stepper` (steps), `throttle` (both, per domain), `saved_state`.
//!
//! ```
//! use llc_mba::LlcMba;
//! use qosm_sdk::{CacheShare, PodFacts, QosClass, Session, Target, mock};
//!
//! let mut host = mock::MockHost::default();
//! let mut policy = Session::<LlcMba>::default();
//! policy.configure(&mut host, r#"{"classes": {"beClass": {"catRangeEndPercent": 30}}}"#)?;
//! let report = PodFacts { qos: QosClass::Be, ..mock::pod(1, "batch", "report") };
//! policy.pods(&mut host, vec![report], &[])?;
//! policy.evaluate(&mut host, mock::tick(1_000))?;
//! assert_eq!(host.class_of(Target::Pod(1)), Some("be"));
//! assert_eq!(host.classes().defined["be"].0.cache, Some(CacheShare::Percent((0, 30))));
//! # Ok::<(), String>(())
//! ```

mod annotation;
pub mod config;
mod plan;
mod protocol;
mod report;
mod saved_state;
mod shares;
mod signal;
mod stepper;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{Description, Host, Level, Pod, PodId, Policy, Rejection, ResctrlAllocation, Target, Tick};

pub use crate::annotation::PodConfig;
use crate::config::{Class, Config, Profile, Settings, Shared};
use crate::plan::{ClassSpec, Plan, Tracked};
use crate::protocol::CONFIG_MAP_KEY;
use crate::report::Report;
use crate::signal::{Columns, Sensitive};
use crate::throttle::{SavedState, Throttle};

qosm_sdk::export!(LlcMba);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct LlcMba {
    settings: Settings,
    /// The shares of the enabled QoS classes.
    shared: BTreeMap<Class, Shared>,
    /// Classes that keep their former shares, and why.
    faults: Vec<(String, String)>,
    pods: BTreeMap<PodId, Tracked>,
    /// Names of the classes that were defined last.
    defined: BTreeSet<String>,
    throttle: Throttle,
    report: Report,
    is_restored: bool,
    saved: SavedState,
}

impl Policy for LlcMba {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
        config.policy.check()?;
        let mut shared = BTreeMap::new();
        self.faults.clear();
        for class in Class::EACH {
            let kept = self.shared.get(&class).copied();
            let of_class = config.classes.shared(class).unwrap_or_else(|fault| {
                let until = if kept.is_some() { "its former shares stay" } else { "it has no shares" };
                let (field, fault) = fault.split_once(": ").unwrap_or(("", &fault));
                let message = format!("{fault}. Until then {until}; the other classes count");
                self.faults.push((field.to_owned(), message));
                kept
            });
            shared.extend(of_class.map(|of_class| (class, of_class)));
        }
        self.shared = shared;
        self.settings = config.policy;
        if !std::mem::replace(&mut self.is_restored, true) {
            match saved_state::decode(&host.load_state()) {
                Some(state) => {
                    self.throttle = Throttle::restore(state.clone());
                    self.saved = state;
                }
                None => host
                    .log(Level::Warn, "how far BE was narrowed before cannot be read: it begins with all of its share"),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        for id in removed {
            self.pods.remove(id);
        }
        let mut rejections = Vec::new();
        for pod in upserted {
            let own = pod.config.as_ref().map_or(Ok(None), PodConfig::own).unwrap_or_else(|fault| {
                rejections.push(Rejection { pod: pod.id, field: fault.field, message: fault.message });
                None
            });
            self.pods.insert(pod.id, Tracked { pod, own });
        }
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        for (class, fault) in &self.faults {
            host.problem(CONFIG_MAP_KEY, class, fault);
        }
        let be = self.throttle_be(host, tick.window_usec);
        let plan = Plan::new(&self.shared, be, &self.pods);
        self.declare(&plan, host);
        if self.pods.values().any(|tracked| tracked.own.is_some()) {
            let states = host.class_states();
            self.report.update(&plan, &states, &self.pods, host);
        }
        self.save(host);
        Ok(())
    }
}

impl LlcMba {
    /// The current shares of BE with the profile `dynamic`; `None` with `static`.
    fn throttle_be<H: Host>(&mut self, host: &mut H, window_usec: u64) -> Option<ClassSpec> {
        let be = self.shared.get(&Class::Be).copied();
        let Some(be) = be.filter(|_| self.settings.profile == Profile::Dynamic) else {
            self.throttle = Throttle::default();
            return None;
        };
        if !self.throttle.is_too_short(window_usec) {
            let columns = Columns::read(host, window_usec);
            let sensitive = Sensitive::of(&self.pods, &self.shared);
            self.throttle.update(&columns, &sensitive, be, &self.settings, window_usec);
        }
        Some(self.throttle.spec(be, &self.settings))
    }

    /// Declares the classes first, since a pod can only be assigned to a defined class. Where the processor's classes run out, those count
    /// that were defined first: QoS classes come before classes of single pods. If a QoS class is new, the latter are left out once, so that
    /// they are defined anew behind it.
    fn declare(&mut self, plan: &Plan, host: &mut impl ResctrlAllocation) {
        let is_of_qos = |name: &str| Class::EACH.iter().any(|class| class.name() == name);
        let is_new = plan.classes.keys().any(|name| is_of_qos(name) && !self.defined.contains(name));
        let has_to_wait = is_new && self.defined.iter().any(|name| !is_of_qos(name));
        let (of_qos, of_pods): (Vec<_>, Vec<_>) = plan.classes.iter().partition(|(name, _)| is_of_qos(name));
        let of_pods = of_pods.into_iter().filter(|_| !has_to_wait);
        self.defined.clear();
        for (class, spec) in of_qos.into_iter().chain(of_pods) {
            let domains: Vec<_> = spec.shares.domains.iter().map(|(id, share)| (*id, *share)).collect();
            host.define_class(class, &spec.shares.all, &domains, &spec.reason);
            self.defined.insert(class.clone());
        }
        for (id, class) in plan.members.iter().filter(|(_, class)| self.defined.contains(*class)) {
            if let Some(tracked) = self.pods.get(id) {
                host.assign_class(Target::Pod(*id), class, &plan::why(tracked, class));
            }
        }
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        let state = self.throttle.saved_state();
        if saved_state::is_worth_saving(&state, &self.saved) {
            match host.save_state(&saved_state::encode(&state)) {
                Ok(()) => self.saved = state,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}
