//! The trait that a policy implements.

use serde::de::DeserializeOwned;

use crate::{Description, Host, Pod, PodId, Rejection, Tick};

/// A policy. It decides only from its configuration, its pods, its columns and its own state. It has no clock, no random numbers and no
/// files, so a recorded run can be replayed bit for bit.
///
/// The host calls [`configure`](Self::configure) once, [`pods`](Self::pods) with all pods, and [`evaluate`](Self::evaluate), in this order,
/// and later the first two when there is something new, always followed by `evaluate`. What these calls set takes effect together when
/// `evaluate` returns normally. After an error or a panic, none of it takes effect, and the host starts a new instance after a pause.
///
/// ```
/// use qosm_sdk::{CpuBandwidth, Description, Host, Level, NoConfig, Pod, PodId, Pods, Policy, Rejection, Session, Target, Tick, mock};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// /// Lets every container save up what its pod is not using.
/// #[derive(Default)]
/// struct Saver {
///     config: Config,
///     pods: Pods<NoConfig>,
/// }
///
/// #[derive(Default, Deserialize, JsonSchema)]
/// #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
/// struct Config {
///     /// Size of the burst.
///     burst_usec: u64,
/// }
///
/// impl Policy for Saver {
///     type Config = Config;
///     type PodConfig = NoConfig;
///
///     fn describe() -> Description {
///         Description::new("saver", "0.1.0", "Lets containers save up CPU time.").config::<Config>()
///     }
///
///     fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
///         host.log(Level::Info, "configured");
///         self.config = config;
///         Ok(())
///     }
///
///     fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
///         self.pods.update(upserted, removed);
///         Vec::new()
///     }
///
///     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
///         for container in self.pods.iter().flat_map(|pod| &pod.containers) {
///             host.set_burst(Target::Container(container.id), self.config.burst_usec, "for all");
///         }
///         Ok(())
///     }
/// }
///
/// let mut host = mock::MockHost::default();
/// let mut saver = Session::<Saver>::default();
/// saver.configure(&mut host, r#"{"burstUsec": 7000}"#)?;
/// let web = qosm_sdk::PodFacts { containers: vec![mock::container(7, "app")], ..mock::pod(1, "default", "web") };
/// saver.pods(&mut host, vec![web], &[])?;
/// saver.evaluate(&mut host, mock::tick(1_000))?;
/// host.assert_held(Target::Container(7), mock::CPU_BURST, 7_000);
/// # Ok::<(), String>(())
/// ```
pub trait Policy: Default + 'static {
    /// Policy-level configuration, which the operator sets for the policy as a whole. `()` if the policy takes none.
    type Config: DeserializeOwned + Default;

    /// Configuration of one pod, merged from all layers of operators and the pod's owner. [`NoConfig`](crate::NoConfig) if the policy takes
    /// no configuration from pods.
    type PodConfig: DeserializeOwned;

    /// Describes the policy and its configuration. The host has granted nothing at this point, so there is no `host` argument.
    fn describe() -> Description;

    /// Takes the policy-level configuration. The default implementation ignores it.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration: the field, and how to fix it. What the policy holds stays; a new instance gets the same
    /// configuration, and no earlier one.
    fn configure<H: Host>(&mut self, host: &mut H, config: Self::Config) -> Result<(), String> {
        let _ = (host, config);
        Ok(())
    }

    /// Takes new or changed pods, and the ids of removed ones. A pod with an id that was handed over before replaces the earlier one.
    ///
    /// Returns the pods whose configuration the policy cannot apply. The SDK has already rejected pods whose configuration does not match
    /// [`PodConfig`](Self::PodConfig) and passes them without one.
    fn pods<H: Host>(&mut self, host: &mut H, upserted: Vec<Pod<Self::PodConfig>>, removed: &[PodId])
    -> Vec<Rejection>;

    /// Decides: sets everything that the policy wants now, even if it is already held. The session calls the host only for settings whose
    /// value or reason differs from the previous evaluation, and releases those that this evaluation does not set;
    /// [`Declare`](crate::Declare) keeps settings as they are.
    ///
    /// # Errors
    ///
    /// Why no decision was possible; the host drops everything that this call and those before it since the previous evaluation staged.
    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String>;
}
