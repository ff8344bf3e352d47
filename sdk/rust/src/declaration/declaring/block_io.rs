//! Block device settings; only differences are sent.

use std::sync::Arc;

use super::super::block_io::ReleaseIo;
use super::Declaring;
use crate::block_io::{IoKnob, IoValue};
use crate::{BlockIo, Host, IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLimits, IoVolume, Target};

impl<H: Host + 'static> Declaring<'_, H> {
    fn set_io(
        &mut self,
        target: Option<Target>,
        device: IoDevice,
        value: IoValue,
        reason: &str,
        release: ReleaseIo<H>,
        send: impl FnOnce(&mut H),
    ) {
        if self.declaration.set_io(target, device, value, reason) {
            self.declaration.releases.io.entry(value.knob()).or_insert_with(|| Arc::new(release));
            send(self.host);
        }
    }
}

impl<H: Host + 'static> BlockIo for Declaring<'_, H> {
    fn block_devices(&mut self) -> Vec<IoDeviceInfo> {
        self.host.block_devices()
    }

    fn pod_volumes(&mut self) -> Vec<IoVolume> {
        self.host.pod_volumes()
    }

    fn set_io_max(&mut self, target: Target, device: IoDevice, limits: &IoLimits, reason: &str) {
        let release: ReleaseIo<H> = |host, target, device| {
            if let Some(target) = target {
                host.release_io_max(target, device);
            }
        };
        let send = |host: &mut H| host.set_io_max(target, device, limits, reason);
        self.set_io(Some(target), device, IoValue::Limits(*limits), reason, release, send);
    }

    fn release_io_max(&mut self, target: Target, device: IoDevice) {
        self.declaration.unset_io((Some(target), IoKnob::Max, device));
    }

    fn set_io_weight(&mut self, target: Target, device: IoDevice, weight: u32, reason: &str) {
        let release: ReleaseIo<H> = |host, target, device| {
            if let Some(target) = target {
                host.release_io_weight(target, device);
            }
        };
        let send = |host: &mut H| host.set_io_weight(target, device, weight, reason);
        self.set_io(Some(target), device, IoValue::Weight(weight), reason, release, send);
    }

    fn release_io_weight(&mut self, target: Target, device: IoDevice) {
        self.declaration.unset_io((Some(target), IoKnob::Weight, device));
    }

    fn set_io_cost_qos(&mut self, device: IoDevice, qos: &IoCostQos, reason: &str) {
        let release: ReleaseIo<H> = |host, _, device| host.release_io_cost_qos(device);
        let send = |host: &mut H| host.set_io_cost_qos(device, qos, reason);
        self.set_io(None, device, IoValue::CostQos(*qos), reason, release, send);
    }

    fn release_io_cost_qos(&mut self, device: IoDevice) {
        self.declaration.unset_io((None, IoKnob::CostQos, device));
    }

    fn set_io_cost_model(&mut self, device: IoDevice, model: &IoCostModel, reason: &str) {
        let release: ReleaseIo<H> = |host, _, device| host.release_io_cost_model(device);
        let send = |host: &mut H| host.set_io_cost_model(device, model, reason);
        self.set_io(None, device, IoValue::CostModel(*model), reason, release, send);
    }

    fn release_io_cost_model(&mut self, device: IoDevice) {
        self.declaration.unset_io((None, IoKnob::CostModel, device));
    }

    fn remark_io_cost(&mut self, reason: &str) {
        self.host.remark_io_cost(reason);
    }
}
