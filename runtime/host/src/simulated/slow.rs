//! Slow writes that take several steps: lowering `memory.high` below current use.

use std::collections::VecDeque;
use std::io;

use super::Simulation;
use crate::backend::{Area, Backend as _, Beyond, Lowering, SlowWrite, join};
use crate::parse;

/// A slow write in progress.
pub(super) struct SlowJob {
    ticket: u64,
    area: Area,
    path: String,
    /// The texts still to be written, in order.
    texts: VecDeque<String>,
    /// Instead of texts: a bound above which the kernel kills processes.
    lowering: Option<Lowering>,
}

impl Simulation {
    /// Makes slow writes take several steps from now on: each call of [`Host::finished`](crate::Host::finished) takes one.
    pub fn stall_slow_writes(&mut self) {
        self.stalled = true;
    }

    /// Queues a slow write. A bound that is lowered passes through the midpoint first.
    pub(super) fn queue(
        &mut self,
        area: Area,
        path: &str,
        text: &str,
        lowering: Option<&Lowering>,
        ticket: u64,
    ) -> io::Result<SlowWrite> {
        let mut texts = VecDeque::new();
        let kills = lowering.filter(|lowering| lowering.beyond == Beyond::Kills);
        if let Some(Lowering { path: group, usage, to, .. }) = lowering {
            let usage = parse::number(&self.read_once(area, &join(group, usage))?).unwrap_or(to.0);
            let (page, half) = (self.page_size(), usage.midpoint(to.0));
            texts.push_back((half - half % page.max(1)).to_string());
        }
        texts.push_back(text.to_owned());
        if kills.is_some() {
            texts.clear();
        }
        for earlier in self.slow.iter_mut().filter(|earlier| (earlier.area, &*earlier.path) == (area, path)) {
            earlier.texts.clear();
            earlier.lowering = None;
        }
        self.slow.push_back(SlowJob { ticket, area, path: path.to_owned(), texts, lowering: kills.cloned() });
        Ok(SlowWrite::Queued)
    }

    /// Takes the next step of the first slow write. Returns the writes that have ended, with their results.
    pub(super) fn take_slow_step(&mut self) -> Vec<(u64, io::Result<()>)> {
        let mut ended = Vec::new();
        while let Some(mut job) = self.slow.pop_front() {
            if let Some(lowering) = job.lowering.take() {
                let lowered = self.lower(job.area, &job.path, lowering);
                ended.push((job.ticket, lowered));
                break;
            }
            let Some(text) = job.texts.pop_front() else {
                ended.push((job.ticket, Ok(())));
                continue;
            };
            let written = self.write(job.area, &job.path, &text);
            if written.is_err() || job.texts.is_empty() {
                ended.push((job.ticket, written));
            } else {
                self.slow.push_front(job);
            }
            break;
        }
        ended
    }
}
