//! Drivers, which run a policy for the runner.

use crate::mock::{
    ClassChange, Columns, Event, EvictionRequest, IoChange, IoRemark, KeyProblem, Migration, MockHost, NodeKnobChange,
    NodeRemark, Remark, ResourceChange, Staged,
};
use crate::{PodFacts, PodId, Policy, Rejection, Session, Tick};

/// The effects of one call of a policy.
///
/// ```
/// assert_eq!(qosm_sdk::testing::Outcome::default().staged, []);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Changes of cgroup settings, in order.
    pub staged: Vec<Staged>,
    /// Migrations started and stopped, in order.
    pub migrations: Vec<Migration>,
    /// Changes of classes and their members, in order.
    pub classes: Vec<ClassChange>,
    /// Changes of published resources, in order.
    pub resources: Vec<ResourceChange>,
    /// Changes of settings of the node's kernel, in order.
    pub node_knobs: Vec<NodeKnobChange>,
    /// Changes of settings of block devices, in order.
    pub io: Vec<IoChange>,
    /// Evictions requested and withdrawn, in order.
    pub evictions: Vec<EvictionRequest>,
    /// Pods that the policy rejected.
    pub rejections: Vec<Rejection>,
    /// Events for pods' owners.
    pub events: Vec<Event>,
    /// Knob settings that the policy wanted but did not make.
    pub remarks: Vec<Remark>,
    /// Settings of the node's kernel that the policy wanted but did not make.
    pub node_remarks: Vec<NodeRemark>,
    /// Changes to the cost model of devices that the policy wanted but did not make.
    pub io_remarks: Vec<IoRemark>,
    /// Parts of the cluster's configuration that the policy could not use as they are written.
    pub key_problems: Vec<KeyProblem>,
}

/// A policy in any form. An `Err` is the policy's own error, or a trap; the call then has no effect.
///
/// ```
/// use qosm_sdk::mock::Columns;
/// use qosm_sdk::testing::{Case, Driver, Outcome, run_case};
/// use qosm_sdk::{PodFacts, PodId, Tick};
///
/// /// In place of a policy: does nothing, in whatever language.
/// struct Idle;
///
/// impl Driver for Idle {
///     fn configure(&mut self, _: &str) -> Result<Outcome, String> {
///         Ok(Outcome::default())
///     }
///     fn pods(&mut self, _: Vec<PodFacts>, _: Vec<PodId>, _: &Columns) -> Result<Outcome, String> {
///         Ok(Outcome::default())
///     }
///     fn evaluate(&mut self, _: Tick, _: &Columns) -> Result<Outcome, String> {
///         Ok(Outcome::default())
///     }
/// }
///
/// run_case(&Case::parse("{about: nothing happens, ticks: [{}]}")?, &mut Idle)?;
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
pub trait Driver {
    /// Passes the policy-level configuration, a JSON object.
    ///
    /// # Errors
    ///
    /// The policy's error about the configuration.
    fn configure(&mut self, config: &str) -> Result<Outcome, String>;

    /// Passes pods; `columns` are the current columns of the host.
    ///
    /// # Errors
    ///
    /// Why the policy could not take them.
    fn pods(&mut self, upserted: Vec<PodFacts>, removed: Vec<PodId>, columns: &Columns) -> Result<Outcome, String>;

    /// Evaluates the policy over `columns`.
    ///
    /// # Errors
    ///
    /// Why the policy could not decide.
    fn evaluate(&mut self, tick: Tick, columns: &Columns) -> Result<Outcome, String>;
}

/// A driver that runs the policy's own code natively.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
/// # #[derive(Default)]
/// # struct Mine;
/// # impl Policy for Mine {
/// #     type Config = ();
/// #     type PodConfig = NoConfig;
/// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// # }
/// use qosm_sdk::testing::{Case, Native, run_case};
///
/// run_case(&Case::parse("{about: nothing happens, ticks: [{}]}")?, &mut Native::<Mine>::default())?;
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Native<P> {
    session: Session<P>,
    host: MockHost,
}

impl<P: Policy> Native<P> {
    fn end<T>(
        &mut self,
        result: Result<T, String>,
        rejections: impl FnOnce(T) -> Vec<Rejection>,
    ) -> Result<Outcome, String> {
        let (events, remarks) = (std::mem::take(&mut self.host.events), std::mem::take(&mut self.host.remarks));
        match result {
            Ok(value) => {
                let host = &mut self.host;
                Ok(Outcome {
                    migrations: host.take_migrations(),
                    classes: host.take_class_changes(),
                    resources: host.take_resource_changes(),
                    node_knobs: host.take_node_knob_changes(),
                    node_remarks: std::mem::take(&mut host.node_remarks),
                    io: host.take_io_changes(),
                    io_remarks: std::mem::take(&mut host.io_remarks),
                    key_problems: std::mem::take(&mut host.key_problems),
                    evictions: host.take_evictions(),
                    staged: host.commit(),
                    rejections: rejections(value),
                    events,
                    remarks,
                })
            }
            Err(error) => {
                self.host.discard();
                Err(error)
            }
        }
    }
}

impl<P: Policy> Driver for Native<P> {
    fn configure(&mut self, config: &str) -> Result<Outcome, String> {
        let result = self.session.configure(&mut self.host, config);
        self.end(result, |()| Vec::new())
    }

    fn pods(&mut self, upserted: Vec<PodFacts>, removed: Vec<PodId>, columns: &Columns) -> Result<Outcome, String> {
        self.host.columns = columns.clone();
        let result = self.session.pods(&mut self.host, upserted, &removed);
        self.end(result, |rejections| rejections)
    }

    fn evaluate(&mut self, tick: Tick, columns: &Columns) -> Result<Outcome, String> {
        self.host.columns = columns.clone();
        let result = self.session.evaluate(&mut self.host, tick);
        self.end(result, |()| Vec::new())
    }
}
