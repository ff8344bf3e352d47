//! An emulation of `/sys/fs/resctrl` that enforces the kernel's rules: for tests, for demonstrations, and for authors
//! of policies whose machine lacks the hardware.
//!
//! Reading order: [`Profile`] (the machine, also by name), [`Tree`] (every operation by path, without I/O, with the
//! kernel's errno and `last_cmd_status`), [`tasks`] (the tasks: this machine's `/proc`, or a script that forks at a
//! chosen moment), [`Demand`] (the load that moves the counters), [`mount`](mount()) (the tree as a file system,
//! through FUSE). The crate's README lists the rules and the tests that check them; the kernel's own text is
//! `Documentation/filesystems/resctrl.rst`.
//!
//! The emulation does not affect the hardware: no task is slower or faster in a group. Pseudo-locking and the software
//! controller (`mba_MBps`) are left out, as in a kernel built without them.
//!
//! ```
//! use qosm_resctrl_fuse::{Errno, Profile, Tree, Writer};
//! use qosm_resctrl_fuse::tasks::Scripted;
//!
//! let mut tree = Tree::new(Profile::intel(), Scripted::new([1, 2]))?;
//! tree.mkdir("be", Writer::ROOT)?;
//! tree.write("be/schemata", b"L3:0=3;1=3\nMB:0=25\n", Writer::ROOT)?;
//! assert_eq!(tree.read("be/schemata")?, b"    MB:0=30;1=100\n    L3:0=3;1=3\n");
//! assert_eq!(tree.write("be/schemata", b"L3:0=5\n", Writer::ROOT), Err(Errno::INVAL));
//! assert_eq!(tree.read("info/last_cmd_status")?, b"The mask 5 has non-consecutive 1-bits\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cpumask;
mod fuse;
mod kstrto;
mod load;
mod mount;
mod profile;
mod rmid;
mod status;
pub mod tasks;
mod tree;
mod unit;

pub use cpumask::{CpuMask, NotACpuList};
pub use load::Demand;
pub use mount::{Clock, MountError, Mounted, SharedTree, mount};
pub use profile::{
    Bandwidth, Cache, Domain, Event, KernelVersion, Monitoring, MountOptions, Profile, ProfileError, RemovedFiles,
    Scale, ThrottleMode,
};
pub use rustix::io::Errno;
pub use tasks::{Proc, Scripted, Tid};
pub use tree::{Attributes, CounterFault, Entry, Mode, Tree, Writer};
pub use unit::{Bytes, BytesPerSecond};
