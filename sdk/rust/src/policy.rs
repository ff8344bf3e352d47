//! What a policy's author writes.

use serde::de::DeserializeOwned;

use crate::{Description, Host, Pod, PodId, Rejection, Tick};

/// A policy. It decides from its configuration, its pods, its columns and its own memory alone: there is no clock, no
/// randomness and no file, so what it saw can be replayed bit for bit.
///
/// The calls come in this order: [`configure`](Self::configure) once, [`pods`](Self::pods) with all pods,
/// [`evaluate`](Self::evaluate); then each of them whenever there is something new. Settings that are staged in a call take
/// effect when it returns normally, all together; after an error or a panic none of them does.
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
    /// Policy-level configuration: what the operator set for the policy as a whole. `()` where there is none.
    type Config: DeserializeOwned + Default;

    /// What an operator or a pod's owner asked for one pod, merged from all layers. [`NoConfig`](crate::NoConfig) where the
    /// policy takes nothing from pods.
    type PodConfig: DeserializeOwned;

    /// Who the policy is and how it is configured. Nothing is granted yet, so there is no host.
    fn describe() -> Description;

    /// Takes the policy-level configuration. Keeps nothing by default.
    ///
    /// # Errors
    ///
    /// What is wrong with it, naming the field and the way out. The host keeps the configuration before it.
    fn configure<H: Host>(&mut self, host: &mut H, config: Self::Config) -> Result<(), String> {
        let _ = (host, config);
        Ok(())
    }

    /// Takes pods that are new or changed, and the ids of those that are gone. A pod that was given before is replaced.
    ///
    /// Returns the pods that cannot be acted on as configured. One whose configuration does not fit
    /// [`PodConfig`](Self::PodConfig) has been reported already and arrives without configuration.
    fn pods<H: Host>(&mut self, host: &mut H, upserted: Vec<Pod<Self::PodConfig>>, removed: &[PodId])
    -> Vec<Rejection>;

    /// Decides: sets everything that the policy wants now, whether or not it is held already. The host is called only for what differs
    /// from the evaluation before, in value or reason, and what this evaluation does not set is released; [`Declare`](crate::Declare)
    /// says what stays as it is.
    ///
    /// # Errors
    ///
    /// Why no decision was possible; what was staged meanwhile is dropped.
    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String>;
}
