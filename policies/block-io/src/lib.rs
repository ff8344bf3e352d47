//! Block I/O: limits what batch pods and single pods read from and write to disks, and sets the performance model of disks.
//!
//! The operator configures batch pods and devices (`resource-qos-config` of the cluster ConfigMap), and each pod has its own annotation.
//! The core is pure. Reading order: [`config`] (configuration), [`resolve`] (devices of a block), [`plan`] (which values are set, and which
//! are not), [`remarks`] (how much is reported).
//!
//! ```
//! use block_io::config::{BE, ROOT, Strategy};
//! use block_io::plan::{BATCH, Plan, Source, Value};
//! use block_io::remarks::Remarks;
//! use block_io::resolve::Node;
//! use qosm_sdk::{IoDevice, IoDeviceInfo, IoLimits};
//!
//! let json = r#"{"beClass": {"blkioQOS": {"enable": true, "blocks": [
//!     {"name": "/dev/sdb", "type": "device", "ioCfg": {"writeBPS": 10485760}}]}}}"#;
//! let (strategy, faults) = Strategy::read(json, &Strategy::default());
//! assert!(faults.is_empty());
//! let device = IoDevice { major: 8, minor: 16 };
//! let disk = IoDeviceInfo { device, names: vec!["sdb".into()], partitions: vec![], volume_groups: vec![] };
//! let node = Node { devices: &[disk], volumes: &[] };
//! let be = Source { name: BE, blocks: &strategy.be.unwrap_or_default() };
//! let plan = Plan::new(node, be, Source { name: ROOT, blocks: &[] }, [], Remarks::new());
//! let limits = IoLimits { write_bps: Some(10_485_760), ..IoLimits::NONE };
//! assert_eq!((plan.settings[0].device, plan.settings[0].value), (device, Value::Max(BATCH, limits)));
//! assert_eq!(plan.settings[0].reason, "writeBPS 10485760 of /dev/sdb (beClass.blkioQOS)");
//! ```

pub mod config;
pub mod plan;
mod read;
pub mod remarks;
pub mod resolve;

use qosm_sdk::{Description, Host, Pod, PodId, Pods, Policy, Protocol, Rejection, Target, Tick, Tier};

use crate::config::{ANNOTATION, Block, CONFIG_MAP_KEY, Config, Fault, Kind, Own, Place, PodConfig, Share, Strategy};
use crate::plan::{BATCH, Plan, Setting, Source, Value};
use crate::remarks::{Remarks, Said};
use crate::resolve::{Asker, Node};

qosm_sdk::export!(BlockIo);

/// The knob under which remarks about processes are shown.
const KNOB: &str = "io.max";
/// Label of the QoS class.
const LABEL: &str = "koordinator.sh/qosClass";
/// Why a pod without a class gets no limits.
const NO_LABEL: &str = "limits of single pods are for those with a QoS class: set the label koordinator.sh/qosClass, or remove the annotation";

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct BlockIo {
    /// The blocks of the policy's own configuration.
    own: Own,
    /// The valid blocks of the cluster's key.
    asked: Strategy,
    /// Faults of the cluster's key.
    faults: Vec<(Place, Fault)>,
    /// Generation of the cluster's configuration that `asked` is based on; `None` = read it at the next evaluation.
    config_seen: Option<u64>,
    pods: Pods<Asked>,
}

/// The parsed annotation of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    blocks: Vec<Block<Share>>,
    names_one_volume: bool,
    /// Faults that do not depend on the node's devices.
    refused: Said,
}

impl Policy for BlockIo {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        Description::new(
            "block-io",
            env!("CARGO_PKG_VERSION"),
            "Limits what batch and single pods read from disks and write to them, and configures io.cost.",
        )
        .interval_millis(1_000)
        .config_schema(include_str!("config.schema.json"))
        .protocol(Protocol::new().annotation(ANNOTATION).schema(include_str!("pod.schema.json")))
    }

    fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
        self.own = config.read().map_err(|faults| joined(&faults))?;
        self.config_seen = None;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let read = |Pod { facts, config }: Pod<PodConfig>| {
            let config = config.map(|config| {
                let (blocks, faults) = config.read();
                let mut refused = Said::default();
                let rejection = match faults.first() {
                    _ if facts.declared_qos.is_none() => {
                        refused.add(format_args!("{ANNOTATION}: {NO_LABEL}"));
                        Some((LABEL.to_owned(), NO_LABEL.to_owned()))
                    }
                    Some(first) => {
                        faults.iter().for_each(|fault| refused.add(format_args!("{ANNOTATION}: {fault}")));
                        // The event names the field before the message.
                        let message = match faults.as_slice() {
                            [Fault { value, way_out, .. }] => format!("it is {value}; {way_out}"),
                            _ => joined(&faults),
                        };
                        Some((first.field.clone(), message))
                    }
                    None => None,
                };
                rejections.extend(rejection.map(|(field, message)| Rejection { pod: facts.id, field, message }));
                Asked { blocks, names_one_volume: config.names_one_volume(), refused }
            });
            Pod { facts, config }
        };
        let upserted = upserted.into_iter().map(read).collect();
        self.pods.update(upserted, removed);
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        self.read_config(host);
        for (_, Fault { field, value, way_out, meanwhile }) in &self.faults {
            host.problem(CONFIG_MAP_KEY, field, &format!("it is {value}; {way_out}. {meanwhile}"));
        }
        let refused = self.refused();
        for (target, why) in self.set(host, refused) {
            let why = why.to_string();
            match target {
                Some(target) => host.remark(target, KNOB, &why),
                None => host.remark_io_cost(&why),
            }
        }
        Ok(())
    }
}

impl BlockIo {
    fn read_config<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.config_generation());
        if self.config_seen == generation {
            return;
        }
        self.config_seen = generation;
        let (asked, faults) = Strategy::read(&host.config_strategy(CONFIG_MAP_KEY), &self.asked);
        self.asked = asked;
        self.faults = faults;
    }

    /// Remarks about faults that do not depend on the node's devices.
    fn refused(&self) -> Remarks {
        let mut remarks = Remarks::new();
        for (place, fault) in &self.faults {
            let target = match place {
                Place::Kubepods => Some(Target::Tier(Tier::Guaranteed)),
                Place::Burstable => Some(Target::Tier(Tier::Burstable)),
                Place::BestEffort => Some(BATCH),
                Place::Node => None,
            };
            remarks.entry(target).or_default().add(format_args!("{CONFIG_MAP_KEY}: {fault}"));
        }
        for pod in self.pods.iter().filter(|pod| pod.active) {
            let refused = pod.config.as_ref().map(|asked| &asked.refused);
            if let Some(refused) = refused.filter(|refused| !refused.is_empty()) {
                remarks.insert(Some(Target::Pod(pod.id)), refused.clone());
            }
        }
        remarks
    }

    /// Sets what is configured and adds remarks. Settings that are not declared are released.
    fn set<H: Host>(&self, host: &mut H, remarks: Remarks) -> Remarks {
        let be = match &self.asked.be {
            Some(blocks) => Source { name: config::BE, blocks },
            None => Source { name: config::OWN_BE, blocks: &self.own.be },
        };
        let root = match &self.asked.root {
            Some(blocks) => Source { name: config::ROOT, blocks },
            None => Source { name: config::OWN_ROOT, blocks: &self.own.root },
        };
        let pods: Vec<_> = self
            .pods
            .iter()
            .filter(|pod| pod.active && pod.declared_qos.is_some())
            .filter_map(|pod| {
                let Asked { blocks, names_one_volume, .. } = pod.config.as_ref()?;
                let asker = Asker { pod: pod.id, names_one_volume: *names_one_volume };
                Some((asker, Source { name: ANNOTATION, blocks }))
            })
            .filter(|(_, source)| !source.blocks.is_empty())
            .collect();
        if be.blocks.is_empty() && root.blocks.is_empty() && pods.is_empty() {
            return remarks;
        }
        let devices = host.block_devices();
        let asks_for_volumes = pods.iter().any(|(_, source)| source.blocks.iter().any(|b| b.kind == Kind::PodVolume));
        let volumes = if asks_for_volumes { host.pod_volumes() } else { Vec::new() };
        let plan = Plan::new(Node { devices: &devices, volumes: &volumes }, be, root, pods, remarks);
        for Setting { device, value, reason } in plan.settings {
            match value {
                Value::Max(target, limits) => host.set_io_max(target, device, &limits, &reason),
                Value::Weight(target, weight) => host.set_io_weight(target, device, weight, &reason),
                Value::Qos(qos) => host.set_io_cost_qos(device, &qos, &reason),
                Value::Model(model) => host.set_io_cost_model(device, &model, &reason),
            }
        }
        plan.remarks
    }
}

fn joined(faults: &[Fault]) -> String {
    let said: Vec<_> = faults.iter().map(ToString::to_string).collect();
    said.join("; ")
}

#[cfg(test)]
mod tests;
