//! Computes which values are set on which targets, and which are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};

use qosm_sdk::{IoCostModel, IoCostQos, IoDevice, IoLatency, IoLimits, Target, Tier};

use crate::config::{Block, Cost, Share};
use crate::remarks::Remarks;
use crate::resolve::{Asker, Found, Node};

/// The tier of batch pods.
pub const BATCH: Target = Target::Tier(Tier::BestEffort);

/// A list of blocks, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a, T> {
    /// The field or annotation of the list.
    pub name: &'a str,
    /// Its blocks.
    pub blocks: &'a [Block<T>],
}

/// A value for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Limits of a target on the device.
    Max(Target, IoLimits),
    /// Weight of a target on the device.
    Weight(Target, u32),
    /// The latency targets for which the kernel throttles cgroups.
    Qos(IoCostQos),
    /// The performance model of the device.
    Model(IoCostModel),
}

/// A value to set, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The device.
    pub device: IoDevice,
    /// The value.
    pub value: Value,
    /// The reason.
    pub reason: String,
}

/// The complete plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The values to set.
    pub settings: Vec<Setting>,
    /// What is not set, and why.
    pub remarks: Remarks,
}

/// A request for a device that may come from several blocks.
trait Merge: Copy + Eq + Debug {
    /// Combines two requests: of each number, the stricter one.
    fn stricter(self, other: Self) -> Self;
}

/// The smaller of two bounds; `None` = no bound.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Merge for Share {
    fn stricter(self, other: Self) -> Self {
        let (one, two) = (self.limits, other.limits);
        let limits = IoLimits {
            read_bps: least(one.read_bps, two.read_bps),
            write_bps: least(one.write_bps, two.write_bps),
            read_iops: least(one.read_iops, two.read_iops),
            write_iops: least(one.write_iops, two.write_iops),
        };
        Self { limits, weight: least(self.weight, other.weight) }
    }
}

impl Merge for Cost {
    fn stricter(self, other: Self) -> Self {
        let (one, two) = (self.latency, other.latency);
        let latency = IoLatency {
            read_permyriad: one.read_permyriad.max(two.read_permyriad),
            read_latency_usec: one.read_latency_usec.min(two.read_latency_usec),
            write_permyriad: one.write_permyriad.max(two.write_permyriad),
            write_latency_usec: one.write_latency_usec.min(two.write_latency_usec),
            ..one
        };
        let model = match (self.model, other.model) {
            (Some(one), Some(two)) => Some(IoCostModel {
                read_bps: one.read_bps.min(two.read_bps),
                read_seq_iops: one.read_seq_iops.min(two.read_seq_iops),
                read_rand_iops: one.read_rand_iops.min(two.read_rand_iops),
                write_bps: one.write_bps.min(two.write_bps),
                write_seq_iops: one.write_seq_iops.min(two.write_seq_iops),
                write_rand_iops: one.write_rand_iops.min(two.write_rand_iops),
            }),
            (one, two) => one.or(two),
        };
        Self { latency, model }
    }
}

impl Plan {
    /// Computes the values for the node's devices, batch pods and single pods. Settings that cannot be applied are added to `remarks`.
    pub fn new<'a>(
        node: Node<'_>,
        be: Source<'_, Share>,
        root: Source<'_, Cost>,
        pods: impl IntoIterator<Item = (Asker, Source<'a, Share>)>,
        remarks: Remarks,
    ) -> Self {
        let mut plan = Self { settings: Vec::new(), remarks };
        // Devices first, since the kernel refuses weights before.
        let counted = plan.costs(node, root);
        plan.shares(node, BATCH, None, be, &counted);
        for (asker, source) in pods {
            plan.shares(node, Target::Pod(asker.pod), Some(asker), source, &counted);
        }
        plan
    }

    fn remark(&mut self, target: Option<Target>, why: impl Display) {
        self.remarks.entry(target).or_default().add(why);
    }

    /// The devices of a list, each once, with the combined requests of its blocks.
    fn devices<T: Merge>(
        &mut self,
        node: Node<'_>,
        target: Option<Target>,
        asker: Option<Asker>,
        source: Source<'_, T>,
        asks: impl Fn(&T) -> bool,
    ) -> BTreeMap<IoDevice, (T, Found)> {
        let mut wanted: BTreeMap<IoDevice, (T, Found)> = BTreeMap::new();
        for block in source.blocks.iter().filter(|block| asks(&block.asks)) {
            let found = match node.resolve(block, asker) {
                Ok(found) => found,
                Err(why) => {
                    self.remark(target, format_args!("{}: {why}", source.name));
                    continue;
                }
            };
            for found in found {
                let Some((before, known)) = wanted.get_mut(&found.device) else {
                    wanted.insert(found.device, (block.asks, found));
                    continue;
                };
                if *before != block.asks {
                    let name = source.name;
                    self.remark(
                        target,
                        format_args!("{name}: {known} and {found} are one device: of each number the stricter counts"),
                    );
                }
                *before = before.stricter(block.asks);
            }
        }
        wanted
    }

    /// Adds the values of a target. A weight is set only for devices whose cost the kernel counts, since it refuses others.
    fn shares(
        &mut self,
        node: Node<'_>,
        target: Target,
        asker: Option<Asker>,
        source: Source<'_, Share>,
        counted: &BTreeSet<IoDevice>,
    ) {
        let wanted = self.devices(node, Some(target), asker, source, |share| *share != Share::NONE);
        for (device, (Share { limits, weight }, what)) in wanted {
            let fields = limits_said(limits);
            if !fields.is_empty() {
                let reason = format!("{} of {what} ({})", fields.join(", "), source.name);
                self.settings.push(Setting { device, value: Value::Max(target, limits), reason });
            }
            let Some(weight) = weight else { continue };
            if counted.contains(&device) {
                let reason = format!("ioWeightPercent {weight} of {what} ({})", source.name);
                self.settings.push(Setting { device, value: Value::Weight(target, weight), reason });
                continue;
            }
            let (name, path) = (source.name, what.path);
            self.remark(
                Some(target),
                format_args!(
                    "{name}: ioWeightPercent {weight} of {path} is not set: it has an effect only where the cost of the device counts; \
                     name it in cgroupRoot.blkioQOS"
                ),
            );
        }
    }

    /// Adds the values of the node's devices. Returns the devices whose cost the kernel counts.
    fn costs(&mut self, node: Node<'_>, source: Source<'_, Cost>) -> BTreeSet<IoDevice> {
        let wanted = self.devices(node, None, None, source, |_| true);
        let counted = wanted.keys().copied().collect();
        for (device, (Cost { latency, model }, what)) in wanted {
            let IoLatency { read_permyriad, read_latency_usec, write_permyriad, write_latency_usec, .. } = latency;
            let reason = format!(
                "readLatency {read_latency_usec} at {} %, writeLatency {write_latency_usec} at {} % of {what} ({})",
                read_permyriad / 100,
                write_permyriad / 100,
                source.name
            );
            let qos = IoCostQos { enabled: true, latency: Some(latency) };
            self.settings.push(Setting { device, value: Value::Qos(qos), reason });
            if let Some(model) = model {
                let reason = format!("user model of {what} ({})", source.name);
                self.settings.push(Setting { device, value: Value::Model(model), reason });
            }
        }
        counted
    }
}

fn limits_said(limits: IoLimits) -> Vec<String> {
    let IoLimits { read_bps, write_bps, read_iops, write_iops } = limits;
    let fields = [("readBPS", read_bps), ("writeBPS", write_bps), ("readIOPS", read_iops), ("writeIOPS", write_iops)];
    fields.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit?))).collect()
}

#[cfg(test)]
mod tests;
