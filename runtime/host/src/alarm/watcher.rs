//! The thread that waits for alarms. It sleeps in the kernel while there is nothing to tell and nobody to look at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qosm_model::alarm::Alarm;
use qosm_model::pod::ContainerId;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::throttling::Sampled;
use crate::parse;

/// Least time between two rounds of looks.
const ROUND: Duration = Duration::from_millis(5);
/// Looks may take one part in so many of a CPU: with many containers, or slow files, rounds are further apart.
const SHARE: u32 = 100;
/// Rounds are no further apart than this, whatever they cost: by then there is a tick.
const ROUND_MOST: Duration = Duration::from_secs(1);
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// What an event of the epoll instance is about: these two, and from [`FIRST`] on pressure thresholds.
const NUDGE: u64 = 0;
const FILES: u64 = 1;
const FIRST: u64 = 2;

/// Counts of `memory.events` that matter. `low` is none of them: it tells of protection at work.
const COUNTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// What both sides have.
pub(super) struct Shared {
    epoll: OwnedFd,
    inotify: OwnedFd,
    nudge: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    next: u64,
    pressure: BTreeMap<u64, (File, Alarm)>,
    files: HashMap<i32, FileWatch>,
    sampled: BTreeMap<ContainerId, Sampled>,
    raised: BTreeSet<Alarm>,
    /// The loop was woken and has not asked yet.
    told: bool,
}

/// A file or directory that inotify watches.
struct FileWatch {
    alarm: Alarm,
    /// `memory.events`, and its counts as they were; `None` = a directory.
    counts: Option<(File, [Option<u64>; COUNTS.len()])>,
}

/// What a watch is taken away by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    Pressure(u64),
    File(i32),
}

impl Shared {
    /// Opens what the thread waits on, and starts it.
    pub(super) fn start(wake: Box<dyn Fn() + Send>) -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &nudge, EventData::new_u64(NUDGE), EventFlags::IN)?;
        epoll::add(&epoll, &inotify, EventData::new_u64(FILES), EventFlags::IN)?;
        let state = Mutex::new(State { next: FIRST, ..State::default() });
        let shared = Arc::new(Self { epoll, inotify, nudge, state });
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("qosm-alarms".to_owned()).spawn(move || own.run(&*wake))?;
        Ok(shared)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panicking thread left is still a list of watches.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What fired since it was asked last.
    pub(super) fn take(&self) -> BTreeSet<Alarm> {
        let mut state = self.state();
        state.told = false;
        std::mem::take(&mut state.raised)
    }

    /// Watches a pressure file to which the threshold was written.
    pub(super) fn add_pressure(&self, file: File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let id = state.next;
        epoll::add(&self.epoll, &file, EventData::new_u64(id), EventFlags::PRI)?;
        state.next += 1;
        state.pressure.insert(id, (file, alarm));
        Ok(Ticket::Pressure(id))
    }

    /// Watches a directory for new ones in it.
    pub(super) fn add_directory(&self, directory: &File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let watch = inotify::add_watch(&self.inotify, own_name(directory), WatchFlags::CREATE | WatchFlags::ONLYDIR)?;
        state.files.insert(watch, FileWatch { alarm, counts: None });
        Ok(Ticket::File(watch))
    }

    /// Watches the counts of a `memory.events`.
    pub(super) fn add_memory_events(&self, file: File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let watch = inotify::add_watch(&self.inotify, own_name(&file), WatchFlags::MODIFY)?;
        let counts = read_counts(&file)?;
        state.files.insert(watch, FileWatch { alarm, counts: Some((file, counts)) });
        Ok(Ticket::File(watch))
    }

    /// Watches no longer. What it was about may be gone already.
    pub(super) fn remove(&self, ticket: Ticket) {
        let mut state = self.state();
        match ticket {
            // Closing the file ends the threshold, and takes it out of the epoll instance.
            Ticket::Pressure(id) => drop(state.pressure.remove(&id)),
            Ticket::File(watch) => {
                state.files.remove(&watch);
                inotify::remove_watch(&self.inotify, watch).ok();
            }
        }
    }

    /// Looks at just these containers from now on. `open` is asked for those that are new.
    pub(super) fn sample(
        &self,
        wanted: &[super::Throttleable],
        mut open: impl FnMut(super::Throttleable) -> Option<Sampled>,
    ) {
        let mut state = self.state();
        let was_idle = state.sampled.is_empty();
        state.sampled.retain(|id, _| wanted.iter().any(|wanted| wanted.container == *id));
        for &about in wanted {
            match state.sampled.get_mut(&about.container) {
                Some(sampled) => sampled.about = about,
                None => drop(open(about).map(|sampled| state.sampled.insert(about.container, sampled))),
            }
        }
        if was_idle && !state.sampled.is_empty() {
            self.nudge();
        }
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.nudge();
    }

    fn nudge(&self) {
        rustix::io::write(&self.nudge, &1_u64.to_ne_bytes()).ok();
    }

    fn run(&self, wake: &(dyn Fn() + Send)) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut round: Option<Instant> = None;
        let mut space = ROUND;
        loop {
            let timeout = round.map(|due| timespec(due.saturating_duration_since(Instant::now())));
            events.clear();
            let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if waited.is_err_and(|errno| errno != Errno::INTR) {
                // There is no way for this to happen; should it all the same, the thread must not spin.
                std::thread::sleep(ROUND_MOST);
            }
            let mut state = self.state();
            if state.ended {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    NUDGE => drop(rustix::io::read(&self.nudge, &mut [0_u8; 8])),
                    FILES => self.files(&mut state),
                    id => state.pressure(id, event.flags),
                }
            }
            let now = Instant::now();
            if state.sampled.is_empty() {
                round = None;
            } else if round.is_none_or(|due| now >= due) {
                state.look(now);
                space = (now.elapsed() * SHARE).clamp(ROUND, ROUND_MOST);
                round = Some(now + space);
            } else if round.is_some_and(|due| due > now + space) {
                round = Some(now + space);
            }
            if !state.raised.is_empty() && !state.told {
                state.told = true;
                drop(state);
                wake();
            }
        }
    }

    /// Takes what inotify has to tell.
    fn files(&self, state: &mut State) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // What was lost could be any of them.
                let all: Vec<Alarm> = state.files.values().map(|watch| watch.alarm).collect();
                state.raised.extend(all);
            } else if event.events().contains(ReadFlags::IGNORED) {
                state.files.remove(&event.wd());
            } else {
                state.file(event.wd(), event.events());
            }
        }
    }
}

impl State {
    fn file(&mut self, watch: i32, events: ReadFlags) {
        let Some(watch) = self.files.get_mut(&watch) else { return };
        let fires = match &mut watch.counts {
            None => events.contains(ReadFlags::ISDIR),
            Some((file, before)) => match read_counts(file) {
                Ok(now) => now != std::mem::replace(before, now),
                Err(_) => false,
            },
        };
        if fires {
            self.raised.insert(watch.alarm);
        }
    }

    fn pressure(&mut self, id: u64, flags: EventFlags) {
        if flags.contains(EventFlags::ERR) {
            // Its cgroup is gone; closing the file ends the watch.
            self.pressure.remove(&id);
        } else if let Some((_, alarm)) = self.pressure.get(&id) {
            self.raised.insert(*alarm);
        }
    }

    fn look(&mut self, now: Instant) {
        let raised = &mut self.raised;
        self.sampled.retain(|_, sampled| match sampled.look(now) {
            Some(true) => {
                raised.insert(super::throttled(sampled.about.container));
                true
            }
            Some(false) => true,
            None => false,
        });
    }
}

fn read_counts(file: &File) -> io::Result<[Option<u64>; COUNTS.len()]> {
    let mut buffer = [0_u8; 512];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(parse::keyed(buffer.get(..length).unwrap_or_default(), COUNTS))
}

/// The name by which inotify finds an open file: it takes no descriptors.
fn own_name(file: &File) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}
