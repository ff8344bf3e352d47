//! Host functions of the interface `block-io`.

use qosm_model::block_io::DeviceNumber;
use qosm_model::knob::{Knob, Target};

use super::Host;
use crate::bindings::qosm::policy::{block_io, types};
use crate::convert;
use crate::interface::Interface;

const MAX: Knob = Knob::IoMax(DeviceNumber::NONE);
const WEIGHT: Knob = Knob::IoWeight(DeviceNumber::NONE);
const QOS: Knob = Knob::IoCostQos(DeviceNumber::NONE);
const MODEL: Knob = Knob::IoCostModel(DeviceNumber::NONE);

impl block_io::Host for Host {
    fn read_devices(&mut self) -> wasmtime::Result<Vec<block_io::DeviceInfo>> {
        self.transaction(Interface::BlockIo)?;
        let column = self.columns.block_devices.iter().flat_map(|column| column.devices.iter());
        Ok(column.map(convert::block_io::device).collect())
    }

    fn read_volumes(&mut self) -> wasmtime::Result<Vec<block_io::Volume>> {
        self.transaction(Interface::BlockIo)?;
        let column = self.columns.block_devices.iter().flat_map(|column| column.volumes.iter());
        let known = column.filter(|volume| self.transaction.require(Target::Pod(volume.pod)).is_ok());
        Ok(known.map(convert::block_io::volume).collect())
    }

    fn set_max(
        &mut self,
        target: types::Target,
        device: block_io::Device,
        limits: block_io::Limits,
        reason: String,
    ) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::BlockIo, target)?;
        let knob = convert::block_io::of(MAX, device)?;
        let value = convert::block_io::limits(knob, limits)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, knob, value, &reason)?)
    }

    fn release_max(&mut self, target: types::Target, device: block_io::Device) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::BlockIo, target)?;
        Ok(transaction.release(target, convert::block_io::of(MAX, device)?)?)
    }

    fn set_weight(
        &mut self,
        target: types::Target,
        device: block_io::Device,
        weight: u32,
        reason: String,
    ) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::BlockIo, target)?;
        let knob = convert::block_io::of(WEIGHT, device)?;
        let value = convert::block_io::weight(knob, weight)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, knob, value, &reason)?)
    }

    fn release_weight(&mut self, target: types::Target, device: block_io::Device) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::BlockIo, target)?;
        Ok(transaction.release(target, convert::block_io::of(WEIGHT, device)?)?)
    }

    fn set_cost_qos(
        &mut self,
        device: block_io::Device,
        qos: block_io::CostQos,
        reason: String,
    ) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::BlockIo)?;
        let knob = convert::block_io::of(QOS, device)?;
        let value = convert::block_io::qos(knob, qos)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(Target::Node, knob, value, &reason)?)
    }

    fn release_cost_qos(&mut self, device: block_io::Device) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::BlockIo)?;
        Ok(transaction.release(Target::Node, convert::block_io::of(QOS, device)?)?)
    }

    fn set_cost_model(
        &mut self,
        device: block_io::Device,
        model: block_io::CostModel,
        reason: String,
    ) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::BlockIo)?;
        let knob = convert::block_io::of(MODEL, device)?;
        let value = convert::block_io::model(knob, model)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(Target::Node, knob, value, &reason)?)
    }

    fn release_cost_model(&mut self, device: block_io::Device) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::BlockIo)?;
        Ok(transaction.release(Target::Node, convert::block_io::of(MODEL, device)?)?)
    }

    fn remark_cost(&mut self, reason: String) -> wasmtime::Result<()> {
        Ok(self.transaction(Interface::BlockIo)?.remark(Target::Node, QOS.kind_name(), reason)?)
    }
}
