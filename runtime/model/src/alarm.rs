//! Triggers that a module can subscribe to, and the alarms that they raise.

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
    /// The kernel's name for the resource.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// The cgroups whose pressure a trigger watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole node.
    Node,
    /// Each pod.
    Pod,
    /// Each container.
    Container,
}

impl Scope {
    /// The name of the scope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Container => "container",
        }
    }
}

/// A threshold of pressure: a stall time within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure {
    /// The cgroups that are watched.
    pub scope: Scope,
    /// The resource.
    pub resource: Resource,
    /// Whether all tasks must wait at the same time (`full`), or any of them (`some`).
    pub full: bool,
    /// Stall time that raises an alarm.
    pub stall: Micros,
    /// Length of the window.
    pub window: Micros,
}

impl Pressure {
    /// Shortest and longest window that the kernel accepts (kernel/sched/psi.c).
    pub const WINDOWS: (Micros, Micros) = (Micros(500_000), Micros(10_000_000));

    /// The invalid field and its valid values; `None` if the threshold is valid.
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

/// An event that makes the agent evaluate a policy at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// A container used up its CFS quota before the end of a period.
    Throttling,
    /// Pressure rose above a threshold.
    Pressure(Pressure),
    /// A container was throttled above `memory.high`, hit its limit, or the OOM killer killed one of its processes.
    MemoryEvents,
    /// A container's cgroup appeared: with NRI before the container's first instruction, else soon after it.
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
    /// The kind of the trigger, without its parameters, as a label of metrics.
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
    /// The trigger.
    pub trigger: Trigger,
    /// The target; `None` for the node.
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
