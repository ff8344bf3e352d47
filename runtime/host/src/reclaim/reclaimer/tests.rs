use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A node as a few numbers. A group's `files` is its index here.
#[derive(Default)]
struct Toy {
    usage: Vec<u64>,
    limit: Vec<Option<u64>>,
    /// Memory of each group that cannot be reclaimed.
    fixed: Vec<u64>,
    answer: Option<Errno>,
    free: FreePages,
    asked: Vec<(usize, u64)>,
    /// The limit of an ancestor of all groups; it uses their sum.
    above: Option<u64>,
    /// The node's memory; all that the groups do not use is available.
    memory: Option<u64>,
}

impl Toy {
    fn with(usage: u64, limit: Option<u64>, fixed: u64) -> Self {
        let plenty = FreePages { free: 1 << 20, min: 60, low: 80, high: 100, managed: 1280 };
        Self { usage: vec![usage], limit: vec![limit], fixed: vec![fixed], free: plenty, ..Self::default() }
    }
}

impl MemoryBackend for Toy {
    type Group = usize;
    fn usage(&mut self, &group: &usize) -> io::Result<Bytes> {
        self.usage.get(group).map(|&usage| Bytes(usage)).ok_or(Errno::NODEV.into())
    }
    fn limit(&mut self, &group: &usize) -> io::Result<Option<Bytes>> {
        Ok(self.limit[group].map(Bytes))
    }
    fn limits_above(&mut self, _: &usize) -> io::Result<Vec<(String, Bytes)>> {
        Ok(self.above.map(|limit| ("above".to_owned(), Bytes(limit))).into_iter().collect())
    }
    fn usage_above(&mut self, _: &usize, above: &str) -> io::Result<Bytes> {
        assert_eq!(above, "above");
        Ok(Bytes(self.usage.iter().sum()))
    }
    fn node(&mut self) -> Option<(Bytes, Bytes)> {
        self.memory.map(|memory| (Bytes(memory), Bytes(self.usage.iter().sum())))
    }
    fn reclaim(&mut self, &group: &usize, amount: Bytes) -> io::Result<()> {
        self.asked.push((group, amount.0));
        if let Some(answer) = self.answer {
            return Err(answer.into());
        }
        let given = amount.0.min(self.usage[group].saturating_sub(self.fixed[group]));
        self.usage[group] -= given;
        self.free.free += given >> 12;
        if given < amount.0 { Err(Errno::AGAIN.into()) } else { Ok(()) }
    }
    fn free_pages(&mut self) -> Option<Vec<FreePages>> {
        Some(vec![self.free])
    }
}

fn marks(ratio: u8, scale: u16, min_adj: i8) -> Watermarks {
    Watermarks { ratio, scale, min_adj }
}

fn one(watermarks: Watermarks) -> Reclaimer<usize> {
    let mut reclaimer = Reclaimer::default();
    reclaimer.set(GroupId(1), watermarks, 0, Micros(0));
    reclaimer
}

/// Polls until no group is due.
fn sweep(reclaimer: &mut Reclaimer<usize>, now: u64, toy: &mut Toy) {
    while reclaimer.poll(Micros(now), toy) != PollOutcome::Idle {}
}

#[test]
fn reclaims_in_slices_from_the_high_watermark_to_the_low_one() {
    let mut toy = Toy::with(100 * MIB, Some(100 * MIB), 0);
    let mut reclaimer = one(marks(90, 2000, 0));
    sweep(&mut reclaimer, 0, &mut toy);
    assert_eq!(toy.usage[0], 70 * MIB);
    assert_eq!(toy.asked, [(0, 8 * MIB), (0, 8 * MIB), (0, 8 * MIB), (0, 6 * MIB)]);
    let report = reclaimer.report(GroupId(1)).unwrap();
    assert_eq!((report.rounds, report.reclaimed, report.exhausted), (1, Bytes(30 * MIB), 0));
    assert_eq!(report.levels, Some((Bytes(90 * MIB), Bytes(70 * MIB))));
    // Between the two levels nothing is reclaimed.
    toy.usage[0] = 89 * MIB;
    sweep(&mut reclaimer, 1_000_000, &mut toy);
    assert_eq!(toy.asked.len(), 4);
}

#[test]
fn without_a_limit_or_a_ratio_nothing_happens() {
    for (limit, ratio) in [(None, 95), (Some(100 * MIB), 0)] {
        let mut toy = Toy::with(100 * MIB, limit, 0);
        let mut reclaimer = one(marks(ratio, 50, 0));
        sweep(&mut reclaimer, 0, &mut toy);
        assert_eq!((toy.asked.len(), reclaimer.due()), (0, Some(MAX_INTERVAL)));
    }
}

#[test]
fn eagain_ends_the_round_and_the_pauses_grow() {
    let mut toy = Toy::with(100 * MIB, Some(100 * MIB), 100 * MIB);
    let mut reclaimer = one(marks(90, 1000, 0));
    let mut pauses = Vec::new();
    let mut now = 0;
    for _ in 0..9 {
        assert_eq!(reclaimer.poll(Micros(now), &mut toy), PollOutcome::Requested(GroupId(1)));
        let due = reclaimer.due().unwrap().0;
        pauses.push((due - now) / 100_000);
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
    // Reclaimable memory ends the pauses.
    toy.fixed[0] = 0;
    sweep(&mut reclaimer, now, &mut toy);
    assert_eq!(toy.usage[0], 80 * MIB);
    toy.usage[0] = 100 * MIB;
    toy.fixed[0] = 100 * MIB;
    now = reclaimer.due().unwrap().0;
    reclaimer.poll(Micros(now), &mut toy);
    assert_eq!(reclaimer.due().unwrap().0 - now, 100_000);
}

#[test]
fn what_eagain_gave_nonetheless_is_counted() {
    let mut toy = Toy::with(100 * MIB, Some(100 * MIB), 97 * MIB);
    let mut reclaimer = one(marks(90, 1000, 0));
    sweep(&mut reclaimer, 0, &mut toy);
    let report = reclaimer.report(GroupId(1)).unwrap();
    assert_eq!((report.reclaimed, report.exhausted, report.last_error), (Bytes(3 * MIB), 1, None));
}

#[test]
fn another_answer_is_kept_and_the_group_left_alone_for_long() {
    let mut toy = Toy { answer: Some(Errno::PERM), ..Toy::with(100 * MIB, Some(100 * MIB), 0) };
    let mut reclaimer = one(marks(90, 1000, 0));
    sweep(&mut reclaimer, 0, &mut toy);
    assert_eq!(reclaimer.report(GroupId(1)).unwrap().last_error, Some("EPERM"));
    assert_eq!((toy.asked.len(), reclaimer.due()), (1, Some(MAX_PAUSE)));
}

#[test]
fn a_group_that_is_gone_is_forgotten() {
    let mut toy = Toy::default();
    let mut reclaimer = one(marks(90, 1000, 0));
    assert_eq!(reclaimer.poll(Micros(0), &mut toy), PollOutcome::Gone(GroupId(1)));
    assert_eq!(reclaimer.due(), None);
}

#[test]
fn a_released_group_is_not_asked_again_even_in_the_middle_of_a_round() {
    let mut toy = Toy::with(100 * MIB, Some(100 * MIB), 0);
    let mut reclaimer = one(marks(90, 5000, 0));
    assert_eq!(reclaimer.poll(Micros(0), &mut toy), PollOutcome::Requested(GroupId(1)));
    reclaimer.release(GroupId(1));
    sweep(&mut reclaimer, u64::MAX, &mut toy);
    assert_eq!(toy.usage[0], 92 * MIB);
}

#[test]
fn a_growing_group_is_polled_often_and_a_still_one_seldom() {
    let mut toy = Toy::with(50 * MIB, Some(100 * MIB), 0);
    let mut reclaimer = one(marks(90, 50, 0));
    let mut now = 0;
    let mut next = |toy: &mut Toy| {
        reclaimer.poll(Micros(now), toy);
        let due = reclaimer.due().unwrap().0;
        let interval = due - now;
        now = due;
        interval
    };
    assert_eq!([(); 7].map(|()| next(&mut toy)), [10_000, 20_000, 40_000, 80_000, 160_000, 250_000, 250_000]);
    // 10 MiB in 250 ms: the remaining 30 MiB take 750 ms, half of which exceeds the longest interval.
    toy.usage[0] = 60 * MIB;
    assert_eq!(next(&mut toy), 250_000);
    toy.usage[0] = 85 * MIB;
    assert_eq!(next(&mut toy), 25_000);
    toy.usage[0] = 89 * MIB;
    assert_eq!(next(&mut toy), 10_000);
}

#[test]
fn while_the_node_runs_short_be_goes_first_and_lower_but_ls_is_not_forgotten() {
    let mut toy = Toy::with(60 * MIB, Some(100 * MIB), 0);
    toy.usage.push(98 * MIB);
    toy.limit.push(Some(100 * MIB));
    toy.fixed.push(0);
    let (ls, be) = (1, 0);
    let mut reclaimer = Reclaimer::default();
    reclaimer.set(GroupId(2), marks(95, 200, -25), ls, Micros(0));
    reclaimer.set(GroupId(1), marks(95, 200, 50), be, Micros(0));
    sweep(&mut reclaimer, 0, &mut toy);
    assert_eq!(toy.asked.iter().map(|&(group, _)| group).collect::<Vec<_>>(), [ls], "only it is above 95 %");
    toy.free.free = 0;
    toy.usage[ls] = 98 * MIB;
    toy.asked.clear();
    sweep(&mut reclaimer, 1_000_000, &mut toy);
    let order: Vec<usize> = toy.asked.iter().map(|&(group, _)| group).collect();
    assert_eq!(order.first(), Some(&be));
    assert!(order.contains(&ls), "{order:?}");
    assert!(toy.usage[be] < 48 * MIB && toy.usage[ls] > 93 * MIB, "{:?}", toy.usage);
}

/// A BE group and an LS group without their own limits, with the same amount of memory each.
fn unbounded(usage: u64) -> (Toy, Reclaimer<usize>) {
    let mut toy = Toy::with(usage, None, 0);
    toy.usage.push(usage);
    toy.limit.push(None);
    toy.fixed.push(0);
    let mut reclaimer = Reclaimer::default();
    reclaimer.set(GroupId(1), marks(95, 20, 50), BE, Micros(0));
    reclaimer.set(GroupId(2), marks(95, 20, -25), LS, Micros(0));
    (toy, reclaimer)
}

const BE: usize = 0;
const LS: usize = 1;

/// Polls the groups when they are due, until a time.
fn play(reclaimer: &mut Reclaimer<usize>, toy: &mut Toy, until: u64) {
    while let Some(due) = reclaimer.due().filter(|due| due.0 <= until) {
        reclaimer.poll(due, toy);
    }
}

#[test]
fn without_a_limit_of_their_own_be_pays_for_the_limit_above_and_ls_only_when_be_has_nothing() {
    for (fixed, expected) in [
        // 1000 MiB above: BE starts at 925 MiB and ends at 923 MiB.
        (0, (423, 500)),
        // LS starts at 962.5 MiB, so it is left alone.
        (460, (460, 500)),
        // BE has nothing to reclaim, so LS is reclaimed: down to 960.5 MiB.
        (500, (500, 460)),
    ] {
        let (mut toy, mut reclaimer) = unbounded(500 * MIB);
        toy.above = Some(1000 * MIB);
        toy.fixed[BE] = fixed * MIB;
        play(&mut reclaimer, &mut toy, 1_000_000);
        assert_eq!((toy.usage[BE] / MIB, toy.usage[LS] / MIB), expected, "{fixed} MiB of BE cannot be had");
        assert_eq!(toy.asked.first().map(|&(group, _)| group), Some(BE));
        // The same if only the node's memory is limited.
        let (mut toy, mut reclaimer) = unbounded(500 * MIB);
        toy.memory = Some(1000 * MIB);
        toy.fixed[BE] = fixed * MIB;
        play(&mut reclaimer, &mut toy, 3_000_000);
        let (be, ls) = (toy.usage[BE] / MIB, toy.usage[LS] / MIB);
        assert!(be <= expected.0 && ls <= expected.1 && be >= fixed, "{fixed}: {be} {ls}");
        assert_eq!(ls < 500, fixed == 500, "{fixed}: {be} {ls}");
    }
}

#[test]
fn before_the_kernel_takes_from_all_a_be_group_without_any_limit_gives_until_there_is_enough() {
    let (mut toy, mut reclaimer) = unbounded(500 * MIB);
    // Near from 30 000 pages on; 10 000 less are free.
    toy.free = FreePages { free: 20_000, min: 9000, low: 9500, high: 10_000, managed: 640_000 };
    play(&mut reclaimer, &mut toy, 5_000_000);
    let given = 500 - toy.usage[BE] / MIB;
    assert!((39..=56).contains(&given), "10 000 pages and a slice or two: {given} MiB");
    assert_eq!(toy.usage[LS], 500 * MIB, "LS pays nothing");
    // Plenty of memory again: no group is reclaimed.
    toy.free.free = 400_000;
    let before = toy.usage[BE];
    play(&mut reclaimer, &mut toy, 10_000_000);
    assert_eq!(toy.usage[BE], before);
}

#[test]
fn a_min_adj_alone_is_enough_to_pay_for_the_node() {
    let mut toy = Toy::with(500 * MIB, None, 480 * MIB);
    let mut reclaimer = one(marks(0, 50, 50));
    toy.free = FreePages { free: 0, min: 1 << 20, low: 1 << 20, high: 1 << 20, managed: 1 << 22 };
    play(&mut reclaimer, &mut toy, 60_000_000);
    assert_eq!(toy.usage[0], 480 * MIB);
    let report = reclaimer.report(GroupId(1)).unwrap();
    assert!((5..=15).contains(&report.exhausted), "asked ever more seldom: {report:?}");
}

proptest! {
    #[test]
    fn never_below_the_low_watermark(
        usage in 0..1_u64 << 40, limit in 0..1_u64 << 40, ratio in 0..=100_u8, scale in 1..=1000_u16, fixed in 0..1_u64 << 40,
    ) {
        let watermarks = marks(ratio, scale, 0);
        let low = watermarks.levels(Some(Bytes(limit)), Nearness::default()).map_or(u64::MAX, |levels| levels.low.0);
        // A group near its limit, so that the number of slices stays small.
        let usage = usage.min(limit).max(limit.saturating_sub(1 << 30));
        let mut toy = Toy::with(usage, Some(limit), fixed);
        sweep(&mut one(watermarks), 0, &mut toy);
        prop_assert!(toy.usage[0] >= low.min(usage), "{} of {usage} left, low {low}", toy.usage[0]);
    }
}
