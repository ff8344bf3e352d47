//! The thread that waits for alarms. It sleeps in the kernel while no alarm fires and no container needs a sample.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that waits for the kernel's alarms")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qosm_model::alarm::{Alarm, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::Fired;
use super::load::{self, LoadDetector};
use super::sampler::{SampledContainer, Sampler, Usage, UsageSource};
use super::sampling_rate::SamplingRate;
use super::throttling::Throttleable;
use crate::parse;

/// Sleep after an unexpected error of `epoll_wait`.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Number of events that one `epoll_wait` takes.
const EVENTS: usize = 64;

/// Data of epoll events: [`WAKE_UP`], [`FILES`], and from [`FIRST`] on pressure thresholds.
const WAKE_UP: u64 = 0;
const FILES: u64 = 1;
const FIRST: u64 = 2;

/// Counts of `memory.events` that raise an alarm. `low` is not among them: it counts how often the group was reclaimed although it used
/// less than its `memory.low`, because more is protected than there is. No limit of the group was hit then.
///
/// Kernel: Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files".
const COUNTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// State that the thread and the loop share.
pub(super) struct Shared {
    epoll: OwnedFd,
    inotify: OwnedFd,
    wake_up: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    next: u64,
    pressure: BTreeMap<u64, (File, Alarm)>,
    files: HashMap<i32, FileWatch>,
    sampler: Sampler<UsageFile>,
    load: Option<LoadWatch>,
    /// A sampled cgroup was removed.
    has_lost: bool,
    raised: BTreeSet<Alarm>,
    /// Containers with a raised throttling alarm that were idle before.
    rested: BTreeSet<ContainerId>,
    /// The loop was woken and has not taken the alarms yet.
    has_woken: bool,
}

/// A file or directory that inotify watches.
struct FileWatch {
    alarm: Alarm,
    /// An open `memory.events` and its last counts; `None` for a directory.
    counts: Option<(File, [Option<u64>; COUNTS.len()])>,
}

/// The CPU time of all pods except those of one tier.
struct LoadWatch {
    alarm: Alarm,
    all: UsageFile,
    /// CPU time to subtract; `None` if the tier has no cgroup.
    without: Option<UsageFile>,
    detector: LoadDetector,
    due: Instant,
}

impl LoadWatch {
    /// Whether the load has risen. `false` for a file that cannot be read.
    fn has_risen(&mut self, now: Instant) -> bool {
        self.due = now + load::INTERVAL;
        let without = match &self.without {
            None => Some(0),
            Some(file) => file.usage(),
        };
        let usage = self.all.usage().zip(without).map(|(all, without)| all.saturating_sub(without));
        usage.is_some_and(|usage| self.detector.add(now, usage))
    }
}

/// Identifies a watch, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    Pressure(u64),
    File(i32),
}

impl Shared {
    /// Opens the epoll, inotify and eventfd descriptors, and starts the thread.
    pub(super) fn start(wake: Box<dyn Fn() + Send>) -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake_up, EventData::new_u64(WAKE_UP), EventFlags::IN)?;
        epoll::add(&epoll, &inotify, EventData::new_u64(FILES), EventFlags::IN)?;
        let state = Mutex::new(State { next: FIRST, ..State::default() });
        let shared = Arc::new(Self { epoll, inotify, wake_up, state });
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("qosm-alarms".to_owned()).spawn(move || own.run(&*wake))?;
        Ok(shared)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic the state is still a valid list of watches.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The alarms that fired since the last call.
    pub(super) fn take(&self) -> BTreeSet<Fired> {
        let mut state = self.state();
        state.has_woken = false;
        let rested = std::mem::take(&mut state.rested);
        let is_rested = |alarm: &Alarm| match alarm.target {
            Some(Target::Container(id)) => alarm.trigger == Trigger::Throttling && rested.contains(&id),
            _ => false,
        };
        let raised = std::mem::take(&mut state.raised);
        raised.into_iter().map(|alarm| Fired { alarm, after_rest: is_rested(&alarm) }).collect()
    }

    /// Whether a sampled cgroup was removed since the last call.
    pub(super) fn has_lost(&self) -> bool {
        std::mem::take(&mut self.state().has_lost)
    }

    /// Watches a pressure file to which the caller has written the threshold.
    pub(super) fn add_pressure(&self, file: File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let id = state.next;
        epoll::add(&self.epoll, &file, EventData::new_u64(id), EventFlags::PRI)?;
        state.next += 1;
        state.pressure.insert(id, (file, alarm));
        Ok(Ticket::Pressure(id))
    }

    /// Watches a directory for new directories in it.
    pub(super) fn add_directory(&self, directory: &File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let watch = inotify::add_watch(&self.inotify, own_name(directory), WatchFlags::CREATE | WatchFlags::ONLYDIR)?;
        state.files.insert(watch, FileWatch { alarm, counts: None });
        Ok(Ticket::File(watch))
    }

    /// Watches the counts of a `memory.events` file.
    pub(super) fn add_memory_events(&self, file: File, alarm: Alarm) -> io::Result<Ticket> {
        let mut state = self.state();
        let watch = inotify::add_watch(&self.inotify, own_name(&file), WatchFlags::MODIFY)?;
        let counts = read_counts(&file)?;
        state.files.insert(watch, FileWatch { alarm, counts: Some((file, counts)) });
        Ok(Ticket::File(watch))
    }

    /// Removes a watch. Its file or directory may be gone already.
    pub(super) fn remove(&self, ticket: Ticket) {
        let mut state = self.state();
        match ticket {
            // Closing the file ends the threshold, and removes it from the epoll instance.
            Ticket::Pressure(id) => drop(state.pressure.remove(&id)),
            Ticket::File(watch) => {
                state.files.remove(&watch);
                inotify::remove_watch(&self.inotify, watch).ok();
            }
        }
    }

    /// Replaces the set of sampled containers. `open` opens the files of new ones.
    pub(super) fn sample(
        &self,
        watched: Vec<SampledContainer>,
        takes_root: bool,
        open: impl FnMut(UsageSource<'_>) -> Option<UsageFile>,
    ) {
        let mut state = self.state();
        state.sampler.arrange(watched, takes_root, open);
        // Wake the thread to sample new members now, so that their CPU time counts from here.
        self.wake_up();
    }

    /// Watches the CPU time of one group minus another's for a sudden rise; `None` stops watching.
    pub(super) fn watch_load(&self, load: Option<(Alarm, UsageFile, Option<UsageFile>, u32)>) {
        self.state().load = load.map(|(alarm, all, without, cpus)| LoadWatch {
            alarm,
            all,
            without,
            detector: LoadDetector::new(cpus),
            due: Instant::now(),
        });
        self.wake_up();
    }

    /// Changes quotas of the sampled containers; `false` if the set of containers differs.
    pub(super) fn set_quotas(&self, throttleable: &[Throttleable], unlimited: &[ContainerId]) -> bool {
        self.state().sampler.set_quotas(throttleable, unlimited)
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.wake_up();
    }

    fn wake_up(&self) {
        rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes()).ok();
    }

    fn run(&self, wake: &(dyn Fn() + Send)) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut round: Option<Instant> = None;
        let mut load_due: Option<Instant> = None;
        let mut sampling_rate = SamplingRate::default();
        loop {
            let timeout = round
                .into_iter()
                .chain(load_due)
                .min()
                .map(|due| timespec(due.saturating_duration_since(Instant::now())));
            events.clear();
            let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
            if waited.is_err_and(|errno| errno != Errno::INTR) {
                // Should not happen; if it does, the thread must not spin.
                std::thread::sleep(ERROR_PAUSE);
            }
            let mut state = self.state();
            if state.ended {
                return;
            }
            let mut is_woken = false;
            for event in &events {
                match event.data.u64() {
                    WAKE_UP => {
                        rustix::io::read(&self.wake_up, &mut [0_u8; 8]).ok();
                        is_woken = true;
                    }
                    FILES => self.files(&mut state),
                    id => state.pressure(id, event.flags),
                }
            }
            let now = Instant::now();
            if state.sampler.is_empty() {
                round = None;
            } else if is_woken || round.is_none_or(|due| now >= due) {
                let space = state.sample_round(now, &mut sampling_rate);
                round = Some(now + space);
            }
            load_due = state.look_at_load(now);
            if !state.raised.is_empty() && !state.has_woken {
                state.has_woken = true;
                drop(state);
                wake();
            }
        }
    }

    /// Reads the events of inotify.
    fn files(&self, state: &mut State) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // The lost events may concern any watch.
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
            // The cgroup is gone; closing the file ends the watch.
            self.pressure.remove(&id);
        } else if let Some((_, alarm)) = self.pressure.get(&id) {
            self.raised.insert(*alarm);
        }
    }

    /// Samples the load if it is due; returns the time of the next sample.
    fn look_at_load(&mut self, now: Instant) -> Option<Instant> {
        let load = self.load.as_mut()?;
        if now >= load.due && load.has_risen(now) {
            self.raised.insert(load.alarm);
        }
        Some(load.due)
    }

    /// Takes one round of samples; returns the time until the next.
    fn sample_round(&mut self, now: Instant, sampling_rate: &mut SamplingRate) -> Duration {
        let round = self.sampler.round(now, sampling_rate.allowance());
        for &(container, after_rest) in &round.throttled {
            self.raised.insert(super::throttled(container));
            if after_rest {
                self.rested.insert(container);
            }
        }
        self.has_lost |= round.has_lost;
        sampling_rate.next_interval(&round, Instant::now(), cpu_time())
    }
}

/// A file with a CPU time. The host's own reads may share its descriptor.
pub(super) struct UsageFile {
    pub(super) file: Arc<File>,
    pub(super) form: UsageForm,
}

/// The format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageForm {
    /// `cpuacct.usage`: nanoseconds.
    Nanos,
    /// `cpu.stat` of v2: `usage_usec`.
    Stat,
}

impl Usage for UsageFile {
    fn usage(&self) -> Option<u64> {
        let mut buffer = [0_u8; 512];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        let text = buffer.get(..length)?;
        match self.form {
            UsageForm::Nanos => parse::number(text).map(|nanos| nanos / 1000),
            UsageForm::Stat => parse::keyed(text, ["usage_usec"])[0],
        }
    }
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn read_counts(file: &File) -> io::Result<[Option<u64>; COUNTS.len()]> {
    let mut buffer = [0_u8; 512];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(parse::keyed(buffer.get(..length).unwrap_or_default(), COUNTS))
}

/// A path by which inotify finds an open file: inotify takes paths, not descriptors.
fn own_name(file: &File) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}
