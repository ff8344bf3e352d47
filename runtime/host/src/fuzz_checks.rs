//! Properties of the parsers that hold for any bytes: checked by the fuzz targets in `fuzz/` and by this crate's own
//! tests. Each function panics if its property is violated.
//!
//! Most of them are the same property: a parsed value, written as the kernel writes it, parses to the same value.

use std::fmt::Write as _;

use qosm_model::numa::list_text;

use crate::mounts::{self, CgroupVersion, Controller, Hierarchies, Mount};
use crate::parse;
use crate::resctrl::Schemata;

/// `cpu.stat` of both versions.
pub fn cpu_stat(text: &[u8]) {
    keyed(text, ["usage_usec", "nr_periods", "nr_throttled", "throttled_usec"]);
    keyed(text, ["nr_periods", "nr_throttled", "throttled_time"]);
}

/// `memory.stat` of both versions.
pub fn memory_stat(text: &[u8]) {
    keyed(text, ["anon", "file", "inactive_file"]);
    keyed(text, ["total_rss", "total_cache", "total_inactive_file"]);
}

/// `cpu.max`.
pub fn cpu_max(text: &[u8]) {
    let Some((quota, period)) = parse::cpu_max(text) else { return };
    let quota_text = quota.map_or_else(|| "max".to_owned(), |quota| quota.0.to_string());
    let written = format!("{quota_text} {}\n", period.0);
    assert_eq!(parse::cpu_max(written.as_bytes()), Some((quota, period)), "{written:?}");
}

/// `cpu.pressure`, `memory.pressure`, `io.pressure`.
pub fn pressure(text: &[u8]) {
    let Some(stall) = parse::pressure(text) else { return };
    let line = |word, total| format!("{word} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
    let written = line("some", stall.some.0) + &line("full", stall.full.0);
    assert_eq!(parse::pressure(written.as_bytes()), Some(stall), "{written:?}");
}

/// `memory.numa_stat` of both versions, `numa_maps`, `maps`, lists of CPUs and nodes, `distance`, `meminfo`, `zoneinfo`.
pub fn numa(text: &[u8]) {
    if let Some(numbers) = parse::numa::list(text) {
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
        let written = list_text(numbers.iter().copied());
        assert_eq!(parse::numa::list(written.as_bytes()), Some(numbers), "{written:?}");
    }
    if let Some(distances) = parse::numa::distances(text) {
        let written: Vec<String> = distances.iter().map(u32::to_string).collect();
        assert_eq!(parse::numa::distances(written.join(" ").as_bytes()), Some(distances), "{written:?}");
    }
    if let Some(pages) = parse::numa::numa_stat(CgroupVersion::V1, 4096, text) {
        let words: String = pages.iter().map(|(id, pages)| format!(" N{id}={pages}")).collect();
        let written = format!("total=0{words}\n");
        assert_eq!(parse::numa::numa_stat(CgroupVersion::V1, 4096, written.as_bytes()), Some(pages), "{written:?}");
    }
    for page_size in [0, 4096, 65_536] {
        if let Some(pages) = parse::numa::numa_stat(CgroupVersion::V2, page_size, text) {
            let twice = pages.windows(2).any(|pair| pair[0].0 >= pair[1].0);
            assert!(!pages.is_empty() && !twice, "{pages:?}");
        }
    }
    for line in text.split(|&byte| byte == b'\n') {
        if let Some(mapping) = parse::numa::mapping(line, 4096) {
            assert!(mapping.page_size > 0, "{mapping:?}");
        }
        if let Some((start, end)) = parse::numa::range(line) {
            assert!(start <= end, "{start:x} {end:x}");
        }
    }
    let sums = parse::numa::high_watermarks(text);
    assert!(sums.iter().enumerate().all(|(place, (id, _))| sums[..place].iter().all(|(other, _)| other != id)));
    parse::numa::node_memory(text, "MemFree");
    parse::numa::pressure_average(text);
}

/// `/proc/self/mountinfo`, and the hierarchies that are found in it.
pub fn mountinfo(text: &[u8]) {
    let mounts = mounts::parse(&String::from_utf8_lossy(text));
    for mount in &mounts {
        let written = line(mount);
        assert_eq!(mounts::parse(&written), std::slice::from_ref(mount), "{written:?}");
    }
    let device = mounts.first().map(|mount| mount.device);
    for prefix in [mounts::prefix(&mounts, device), mounts::prefix(&mounts, None), "/".to_owned()] {
        let found = Hierarchies::find(&mounts, &prefix);
        for controller in Controller::ALL {
            let Some(place) = found.of(controller) else { continue };
            assert!(found.list.get(place).is_some_and(|tree| tree.controllers.contains(&controller)), "{controller:?}");
        }
    }
}

/// resctrl's `schemata`.
pub fn schemata(text: &[u8]) {
    let Ok(schemata) = String::from_utf8_lossy(text).parse::<Schemata>() else { return };
    let written = schemata.to_string();
    assert_eq!(written.parse().as_ref(), Ok(&schemata), "{written:?}");
    assert!(schemata.difference(&schemata) == Default::default(), "{written:?}");
    let alone = schemata.difference(&Schemata::new());
    assert_eq!(alone.absent.len(), schemata.masks().count() + schemata.bandwidths().count(), "{written:?}");
}

/// A flat keyed file: each parsed value appears on a line with its key, and it is found if the file has it and no key appears twice.
fn keyed<const N: usize>(text: &[u8], keys: [&str; N]) {
    let expected = |key: &str| -> Vec<Option<u64>> {
        let lines = text.split(|&byte| byte == b'\n');
        let values = lines.filter_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b" "));
        values.map(parse::number).collect()
    };
    let all = keys.map(expected);
    let unique = all.iter().all(|values| values.len() < 2);
    for ((key, expected), value) in keys.iter().zip(&all).zip(parse::keyed(text, keys)) {
        match value {
            Some(_) => assert!(expected.contains(&value), "{key}: {value:?} of {expected:?}"),
            None => assert!(!unique || expected.iter().all(Option::is_none), "{key}: nothing of {expected:?}"),
        }
    }
}

/// A mount as the kernel prints it, but without a newline, and with more characters escaped than necessary.
fn line(mount: &Mount) -> String {
    let escaped = |text: &str| {
        text.chars().fold(String::new(), |mut escaped, character| {
            if !character.is_ascii() || character.is_ascii_alphanumeric() || character == '/' {
                escaped.push(character);
            } else {
                let _ = write!(escaped, "\\{:03o}", u32::from(character));
            }
            escaped
        })
    };
    let Mount { device: (major, minor), root, point, kind, options } = mount;
    format!("36 35 {major}:{minor} {} {} rw shared:1 - {kind} none {options}", escaped(root), escaped(point))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_hold_for_any_bytes(text: Vec<u8>) {
            for check in [cpu_stat, memory_stat, cpu_max, pressure, numa, mountinfo, schemata] {
                check(&text);
            }
        }

        #[test]
        fn they_hold_for_what_looks_like_the_kernels(
            keyed in "((anon|file|nr_periods|nr_throttled|usage_usec|total_rss|x)( |_| {2})?[0-9]{0,21}[ \r]?\n?){0,9}",
            max in "(max|[0-9]{1,21}|-1) ?([0-9]{1,21}|x)?\n?",
            lists in "([0-9]{1,5}(-[0-9]{1,5})?,?){0,6}\n?",
            numa in "((total=[0-9]{0,3}|anon|file|hierarchical_total=1|Node [0-9],|high|[0-9a-f]{1,9}(-[0-9a-f]{1,9})?)\
                     ( N?[0-9]{0,2}=?[0-9]{0,21}| default| file=/x| kernelpagesize_kB=[0-9]{0,5}){0,4}\n?){0,6}",
            stall in "((some|full) (avg10=0.00 )?(total=[0-9]{0,21})?\n?){0,3}",
            mounts in "(3 2 0:[0-9]{1,2} /[a-z\\\\0-7]{0,9} [ /a-z\\\\0-7-]{1,12} rw( [a-z:0-9]{1,3})? - \
                       (cgroup|cgroup2|tmpfs|-) ([a-z ]{0,5}) [a-z,_\r]{0,9}\n?){0,3}",
            schemata in "( {0,4}(L3|L2CODE|MB|L9|):(([0-9]{1,2}= {0,2}[0-9a-f]{1,9};?){0,3}|uninitialized)\r?\n?){0,4}",
        ) {
            cpu_stat(keyed.as_bytes());
            memory_stat(keyed.as_bytes());
            cpu_max(max.as_bytes());
            pressure(stall.as_bytes());
            self::numa(lists.as_bytes());
            self::numa(numa.as_bytes());
            mountinfo(mounts.as_bytes());
            self::schemata(schemata.as_bytes());
        }
    }
}
