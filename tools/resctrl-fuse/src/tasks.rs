//! Tasks to be put into groups: those of this machine, or of a script.

mod proc;
mod scripted;

pub use proc::Proc;
pub use scripted::{Scripted, Step};

/// The id of a thread, as `tasks` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// A thread that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub tid: Tid,
    /// Its parent, as far as known; `None` for the first of all.
    pub creator: Option<Tid>,
    /// When it began, in a unit of the source's own: two tasks with one id differ in it.
    pub started: u64,
}

/// Owner of a thread; moving it takes the same user, or root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The real user.
    pub uid: u32,
    /// The saved user.
    pub saved_uid: u32,
}

/// Moments that a tree announces to its tasks, so that a script can act at just that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// A file called `tasks` of this group has been read. The root group is `""`.
    Read(&'a str),
    /// Before a write to this group's `tasks`.
    Write(&'a str),
}

/// Existing tasks and their parents. A tree lists them before each of its operations.
///
/// A task that the tree has not seen before belongs to the group in which its creator is at that time, or was when it was last there
/// (`resctrl_sched_in` and `copy_process`: a clone has the CLOSID and RMID of the thread that cloned it).
pub trait Tasks: Send {
    /// All threads that there are now.
    fn list(&mut self) -> Vec<Task>;

    /// Owner of a thread; `None` when it is gone.
    fn credentials(&mut self, tid: Tid) -> Option<Credentials>;

    /// Called at each [`Moment`]; does nothing by default.
    fn at(&mut self, moment: Moment<'_>) {
        let _ = moment;
    }
}
