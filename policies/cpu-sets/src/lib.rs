//! Sets of CPUs, and Koordinator's annotations about them. Policies share this crate; it does not depend on a host.

mod annotation;
mod json;
pub mod pick;
mod set;

pub use crate::annotation::{
    AnnotationError, MAX_ANNOTATION_BYTES, RESERVATION, RESOURCE_STATUS, Reservation, ResourceStatus, SYSTEM_QOS,
    SystemQos, read,
};
pub use crate::json::with_names;
pub use crate::pick::{Cpu, pick};
pub use crate::set::{CpuListError, CpuListFault, CpuSet, MAX_CPU};
