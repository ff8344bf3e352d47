//! Parses lines of standard input that change an emulated machine's counters.

use std::time::Duration;

use qosm_resctrl_fuse::{Bytes, BytesPerSecond, Clock, Demand, Tid, Tree};

/// A command on standard input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// Sets the demand of a thread, on one cache or on each.
    Demand { task: Tid, cache: Option<u32>, demand: Demand },
    /// Advances the clock.
    Step(Duration),
}

/// A line that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{line}`: {why}; write `demand TASK BYTES BYTES_PER_SECOND [CACHE]`, such as `demand 4711 8Mi 2G`, or `step SECONDS`"
)]
pub(super) struct NoOrder {
    line: String,
    why: String,
}

impl Order {
    /// Parses a line; `None` for an empty line or a comment.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, NoOrder> {
        let wrong = |why: &str| NoOrder { line: line.trim().to_owned(), why: why.to_owned() };
        let words: Vec<&str> = line.split_whitespace().collect();
        let bytes = |word: &str| qosm_cluster::parse_bytes(word).map_err(|error| wrong(&error.to_string()));
        let number = |word: &str| word.parse::<u32>().map_err(|_| wrong(&format!("`{word}` is no whole number")));
        Ok(Some(match words[..] {
            [] => return Ok(None),
            [first, ..] if first.starts_with('#') => return Ok(None),
            ["demand", task, occupancy, bandwidth, ref cache @ ..] if cache.len() < 2 => Self::Demand {
                task: Tid(number(task)?),
                cache: cache.first().copied().map(number).transpose()?,
                demand: Demand {
                    occupancy: Bytes(bytes(occupancy)?.0),
                    bandwidth: BytesPerSecond(bytes(bandwidth)?.0),
                    local_percent: 100,
                },
            },
            ["step", seconds] => {
                let seconds = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                Self::Step(seconds.ok_or_else(|| wrong("that is no number of seconds"))?)
            }
            [word, ..] => return Err(wrong(&format!("`{word}` is not understood, or not with these words"))),
        }))
    }

    /// Executes the command.
    pub(super) fn obey(&self, tree: &mut Tree, clock: Clock) -> Result<(), String> {
        match self {
            Self::Demand { task, cache, demand } => {
                let known: Vec<u32> = tree.profile().l3_domains.iter().map(|domain| domain.id).collect();
                if let Some(cache) = cache
                    && !known.contains(cache)
                {
                    let known = known.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                    return Err(format!("there is no L3 cache {cache}; there are: {known}"));
                }
                for id in known.into_iter().filter(|id| cache.is_none_or(|cache| cache == *id)) {
                    tree.set_task_demand(*task, id, *demand);
                }
            }
            Self::Step(_) if clock == Clock::Real => {
                return Err("the clock runs by itself; start it with --stepped".to_owned());
            }
            Self::Step(by) => tree.advance(*by),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use qosm_resctrl_fuse::{Profile, Scripted};

    use super::*;

    #[test]
    fn reads_what_a_thread_would_take() {
        let demand = Demand { occupancy: Bytes(8 << 20), bandwidth: BytesPerSecond(2_000_000_000), local_percent: 100 };
        let order = |cache| Order::Demand { task: Tid(4711), cache, demand };
        for (line, expected) in [
            ("demand 4711 8Mi 2G", Some(order(None))),
            ("  demand 4711 8Mi 2G 1", Some(order(Some(1)))),
            ("step 1.5", Some(Order::Step(Duration::from_millis(1500)))),
            ("", None),
            ("# demand", None),
        ] {
            assert_eq!(Order::parse(line), Ok(expected), "{line:?}");
        }
    }

    #[test]
    fn a_line_that_is_none_says_what_would_be_one() {
        for (line, why) in [
            ("demand", "not understood"),
            ("demand x 8Mi 2G", "`x` is no whole number"),
            ("demand 1 much 2G", "much"),
            ("demand 1 1 1 0 0", "not with these words"),
            ("step", "not understood"),
            ("step -1", "no number of seconds"),
            ("step 1e300", "no number of seconds"),
        ] {
            let error = Order::parse(line).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("`demand 4711 8Mi 2G`"), "{line}: {error}");
        }
    }

    #[test]
    fn what_it_is_told_moves_the_counters() {
        let mut tree = Tree::new(Profile::intel(), Scripted::new([7])).unwrap();
        let mut tell = |line: &str, clock| Order::parse(line).unwrap().unwrap().obey(&mut tree, clock);
        tell("demand 7 4Mi 1G", Clock::Stepped).unwrap();
        tell("step 10", Clock::Stepped).unwrap();
        assert!(tell("step 10", Clock::Real).unwrap_err().contains("--stepped"));
        assert!(tell("demand 7 4Mi 1G 5", Clock::Real).unwrap_err().contains("there are: 0, 1"));
        assert_eq!(tree.read("mon_data/mon_L3_01/llc_occupancy").unwrap(), b"4194304\n");
        assert_eq!(tree.read("mon_data/mon_L3_00/mbm_total_bytes").unwrap(), b"9999941632\n");
    }
}
