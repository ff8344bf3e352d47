//! Shares of the last-level cache and of memory bandwidth, by QoS class and by pod (resctrl: Intel RDT, AMD QoS).
//!
//! A QoS class that is enabled is a class of shares, and its pods are in it; pods that ask for shares of their own are in a class with
//! all others that ask for the same. At every evaluation the whole plan is worked out afresh, and what differs from the plan before is
//! staged. Where a class becomes a group of the kernel, which ways a percentage comes to, and what happens when a processor runs out of
//! classes is the host's work.
//!
//! Reading order: `config` and `annotation` (what can be asked), `shares`, `plan` (who is where), `report` (who is told what), and for
//! the profile `dynamic`: `signal` (who suffers), `valve` (how steps are taken), `narrowing` (both, on each domain), `memory`.
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
mod memory;
mod narrowing;
mod plan;
mod protocol;
mod report;
mod shares;
mod signal;
mod valve;

use std::collections::BTreeMap;

use qosm_sdk::{Description, Host, Level, Pod, PodId, Policy, Rejection, ResctrlAllocation, Target, Tick};

pub use crate::annotation::PodConfig;
use crate::config::{Class, Config, Profile, Settings, Shared};
use crate::narrowing::{Narrowing, Remembered};
use crate::plan::{Plan, Tracked, Wish};
use crate::report::Report;
use crate::signal::{Columns, Sensitive};

qosm_sdk::export!(LlcMba);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct LlcMba {
    settings: Settings,
    /// The QoS classes that are enabled.
    shared: BTreeMap<Class, Shared>,
    pods: BTreeMap<PodId, Tracked>,
    held: Plan,
    narrowing: Narrowing,
    report: Report,
    is_restored: bool,
    saved: Remembered,
}

impl Policy for LlcMba {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
        config.check()?;
        let mut shared = BTreeMap::new();
        for class in Class::EACH {
            if let Some(one) = config.classes.shared(class)? {
                shared.insert(class, one);
            }
        }
        self.shared = shared;
        self.settings = config.policy;
        if !std::mem::replace(&mut self.is_restored, true) {
            match memory::decode(&host.load_state()) {
                Some(remembered) => {
                    self.narrowing = Narrowing::restore(remembered.clone());
                    self.saved = remembered;
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
            // What it was in went with it.
            self.held.members.remove(id);
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
        let be = self.narrow(host, tick.window_usec);
        let plan = Plan::new(&self.shared, be, &self.pods);
        self.stage(host, &plan);
        if self.pods.values().any(|tracked| tracked.own.is_some()) {
            let states = host.class_states();
            self.report.tell(&plan, &states, &self.pods, host);
        }
        self.held = plan;
        self.remember(host);
        Ok(())
    }
}

impl LlcMba {
    /// What BE may use by now, where that is not simply what its operator said.
    fn narrow<H: Host>(&mut self, host: &mut H, window_usec: u64) -> Option<Wish> {
        let be = self.shared.get(&Class::Be).copied();
        let Some(be) = be.filter(|_| self.settings.profile == Profile::Dynamic) else {
            self.narrowing = Narrowing::default();
            return None;
        };
        if !self.narrowing.is_too_short(window_usec) {
            let columns = Columns::read(host, window_usec);
            let sensitive = Sensitive::of(&self.pods, &self.shared);
            self.narrowing.turn(&columns, &sensitive, be, &self.settings, window_usec);
        }
        Some(self.narrowing.wish(be, &self.settings))
    }

    /// Stages what differs from what is held. A class is there before its members come, and goes after they have left.
    fn stage(&self, host: &mut impl ResctrlAllocation, plan: &Plan) {
        for (class, wish) in &plan.classes {
            if self.held.classes.get(class).is_none_or(|held| held.shares != wish.shares) {
                let domains: Vec<_> = wish.shares.domains.iter().map(|(id, share)| (*id, *share)).collect();
                host.define_class(class, &wish.shares.all, &domains, &wish.reason);
            }
        }
        for (id, class) in &plan.members {
            if let Some(tracked) = self.pods.get(id).filter(|_| self.held.members.get(id) != Some(class)) {
                host.assign_class(Target::Pod(*id), class, &plan::why(tracked, class));
            }
        }
        for id in self.held.members.keys().filter(|id| !plan.members.contains_key(id)) {
            host.release_class(Target::Pod(*id));
        }
        for class in self.held.classes.keys().filter(|class| !plan.classes.contains_key(*class)) {
            host.undefine_class(class);
        }
    }

    fn remember<H: Host>(&mut self, host: &mut H) {
        let remembered = self.narrowing.remembered();
        if memory::is_news(&remembered, &self.saved) {
            match host.save_state(&memory::encode(&remembered)) {
                Ok(()) => self.saved = remembered,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}
