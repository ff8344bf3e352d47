//! What a module can ask to be woken by, and what wakes it.

use std::fmt;

use crate::knob::Target;
use crate::unit::Micros;

/// A resource of pressure stall information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Waiting for a CPU.
    Cpu,
    /// Waiting for memory.
    Memory,
    /// Waiting for input or output.
    Io,
}

impl Resource {
    /// The kernel's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// Target of the pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole node's.
    Node,
    /// Each pod's.
    Pod,
    /// Each container's.
    Container,
}

impl Scope {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Container => "container",
        }
    }
}

/// A threshold of pressure: this much stall within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure {
    /// Target.
    pub scope: Scope,
    /// Of what.
    pub resource: Resource,
    /// Whether all tasks have to wait at once (`full`), or any of them (`some`).
    pub full: bool,
    /// Time lost.
    pub stall: Micros,
    /// Within how much time.
    pub window: Micros,
}

impl Pressure {
    /// Shortest and longest window that the kernel takes (kernel/sched/psi.c).
    pub const WINDOWS: (Micros, Micros) = (Micros(500_000), Micros(10_000_000));

    /// What is wrong with it: the field, and what it must be.
    pub fn flaw(&self) -> Option<(&'static str, String)> {
        let (least, most) = Self::WINDOWS;
        if self.window < least || self.window > most {
            let why = format!("{} is outside of what the kernel takes, {} to {}", self.window.0, least.0, most.0);
            return Some(("window-usec", why));
        }
        if self.stall.0 == 0 || self.stall > self.window {
            return Some(("stall-usec", format!("{} is not within 1 and the window, {}", self.stall.0, self.window.0)));
        }
        None
    }
}

/// What a module asks to be woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// A container has used up its CFS quota before its period was over.
    Throttling,
    /// Pressure rose above a threshold.
    Pressure(Pressure),
    /// A container was throttled above `memory.high`, hit its limit, or the OOM killer came.
    MemoryEvents,
    /// A container's cgroup has appeared: with NRI before the container's first instruction, else soon after it.
    ContainerStarted,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttling => f.write_str("throttling"),
            Self::Pressure(Pressure { scope, resource, full, stall, window }) => {
                let (scope, resource) = (scope.as_str(), resource.as_str());
                let kind = if *full { "full" } else { "some" };
                write!(f, "pressure: {scope} {resource} {kind} {} of {} us", stall.0, window.0)
            }
            Self::MemoryEvents => f.write_str("memory-events"),
            Self::ContainerStarted => f.write_str("container-started"),
        }
    }
}

impl Trigger {
    /// A word for it that takes few values: for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Throttling => "throttling",
            Self::Pressure(_) => "pressure",
            Self::MemoryEvents => "memory-events",
            Self::ContainerStarted => "container-started",
        }
    }
}

/// A trigger that fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// Which.
    pub trigger: Trigger,
    /// The target; `None` = the node.
    pub target: Option<Target>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_that_the_kernel_would_refuse_is_an_error() {
        let pressure = |stall, window| Pressure {
            scope: Scope::Container,
            resource: Resource::Memory,
            full: false,
            stall: Micros(stall),
            window: Micros(window),
        };
        for (stall, window, field) in [
            (1, 500_000, None),
            (10_000_000, 10_000_000, None),
            (1, 499_999, Some("window-usec")),
            (1, 10_000_001, Some("window-usec")),
            (0, 1_000_000, Some("stall-usec")),
            (1_000_001, 1_000_000, Some("stall-usec")),
        ] {
            assert_eq!(pressure(stall, window).flaw().map(|(field, _)| field), field, "{stall} in {window}");
        }
        let trigger = Trigger::Pressure(pressure(150_000, 1_000_000));
        assert_eq!(trigger.to_string(), "pressure: container memory some 150000 of 1000000 us");
    }
}
