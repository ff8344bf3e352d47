//! Memory of the node, with the kernel's watermarks, and its pressure.

use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::NodeMemory;
use qosm_model::unit::Bytes;

use crate::backend::{Area, Backend as _};
use crate::error::HostError;
use crate::signals::NodeFile;
use crate::{Host, parse};

/// Cached watermarks of the kernel, and the values that they depend on. `/proc/zoneinfo` grows with CPUs and zones, and
/// reading it costs the kernel more than all other node-wide files together.
#[derive(Default)]
pub(crate) struct KeptMarks {
    follow_from: Option<MarkSources>,
    marks: Marks,
}

/// The kernel's watermarks; `None` if unknown.
#[derive(Clone, Copy, Default)]
struct Marks {
    min: Option<Bytes>,
    low: Option<Bytes>,
    high: Option<Bytes>,
}

/// Values that determine the watermarks: `vm.min_free_kbytes`, `vm.watermark_scale_factor`, and total memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MarkSources {
    min_free: Option<u64>,
    scale_factor: Option<u64>,
    total: Option<Bytes>,
}

impl Host {
    /// Memory of the node, with the kernel's watermarks where they can be read.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] or [`HostError::Parse`] for `/proc/meminfo`.
    pub fn node_memory_in_full(&mut self) -> Result<NodeMemory, HostError> {
        let length = self.read_node_file(NodeFile::Meminfo)?;
        let text = &self.buffer[..length];
        let memory = parse::node_memory(text).ok_or_else(|| {
            crate::signals::garbled_node_file(
                "/proc/meminfo",
                "MemTotal, MemFree, MemAvailable and the page cache",
                text,
            )
        })?;
        let Marks { min, low, high } = self.marks(memory.total);
        Ok(NodeMemory { min_mark: min, low_mark: low, high_mark: high, ..memory })
    }

    /// The kernel's watermarks, read again when the values that determine them change.
    fn marks(&mut self, total: Option<Bytes>) -> Marks {
        let mut setting = |file| {
            let length = self.read_node_file(file).ok()?;
            parse::number(&self.buffer[..length])
        };
        let (min_free, scale_factor) = (setting(NodeFile::MinFree), setting(NodeFile::ScaleFactor));
        let sources = MarkSources { min_free, scale_factor, total };
        // Simulated nodes have watermarks of their own.
        if self.is_simulated() || self.node_files.marks.follow_from != Some(sources) {
            let text = self.backend.read_once(Area::Proc, "zoneinfo").ok();
            let nodes = text.and_then(|text| parse::zoneinfo(&text));
            let page = self.page_size().0;
            let sum = |mark: fn(&crate::FreePages) -> u64| {
                let pages = nodes.as_ref()?.iter().fold(0, |sum: u64, node| sum.saturating_add(mark(node)));
                Some(Bytes(pages.saturating_mul(page)))
            };
            let marks = Marks { min: sum(|node| node.min), low: sum(|node| node.low), high: sum(|node| node.high) };
            self.node_files.marks = KeptMarks { follow_from: Some(sources), marks };
        }
        self.node_files.marks.marks
    }

    /// Pressure stall totals of the whole node; a resource without a file counts as 0. `None` if the kernel accounts no pressure.
    pub fn node_pressure(&mut self) -> Option<PressureCounters> {
        let mut total = |file| -> Option<Stall> {
            let length = self.read_node_file(file).ok()?;
            parse::pressure(&self.buffer[..length])
        };
        let (cpu, memory, io) =
            (total(NodeFile::CpuPressure), total(NodeFile::MemoryPressure), total(NodeFile::IoPressure));
        cpu.or(memory).or(io)?;
        let known = Option::unwrap_or_default;
        Some(PressureCounters { cpu: known(cpu), memory: known(memory), io: known(io) })
    }
}
