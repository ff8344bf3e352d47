//! Who plays the policy.

use crate::mock::{
    ClassChange, Columns, Event, EvictionRequest, IoChange, IoRemark, Migration, MockHost, NodeKnobChange, NodeRemark,
    Remark, ResourceChange, Staged,
};
use crate::{PodFacts, PodId, Policy, Rejection, Session, Tick};

/// What a call brought about.
///
/// ```
/// assert_eq!(qosm_sdk::testing::Outcome::default().staged, []);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Settings, in order.
    pub staged: Vec<Staged>,
    /// Migrations started and stopped, in order.
    pub migrations: Vec<Migration>,
    /// Changes of classes and of who is in them, in order.
    pub classes: Vec<ClassChange>,
    /// Changes of what is published, in order.
    pub resources: Vec<ResourceChange>,
    /// Changes of settings of the node's kernel, in order.
    pub node_knobs: Vec<NodeKnobChange>,
    /// Changes of settings of block devices, in order.
    pub io: Vec<IoChange>,
    /// Evictions asked for and taken back, in order.
    pub evictions: Vec<EvictionRequest>,
    /// Pods refused.
    pub rejections: Vec<Rejection>,
    /// Events for pods' owners.
    pub events: Vec<Event>,
    /// What was wanted and is not done.
    pub remarks: Vec<Remark>,
    /// The same of settings of the node's kernel.
    pub node_remarks: Vec<NodeRemark>,
    /// The same of the cost model of devices.
    pub io_remarks: Vec<IoRemark>,
}

/// A policy in whatever form. An `Err` is the policy's own answer, or a trap; nothing of that call counts.
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
    /// Hands over the policy-level configuration, a JSON object.
    ///
    /// # Errors
    ///
    /// What the policy says is wrong with it.
    fn configure(&mut self, config: &str) -> Result<Outcome, String>;

    /// Hands over pods; `columns` is what can be measured meanwhile.
    ///
    /// # Errors
    ///
    /// Why the policy could not take them.
    fn pods(&mut self, upserted: Vec<PodFacts>, removed: Vec<PodId>, columns: &Columns) -> Result<Outcome, String>;

    /// Has it decide over `columns`.
    ///
    /// # Errors
    ///
    /// Why the policy could not.
    fn evaluate(&mut self, tick: Tick, columns: &Columns) -> Result<Outcome, String>;
}

/// The policy's own code, natively.
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
