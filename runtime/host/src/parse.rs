//! Parsers for the kernel's files. The input is untrusted: no parser panics, allocates on the hot path, or relies on an order. What a
//! simulated kernel prints of them is beside the parser.

use memchr::memchr;
use qosm_model::column::Stall;
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Value};
use qosm_model::node::NodeMemory;
use qosm_model::unit::{Bytes, Micros};

use crate::knob_table::{Encoding, KnobRow, unlimited_bytes};
use crate::mounts::CgroupVersion;
use crate::reclaim::FreePages;
use crate::signals::OwnUse;
use crate::weight;

pub mod block_io;
pub mod numa;

/// A whole number in decimal digits, with optional white space around it.
pub fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
    }
    let mut sum: u64 = 0;
    for &byte in text {
        if !byte.is_ascii_digit() {
            return None;
        }
        sum = sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some(sum)
}

/// A whole number with an optional sign.
pub fn signed(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The values of some keys in a flat keyed file (`KEY VALUE` lines, in any order). Stops after the last key is found.
pub fn keyed<const N: usize>(text: &[u8], keys: [&str; N]) -> [Option<u64>; N] {
    let mut values = [None; N];
    let mut missing = N;
    let mut rest = text;
    while missing > 0 && !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        for (key, value) in keys.iter().zip(values.iter_mut()) {
            if value.is_none() && line.len() > key.len() && line[key.len()] == b' ' && line.starts_with(key.as_bytes())
            {
                *value = number(&line[key.len()..]);
                missing -= 1;
                break;
            }
        }
    }
    values
}

/// A pressure file: the totals of its `some` and `full` lines. A missing `full` line counts as 0: old kernels have none for the CPU.
pub fn pressure(text: &[u8]) -> Option<Stall> {
    let mut stall = Stall::default();
    let mut some = false;
    for line in text.split(|&byte| byte == b'\n') {
        let Some(at) = line.windows(6).position(|window| window == b"total=") else { continue };
        let total = Micros(number(&line[at + 6..])?);
        if line.starts_with(b"some ") {
            stall.some = total;
            some = true;
        } else if line.starts_with(b"full ") {
            stall.full = total;
        }
    }
    some.then_some(stall)
}

/// Busy ticks of all CPUs, from the first line of `/proc/stat`. Idle time and waiting for I/O do not count; guest time
/// is already part of user time.
pub fn busy_ticks(text: &[u8]) -> Option<u64> {
    busy_fields(text.split(|&byte| byte == b'\n').next()?.strip_prefix(b"cpu ")?)
}

/// Busy ticks of some of the CPUs. An offline CPU has no line, and counts as 0.
pub fn busy_ticks_of(text: &[u8], cpus: &[u32]) -> u64 {
    let lines = text.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"cpu"));
    let of_cpu = lines.filter_map(|line| {
        let end = line.iter().position(|&byte| byte == b' ').filter(|&end| end > 0)?;
        let (cpu, fields) = line.split_at_checked(end)?;
        let cpu = u32::try_from(number(cpu)?).ok()?;
        if cpus.contains(&cpu) { busy_fields(fields) } else { None }
    });
    of_cpu.fold(0, u64::saturating_add)
}

fn busy_fields(line: &[u8]) -> Option<u64> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).map(number);
    let mut next = || fields.next().flatten();
    let (user, nice, system) = (next()?, next()?, next()?);
    let _idle = next()?;
    // Kernels before 2.6.11 print fewer fields.
    let (_iowait, irq, softirq, steal) = (next(), next(), next(), next());
    [nice, system, irq.unwrap_or(0), softirq.unwrap_or(0), steal.unwrap_or(0)]
        .into_iter()
        .try_fold(user, u64::checked_add)
}

/// `MemTotal` and `MemAvailable` of `/proc/meminfo`, whose unit is KiB.
pub fn meminfo(text: &[u8]) -> Option<(Bytes, Bytes)> {
    Some((meminfo_field(text, b"MemTotal:")?, meminfo_field(text, b"MemAvailable:")?))
}

/// CPU time and memory of a process from `/proc/PID/stat` (proc_pid_stat(5)). The process name may contain blanks and brackets.
pub fn own_use(text: &[u8], ticks_per_second: u64, page_size: u64) -> Option<OwnUse> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text.get(end + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    // The state is the third field, the times are the 14th and 15th, the sizes the 23rd and 24th.
    let mut after = |skipped: usize| number(fields.nth(skipped)?);
    let (user, system) = (after(11)?, after(0)?);
    let (virtual_memory, resident_pages) = (after(7)?, after(0)?);
    Some(OwnUse {
        cpu: Micros(user.saturating_add(system).saturating_mul(1_000_000 / ticks_per_second.max(1))),
        virtual_memory: Bytes(virtual_memory),
        resident_memory: Bytes(resident_pages.saturating_mul(page_size)),
    })
}

/// `/proc/meminfo`, which does not contain the watermarks.
pub fn node_memory(text: &[u8]) -> Option<NodeMemory> {
    Some(NodeMemory {
        total: Some(meminfo_field(text, b"MemTotal:")?),
        free: meminfo_field(text, b"MemFree:")?,
        available: meminfo_field(text, b"MemAvailable:")?,
        active_file: meminfo_field(text, b"Active(file):")?,
        inactive_file: meminfo_field(text, b"Inactive(file):")?,
        ..NodeMemory::default()
    })
}

/// `/proc/meminfo` of a simulated kernel.
pub(crate) fn meminfo_text(total: Bytes, memory: NodeMemory) -> String {
    let fields = [
        ("MemTotal", total),
        ("MemFree", memory.free),
        ("MemAvailable", memory.available),
        ("Active(file)", memory.active_file),
        ("Inactive(file)", memory.inactive_file),
    ];
    fields.iter().map(|(name, bytes)| format!("{name}: {} kB\n", bytes.0 / 1024)).collect()
}

fn meminfo_field(text: &[u8], name: &[u8]) -> Option<Bytes> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    number(line.strip_suffix(b"kB")?)?.checked_mul(1024).map(Bytes)
}

/// Free pages and watermarks of each NUMA node from `/proc/zoneinfo`, summed over its zones. Per-CPU pages are not
/// counted: their names have a colon. The kernel raises the marks by `boost` for a short time after an allocation of
/// scattered pages; the parser subtracts it.
pub fn zoneinfo(text: &[u8]) -> Option<Vec<FreePages>> {
    let mut nodes: Vec<(u64, FreePages)> = Vec::new();
    let mut boost = 0;
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (first, second, third) = (words.next(), words.next(), words.next());
        if let (Some(b"Node"), Some(id)) = (first, second) {
            let id = number(id.strip_suffix(b",")?)?;
            if nodes.last().is_none_or(|(last, _)| *last != id) {
                nodes.push((id, FreePages::default()));
            }
            boost = 0;
            continue;
        }
        let Some((_, sum)) = nodes.last_mut() else { continue };
        let (place, value, raised) = match (first, second) {
            (Some(b"boost"), value) => {
                boost = number(value?)?;
                continue;
            }
            (Some(b"pages"), Some(b"free")) => (&mut sum.free, third, 0),
            (Some(b"managed"), value) => (&mut sum.managed, value, 0),
            (Some(b"min"), value) => (&mut sum.min, value, boost),
            (Some(b"low"), value) => (&mut sum.low, value, boost),
            (Some(b"high"), value) => (&mut sum.high, value, boost),
            _ => continue,
        };
        *place = place.saturating_add(number(value?)?.saturating_sub(raised));
    }
    (!nodes.is_empty()).then(|| nodes.into_iter().map(|(_, node)| node).collect())
}

/// Major and minor number of a kernel's release, e.g. `4.19.91-26.al7.x86_64`.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split(|byte: char| !byte.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Number of CPUs or NUMA nodes in a list such as `0-3,8`; 0 for an empty list.
pub fn list_length(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(0);
    }
    let mut length: u32 = 0;
    for range in text.split(|&byte| byte == b',') {
        let mut ends = range.splitn(2, |&byte| byte == b'-').map(number);
        let first = u32::try_from(ends.next()??).ok()?;
        let last = match ends.next() {
            Some(last) => u32::try_from(last?).ok()?,
            None => first,
        };
        length = length.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(length)
}

/// The quota and period of `cpu.max`: `QUOTA PERIOD`, where `QUOTA` may be `max`.
pub fn cpu_max(text: &[u8]) -> Option<(Option<Micros>, Micros)> {
    let text = text.trim_ascii();
    let space = text.iter().position(|&byte| byte == b' ')?;
    let (quota, period) = (&text[..space], &text[space + 1..]);
    let quota = if quota == b"max" { None } else { Some(Micros(number(quota)?)) };
    Some((quota, Micros(number(period)?)))
}

/// The quota of `cpu.cfs_quota_us`: a negative number means no limit.
pub fn cfs_quota(text: &[u8]) -> Option<Option<Micros>> {
    let quota = signed(text)?;
    Some(u64::try_from(quota).ok().map(Micros))
}

/// The value of a knob in its file; for a device's knob, the value for that device.
pub(crate) fn value_of(knob: Knob, row: &KnobRow, version: CgroupVersion, page: i64, text: &[u8]) -> Option<Value> {
    match (row.line(), knob.device()) {
        (Some(line), Some(device)) => block_io::value(line, device, text),
        _ => self::knob(row.encoding, version, page, text),
    }
}

/// The value of a knob without a device in its file.
pub fn knob(encoding: Encoding, version: CgroupVersion, page: i64, text: &[u8]) -> Option<Value> {
    let value = |number: u64| i64::try_from(number).map_or(Value::Max, Value::Number);
    match (encoding, version) {
        (Encoding::Quota, CgroupVersion::V1) => Some(cfs_quota(text)?.map_or(Value::Max, |quota| value(quota.0))),
        (Encoding::Quota, CgroupVersion::V2) => Some(cpu_max(text)?.0.map_or(Value::Max, |quota| value(quota.0))),
        (Encoding::Bytes, _) if text.trim_ascii() == b"max" => Some(Value::Max),
        (Encoding::Bytes, _) => Some(match value(number(text)?) {
            Value::Number(bytes) if bytes >= unlimited_bytes(page) => Value::Max,
            other => other,
        }),
        (Encoding::Micros, _) => number(text).map(value),
        (Encoding::Bits, _) => {
            let bits = numa::list(text)?;
            Some(if bits.is_empty() { Value::Max } else { Value::Number(numa::mask(&bits)?) })
        }
        (Encoding::Cpus, _) => {
            let cpus = CpuSet::of(&numa::list(text)?).ok()?;
            Some(if cpus.is_empty() { Value::Max } else { Value::Cpus(cpus) })
        }
        (Encoding::Weight, CgroupVersion::V1) => Some(weight::of_shares(i64::try_from(number(text)?).ok()?)),
        (Encoding::Integer | Encoding::Flag | Encoding::Weight, _) => signed(text).map(Value::Number),
        (Encoding::Line(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_process_uses_is_found_behind_any_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 8 0 99 4096000 25 18446744073709551615";
        let own = own_use(stat, 100, 4096).unwrap();
        assert_eq!(
            (own.cpu, own.virtual_memory, own.resident_memory),
            (Micros(2_000_000), Bytes(4_096_000), Bytes(102_400))
        );
        assert_eq!(own_use(b"7 (x) S 1", 100, 4096), None);
    }

    #[test]
    fn finds_keys_in_any_order_and_only_whole_ones() {
        let text = b"nr_periods 12\nnr_throttled_other 9\nnr_throttled 3\nthrottled_time 4500\nrest";
        assert_eq!(keyed(text, ["nr_throttled", "nr_periods", "absent"]), [Some(3), Some(12), None]);
        assert_eq!(keyed(b"total_rss_huge 1\ntotal_rss 2\n", ["total_rss"]), [Some(2)]);
        assert_eq!(keyed(b"key abc\n", ["key"]), [None]);
    }

    #[test]
    fn reads_the_release_of_a_kernel() {
        for (text, expected) in [
            ("4.19.91-26.al7.x86_64\n", Some((4, 19))),
            ("5.9.0-rc1", Some((5, 9))),
            ("6.18.44", Some((6, 18))),
            ("5.10-generic", Some((5, 10))),
            ("6", None),
            ("", None),
            ("linux", None),
        ] {
            assert_eq!(release(text), expected, "{text:?}");
        }
    }

    #[test]
    fn reads_pressure_with_and_without_full() {
        let both = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=17\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(pressure(both), Some(Stall { some: Micros(17), full: Micros(5) }));
        let one = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";
        assert_eq!(pressure(one), Some(Stall { some: Micros(17), full: Micros(0) }));
        assert_eq!(pressure(b""), None);
    }

    #[test]
    fn counts_busy_time_once() {
        let text = b"cpu  85411 3002 11320 185914 1789 7 172 97 40 4\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(85_411 + 3002 + 11_320 + 7 + 172 + 97));
        assert_eq!(busy_ticks(b"cpu  1 2 3 4\n"), Some(6));
        let each = b"cpu  11 0 0 9\ncpu0 1 0 0 2\ncpu1 10 0 0 3\ncpu12 100 0 0 4\nintr 5 6\ncpu 3\n";
        assert_eq!(
            [busy_ticks_of(each, &[1]), busy_ticks_of(each, &[0, 12, 7]), busy_ticks_of(each, &[])],
            [10, 101, 0]
        );
        assert_eq!(busy_ticks(b"cpu0 1 2 3 4\n"), None);
    }

    #[test]
    fn reads_meminfo() {
        let text = b"MemTotal:       24684092 kB\nMemFree:        23199992 kB\nMemAvailable:   24036220 kB\n";
        assert_eq!(meminfo(text), Some((Bytes(24_684_092 * 1024), Bytes(24_036_220 * 1024))));
        assert_eq!(meminfo(b"MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn sums_zones_of_a_node_and_leaves_out_what_cpus_keep() {
        let text = b"Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 17\n  pages free     3840\n        boost    5\n\
            \x20       min      13\n        low      16\n        high     19\n        managed  3900\n  pagesets\n    cpu: 0\n\
            \x20             count: 5\n              high:  62\n              high_min: 3\nNode 0, zone    DMA32\n\
            \x20 pages free     100\n        min      40\n        low      50\n        high     60\n        managed  200\n\
            Node 1, zone   Normal\n  pages free     7\n        min      1\n        low      2\n        high     3\n        managed  9\n";
        let first = FreePages { free: 3940, min: 48, low: 61, high: 74, managed: 4100 };
        let second = FreePages { free: 7, min: 1, low: 2, high: 3, managed: 9 };
        assert_eq!(zoneinfo(text), Some(vec![first, second]));
        assert_eq!(zoneinfo(b""), None);
        assert_eq!(zoneinfo(b"Node 0, zone DMA\n  pages free     many\n"), None);
    }

    #[test]
    fn counts_lists() {
        for (text, length) in
            [("0-1\n", Some(2)), ("0-3,8,10-11", Some(7)), ("", Some(0)), ("3-1", None), ("a", None), ("0-", None)]
        {
            assert_eq!(list_length(text.as_bytes()), length, "{text:?}");
        }
    }

    #[test]
    fn reads_knobs() {
        use CgroupVersion::{V1, V2};
        for (encoding, version, text, value) in [
            (Encoding::Quota, V1, "-1\n", Some(Value::Max)),
            (Encoding::Quota, V1, "200000\n", Some(Value::Number(200_000))),
            (Encoding::Quota, V2, "max 100000\n", Some(Value::Max)),
            (Encoding::Quota, V2, "50000 100000\n", Some(Value::Number(50_000))),
            (Encoding::Quota, V2, "50000\n", None),
            (Encoding::Bytes, V2, "max\n", Some(Value::Max)),
            (Encoding::Bytes, V1, "9223372036854771712\n", Some(Value::Max)),
            (Encoding::Bytes, V1, "18446744073709551615\n", Some(Value::Max)),
            (Encoding::Bytes, V1, "4096\n", Some(Value::Number(4096))),
            (Encoding::Integer, V1, "-25\n", Some(Value::Number(-25))),
            (Encoding::Flag, V2, "1\n", Some(Value::Number(1))),
            (Encoding::Micros, V2, "", None),
            (Encoding::Weight, V1, "1024\n", Some(Value::Number(100))),
            (Encoding::Weight, V1, "2\n", Some(Value::Shares(2))),
            (Encoding::Weight, V1, "18446744073709551615\n", None),
            (Encoding::Weight, V2, "39\n", Some(Value::Number(39))),
            (Encoding::Cpus, V1, "0-1,70\n", Some(Value::Cpus(CpuSet::of(&[0, 1, 70]).unwrap()))),
            (Encoding::Cpus, V2, "\n", Some(Value::Max)),
            (Encoding::Cpus, V2, "1024\n", None),
        ] {
            assert_eq!(knob(encoding, version, 4096, text.as_bytes()), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn survives_any_bytes(text: Vec<u8>) {
            let _ = (number(&text), signed(&text), keyed(&text, ["a", "nr_periods"]), pressure(&text), busy_ticks(&text));
            let _ = busy_ticks_of(&text, &[0, 1]);
            let _ = (zoneinfo(&text), meminfo(&text), node_memory(&text), list_length(&text), cpu_max(&text), cfs_quota(&text));
            for encoding in [Encoding::Quota, Encoding::Micros, Encoding::Bytes, Encoding::Integer, Encoding::Flag, Encoding::Weight, Encoding::Cpus] {
                for version in [CgroupVersion::V1, CgroupVersion::V2] {
                    let _ = knob(encoding, version, 4096, &text);
                }
            }
        }

        #[test]
        fn reads_back_what_is_written(quota in proptest::option::of(1000_u64..1 << 40), period in 1000_u64..=1_000_000) {
            let spelled = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
            let text = format!("{spelled} {period}\n");
            prop_assert_eq!(cpu_max(text.as_bytes()), Some((quota.map(Micros), Micros(period))));
        }

        #[test]
        fn keeps_keyed_values(values: [u64; 3]) {
            let text = format!("x 1\nb {}\ny 2\na {}\nc {}\n", values[0], values[1], values[2]);
            prop_assert_eq!(keyed(text.as_bytes(), ["a", "b", "c"]), [Some(values[1]), Some(values[0]), Some(values[2])]);
        }
    }
}
