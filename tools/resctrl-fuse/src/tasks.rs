//! Tasks that can be put into groups: those of this machine, or of a script.

mod proc;
mod scripted;

pub use proc::Proc;
pub use scripted::{Scripted, Step};

/// The id of a thread, as in `tasks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// A thread that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub tid: Tid,
    /// Its parent, if known; `None` for the first task.
    pub creator: Option<Tid>,
    /// Its start time, in a unit of the source: it distinguishes two tasks with the same id.
    pub started: u64,
}

/// Owner of a thread; only the same user or root may move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The real user id.
    pub uid: u32,
    /// The saved user id.
    pub saved_uid: u32,
}

/// Moments that a tree reports to its tasks, so that a script can act then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// After a read of this group's `tasks`. The root group is `""`.
    Read(&'a str),
    /// Before a write to this group's `tasks`.
    Write(&'a str),
}

/// A source of tasks and their creators. A tree lists them before each of its operations.
///
/// A task that the tree has not seen before joins its creator's group, or the creator's last group if the creator has
/// ended (`resctrl_sched_in` and `copy_process`: a clone has the CLOSID and RMID of the thread that cloned it).
pub trait Tasks: Send {
    /// All existing threads.
    fn list(&mut self) -> Vec<Task>;

    /// Owner of a thread; `None` if it has ended.
    fn credentials(&mut self, tid: Tid) -> Option<Credentials>;

    /// Called at each [`Moment`]; does nothing by default.
    fn at(&mut self, moment: Moment<'_>) {
        let _ = moment;
    }
}
