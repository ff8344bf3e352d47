//! Node-wide knobs: one file each below `/proc` or `/sys`, or at the root of the cgroups. There are few, so the host
//! opens, reads and closes each file.

use std::io;

use qosm_model::knob::{Knob, Target, Value};
use rustix::io::Errno;

use crate::backend::{Access, Area, Backend as _};
use crate::error::{self, HostError, errno_name};
use crate::knob_table::{self, KnobRow, Place};
use crate::knobs::Support;
use crate::mounts::CgroupVersion;
use crate::{Host, parse};

/// The path of the node as a target, in place of a cgroup's path. No cgroup has it: a target may not be the root of a hierarchy.
pub const NODE_PATH: &str = "/";

/// The identity of the node as a target. It never changes, since records about the node do not outlive a reboot.
pub(crate) const NODE_IDENTITY: u64 = 1;

/// Maximum of `vm.min_free_kbytes`, in percent of memory. Far above it, the kernel kills processes although memory is free.
const MOST_FREE_PERCENT: u64 = 5;

/// The file of a node-wide knob; `None` for files of cgroups, including their root.
pub(crate) fn file_of(row: &KnobRow) -> Option<(Area, &'static str)> {
    let area = match row.place {
        Place::Cgroup(_) | Place::CgroupRoot(_) => return None,
        Place::Proc => Area::Proc,
        Place::Sys => Area::Sys,
    };
    Some((area, row.file(CgroupVersion::V2)))
}

fn read_only(path: String) -> HostError {
    let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned();
    HostError::NodeReadOnly { path, folder }
}

impl Host {
    /// The file of a node-wide knob; `None` for a cgroup's knob, or if the controller is not mounted.
    pub(crate) fn node_file(&self, row: &KnobRow) -> Option<(Area, &'static str)> {
        match row.place {
            Place::CgroupRoot(controller) => {
                Some((Area::Cgroup(self.hierarchies.of(controller)?), row.file(CgroupVersion::V2)))
            }
            _ => file_of(row),
        }
    }

    /// The absolute path of a node-wide knob's file.
    pub(crate) fn node_path(&self, row: &KnobRow) -> Option<String> {
        let (area, file) = self.node_file(row)?;
        Some(match area {
            Area::Cgroup(tree) => self.directory_path(tree, file),
            Area::Proc => format!("/proc/{file}"),
            _ => format!("/sys/{file}"),
        })
    }

    /// The value of a node-wide knob.
    pub(crate) fn read_node_knob(&self, knob: Knob) -> Result<Value, HostError> {
        let row = knob_table::row(knob);
        let path = self.node_path(row).unwrap_or_else(|| row.v2.to_owned());
        let Some((area, file)) = self.node_file(row) else {
            return Err(HostError::Unsupported { why: row.lacking(&format!("there is no {path}")), what: path });
        };
        let text = match self.backend.read_once(area, file) {
            Ok(text) => text,
            Err(source) if error::is_absent(&source) => {
                return Err(HostError::Unsupported { why: row.lacking(&format!("there is no {path}")), what: path });
            }
            Err(source) => return Err(HostError::Read { path, source }),
        };
        parse::value_of(knob, row, CgroupVersion::V2, self.page(), &text)
            .ok_or_else(|| crate::signals::garbled_node_file(&path, knob.kind_name(), &text))
    }

    /// Values of the node-wide knobs without a device; knobs that this kernel lacks are left out.
    pub fn node_knobs(&self) -> Vec<(Knob, Value)> {
        let read = |knob| Some((knob, self.read_node_knob(knob).ok()?));
        Knob::OF_NODE.into_iter().filter_map(read).collect()
    }

    /// Whether the node has a node-wide knob, and it is writable. Writes nothing.
    pub(crate) fn node_knob_support(&self, row: &KnobRow) -> Support {
        let unavailable = |why: String| Support::Unavailable { why };
        match self.read_node_knob(row.knob) {
            Err(HostError::Unsupported { why, .. }) => return unavailable(why),
            Err(other) => return unavailable(other.to_string()),
            Ok(_) => {}
        }
        let Some((area, file)) = self.node_file(row) else { return unavailable("it is a cgroup's".to_owned()) };
        match self.backend.handle(area, file, Access::ReadWrite) {
            Ok(_) => Support::Native,
            // The simulation does not support opening files.
            Err(refusal) if refusal.kind() == io::ErrorKind::Unsupported => Support::Native,
            Err(refusal) if error::is(&refusal, Errno::ROFS) => {
                unavailable(read_only(self.node_path(row).unwrap_or_default()).to_string())
            }
            Err(refusal) => unavailable(format!(
                "{} may not be written: {}",
                self.node_path(row).unwrap_or_default(),
                errno_name(&refusal)
            )),
        }
    }

    /// The error for a failed write of a node-wide knob.
    pub(crate) fn refused_node_knob(&mut self, knob: Knob, value: Value, source: io::Error) -> HostError {
        let row = knob_table::row(knob);
        let path = self.node_path(row).unwrap_or_else(|| row.v2.to_owned());
        if error::is(&source, Errno::ROFS) {
            return read_only(path);
        }
        if error::is_absent(&source) {
            return HostError::Unsupported { why: row.lacking(&format!("there is no {path}")), what: path };
        }
        let errno = errno_name(&source);
        self.write_backoff.refused(Target::Node, knob, value, errno);
        let value = row.encode(CgroupVersion::V2, value);
        HostError::Refused { target: Target::Node, knob, value, path, errno, source }
    }

    /// The maximum of a node-wide knob that depends on the size of the node, and the reason; `None` if only its range limits it.
    ///
    /// # Errors
    ///
    /// [`HostError::Unsupported`] if the size of the node is unknown.
    pub(crate) fn node_knob_most(&self, knob: Knob) -> Result<Option<(i64, String)>, HostError> {
        if knob != Knob::MinFreeKbytes {
            return Ok(None);
        }
        let kib = self.node.memory.0 / 1024;
        if kib == 0 {
            let why = format!(
                "it is at most {MOST_FREE_PERCENT} % of memory, and /proc/meminfo does not say how much that is"
            );
            return Err(HostError::Unsupported {
                what: self.node_path(knob_table::row(knob)).unwrap_or_default(),
                why,
            });
        }
        let most = i64::try_from(kib.saturating_mul(MOST_FREE_PERCENT) / 100).unwrap_or(i64::MAX);
        let why = format!(
            "{knob} is at most {MOST_FREE_PERCENT} % of the node's {kib} KiB of memory, {most}: beyond it processes would be killed for \
             want of memory that is free"
        );
        Ok(Some((most.max(*knob_table::row(knob).range.start()), why)))
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::unit::Bytes;

    use super::*;
    use crate::simulated::{Kernel, Spec};
    use crate::{Executed, Wanted};

    fn host(kernel: Kernel) -> Host {
        Host::simulated(&Spec { kernel, memory: Bytes(64 << 30), ..Spec::default() }).unwrap()
    }

    fn wanted(knob: Knob, value: i64) -> Wanted {
        Wanted { target: Target::Node, knob, value: Value::Number(value) }
    }

    #[test]
    fn a_setting_of_the_node_is_written_and_read_back_and_nothing_else_is() {
        let mut host = host(Kernel::Mainline);
        host.simulated_mut().unwrap().record_writes();
        // The value that the kernel computes for the simulated amount of memory.
        assert_eq!(host.read(Target::Node, Knob::MinFreeKbytes).unwrap(), Value::Number(32_768));
        let plan = host.plan(&[wanted(Knob::MinFreeKbytes, 671_088), wanted(Knob::WatermarkScaleFactor, 150)]);
        assert!(plan.refused.is_empty() && plan.clamped.is_empty(), "{plan:?}");
        for step in &plan.steps {
            assert_eq!(host.execute(step).unwrap(), Executed::Done(step.to));
        }
        let writes = host.simulated_mut().unwrap().take_writes();
        let written: Vec<_> =
            writes.iter().map(|write| (write.path.as_str(), write.file.as_str(), &*write.text)).collect();
        assert_eq!(
            written,
            [(NODE_PATH, "sys/vm/min_free_kbytes", "671088"), (NODE_PATH, "sys/vm/watermark_scale_factor", "150")]
        );
        let file = host.file(Target::Node, Knob::MinFreeKbytes).unwrap();
        assert_eq!(file.path, "/proc/sys/vm/min_free_kbytes");
    }

    #[test]
    fn what_is_kept_free_is_at_most_a_twentieth_of_memory() {
        let mut host = host(Kernel::Mainline);
        let most = (64 << 20) / 20;
        let plan = host.plan(&[wanted(Knob::MinFreeKbytes, 10_485_760)]);
        assert_eq!(plan.steps[0].to, Value::Number(most));
        let [clamp] = plan.clamped.as_slice() else { panic!("{plan:?}") };
        assert!(clamp.why.contains("at most 5 % of the node's 67108864 KiB"), "{}", clamp.why);
        // A baseline is restored, whatever its size.
        let baseline = [(Target::Node, Knob::MinFreeKbytes)].into();
        let plan = host.plan_with_baselines(&[wanted(Knob::MinFreeKbytes, 10_485_760)], &baseline);
        assert_eq!(plan.steps[0].to, Value::Number(10_485_760));
    }

    #[test]
    fn who_asks_for_more_is_not_given_less_than_there_is() {
        let most = (64 << 20) / 20;
        for (now, asked, given) in [
            (most + 2, most + 3, most + 2),
            (most + 2, most + 1, most + 1),
            (most - 1, most + 3, most),
            (most + 2, most - 1, most - 1),
        ] {
            let mut host = host(Kernel::Mainline);
            host.simulated_mut().unwrap().set_node_knob(Knob::MinFreeKbytes, Some(now));
            let plan = host.plan(&[wanted(Knob::MinFreeKbytes, asked)]);
            let step = plan.steps.first().map(|step| step.to);
            assert_eq!(step, (given != now).then_some(Value::Number(given)), "{now} {asked}: {plan:?}");
        }
    }

    #[test]
    fn of_a_node_whose_size_is_not_known_nothing_is_kept_free() {
        let mut host = host(Kernel::Mainline);
        host.node.memory = Bytes(0);
        let plan = host.plan(&[wanted(Knob::MinFreeKbytes, 671_088), wanted(Knob::WatermarkScaleFactor, 150)]);
        assert_eq!(plan.steps.len(), 1, "{plan:?}");
        assert!(plan.refused[0].2.to_string().contains("/proc/meminfo does not say"), "{plan:?}");
    }

    #[test]
    fn what_a_kernel_lacks_is_named_with_the_kernel_that_has_it() {
        for (kernel, has) in [(Kernel::Mainline, 2), (Kernel::Alibaba, 7)] {
            let mut host = host(kernel);
            let supported = |knob: &&Knob| host.support(Target::Node, **knob) == Support::Native;
            assert_eq!(Knob::OF_NODE.iter().filter(supported).count(), has, "{kernel:?}");
            let facts = host.facts();
            let native =
                |fact: &&crate::KnobFact| Knob::OF_NODE.contains(&fact.knob) && fact.support == Support::Native;
            assert_eq!(facts.knobs.iter().filter(native).count(), has);
        }
        let mut host = host(Kernel::Mainline);
        let Support::Unavailable { why } = host.support(Target::Node, Knob::MemcgReaper) else { panic!("it is there") };
        assert!(
            why.contains("there is no /sys/kernel/mm/memcg_reaper") && why.contains("Alibaba Cloud Linux"),
            "{why}"
        );
    }

    #[test]
    fn a_setting_of_the_node_is_no_cgroups_and_the_other_way_round() {
        let mut host = host(Kernel::Mainline);
        host.create("kubepods/podu1").unwrap();
        let pod = Target::Pod(qosm_model::pod::PodId(1));
        host.attach(pod, "kubepods/podu1").unwrap();
        let plan = host.plan(&[Wanted { target: pod, ..wanted(Knob::WatermarkScaleFactor, 150) }]);
        let [(_, _, error)] = plan.refused.as_slice() else { panic!("{plan:?}") };
        assert!(error.to_string().contains("there is none on the level of a pod"), "{error}");
        let plan = host.plan(&[wanted(Knob::MemoryLow, 4096)]);
        assert_eq!(plan.refused.len(), 1, "{plan:?}");
    }

    #[test]
    fn a_read_only_proc_is_told_as_that() {
        let mut host = host(Kernel::Mainline);
        host.simulated_mut().unwrap().set_read_only(true);
        let plan = host.plan(&[wanted(Knob::WatermarkScaleFactor, 150)]);
        let error = host.execute(&plan.steps[0]).unwrap_err();
        assert!(matches!(error, HostError::NodeReadOnly { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("/proc/sys/vm/watermark_scale_factor is on") && said.contains("Paths=/proc/sys/vm in"),
            "{said}"
        );
    }

    #[test]
    fn the_node_is_always_attached_and_its_name_is_no_cgroups() {
        let mut host = host(Kernel::Mainline);
        assert_eq!(host.attached_path(Target::Node), Some(NODE_PATH));
        assert_eq!(host.attached_at(NODE_PATH), Some(Target::Node));
        host.attach(Target::Node, NODE_PATH).unwrap();
        host.detach(Target::Node);
        assert_eq!(host.identity(Target::Node), Some(NODE_IDENTITY));
        assert!(host.attach(Target::Pod(qosm_model::pod::PodId(1)), NODE_PATH).is_err());
    }
}
