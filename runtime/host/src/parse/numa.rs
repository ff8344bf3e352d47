//! NUMA data in the kernel's files: lists, distances, memory per node.
//!
//! Kernel: Documentation/admin-guide/cgroup-v1/memory.rst section 5.6, cgroup-v2.rst "memory.numa_stat", numa(7).

use qosm_model::numa::NumaId;

use super::number;
use crate::mounts::CgroupVersion;

/// Upper bound of CPU and NUMA node numbers: more than any kernel supports.
const MAX: u64 = 8192;
/// Length from which duplicates are removed while a list is still being parsed.
const TOO_MANY: usize = 4 * 8192;

/// The numbers of a list such as `0-3,8`, ascending. An empty text gives an empty list; a number above the kernel's limits gives `None`.
pub fn list(text: &[u8]) -> Option<Vec<u32>> {
    let text = text.trim_ascii();
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Some(numbers);
    }
    for range in text.split(|&byte| byte == b',') {
        let mut ends = range.splitn(2, |&byte| byte == b'-').map(number);
        let first = ends.next()??;
        let last = match ends.next() {
            Some(last) => last?,
            None => first,
        };
        if first > last || last >= MAX {
            return None;
        }
        numbers.extend((first..=last).filter_map(|number| u32::try_from(number).ok()));
        // Remove duplicates early, so that the list stays bounded.
        if numbers.len() > TOO_MANY {
            numbers.sort_unstable();
            numbers.dedup();
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// `distance` of a node: one number for each node, in node order.
pub fn distances(text: &[u8]) -> Option<Vec<u32>> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| u32::try_from(number(word)?).ok()).collect()
}

/// One field of a node's `meminfo` (`Node 0 MemFree:  123 kB`), in bytes.
pub fn node_memory(text: &[u8], field: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (node, _number) = (words.next()?, words.next()?);
        let name = words.next()?.strip_suffix(b":")?;
        (node == b"Node" && name == field.as_bytes()).then(|| number(words.next()?)?.checked_mul(1024)).flatten()
    })
}

/// Pages below the high watermarks of each node's zones, from `/proc/zoneinfo`, which the kernel keeps free.
pub fn high_watermarks(text: &[u8]) -> Vec<(NumaId, u64)> {
    let mut sums: Vec<(NumaId, u64)> = Vec::new();
    let mut node = None;
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(|byte| b" ,\t".contains(byte)).filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some(b"Node"), Some(id)) => node = number(id).and_then(|id| u32::try_from(id).ok()).map(NumaId),
            // For the page sets of single CPUs, the word has a colon.
            (Some(b"high"), Some(pages)) => {
                let (Some(node), Some(pages)) = (node, number(pages)) else { continue };
                match sums.iter_mut().find(|(id, _)| *id == node) {
                    Some((_, sum)) => *sum = sum.saturating_add(pages),
                    None => sums.push((node, pages)),
                }
            }
            _ => {}
        }
    }
    sums
}

/// Pages on each node, from a cgroup's `memory.numa_stat`. v1 counts pages, and its `hierarchical_total` includes the
/// cgroups below; v2 counts bytes of `anon` and `file`, always including the cgroups below. `None` if a line is
/// missing, or the lines list different nodes.
pub fn numa_stat(version: CgroupVersion, page_size: u64, text: &[u8]) -> Option<Vec<(NumaId, u64)>> {
    let line = |key: &[u8]| {
        let mut lines = text.split(|&byte| byte == b'\n');
        lines.find_map(|line| {
            line.strip_prefix(key).filter(|rest| rest.first().is_none_or(|&byte| b" =".contains(&byte)))
        })
    };
    match version {
        CgroupVersion::V1 => {
            if !text.starts_with(b"total=") {
                return None;
            }
            by_node(line(b"hierarchical_total").or_else(|| line(b"total"))?)
        }
        CgroupVersion::V2 => {
            let (anon, file) = (by_node(line(b"anon")?)?, by_node(line(b"file")?)?);
            let same = anon.len() == file.len() && anon.iter().zip(&file).all(|((one, _), (other, _))| one == other);
            let pages = |bytes: u64| bytes / page_size.max(1);
            same.then(|| {
                anon.iter()
                    .zip(&file)
                    .map(|(&(id, anon), &(_, file))| (id, pages(anon).saturating_add(pages(file))))
                    .collect()
            })
        }
    }
}

/// The `N<node>=<number>` words of a line; `None` without any, or with duplicate nodes.
fn by_node(line: &[u8]) -> Option<Vec<(NumaId, u64)>> {
    let mut nodes: Vec<(NumaId, u64)> = Vec::new();
    for word in line.split(u8::is_ascii_whitespace).filter(|word| word.starts_with(b"N")) {
        let at = word.iter().position(|&byte| byte == b'=')?;
        let id = u32::try_from(number(&word[1..at])?).ok().filter(|&id| u64::from(id) < MAX).map(NumaId)?;
        if nodes.iter().any(|(known, _)| *known == id) {
            return None;
        }
        nodes.push((id, number(&word[at + 1..])?));
    }
    nodes.sort_unstable();
    (!nodes.is_empty()).then_some(nodes)
}

/// A line of `/proc/PID/numa_maps`: one mapping and its pages on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Start address.
    pub start: u64,
    /// Number of pages on each node, in units of `page_size`.
    pub pages: Vec<(NumaId, u64)>,
    /// Size of its pages in bytes; larger than the base page size for hugetlb.
    pub page_size: u64,
    /// It maps a file that other containers may have mapped too, such as a program or library, but not shared memory.
    pub is_file: bool,
}

/// Parses a mapping's line; `None` if it has no pages.
pub fn mapping(line: &[u8], base_page_size: u64) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let start = u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok()?;
    let _policy = words.next()?;
    let mut mapping = Mapping { start, pages: Vec::new(), page_size: base_page_size, is_file: false };
    for word in words {
        if let Some(file) = word.strip_prefix(b"file=") {
            const MEMORY: [&[u8]; 4] = [b"/dev/zero", b"/dev/shm/", b"/SYSV", b"/memfd:"];
            mapping.is_file = !MEMORY.iter().any(|prefix| file.starts_with(prefix));
        } else if let Some(kib) = word.strip_prefix(b"kernelpagesize_kB=") {
            mapping.page_size = number(kib)?.checked_mul(1024).filter(|&size| size > 0)?;
        }
    }
    mapping.pages = by_node(line)?;
    Some(mapping)
}

/// Start and end of the mapping in a line of `/proc/PID/maps`.
pub fn range(line: &[u8]) -> Option<(u64, u64)> {
    let range = std::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    address(start).zip(address(end)).filter(|(start, end)| start < end)
}

/// `avg10` of a pressure file's `some` line, in hundredths of a percent.
pub fn pressure_average(text: &[u8]) -> Option<u32> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"some avg10="))?;
    let word = line.split(|&byte| byte == b' ').next()?;
    let at = word.iter().position(|&byte| byte == b'.')?;
    let (whole, part) = (number(&word[..at])?, &word[at + 1..]);
    if part.len() != 2 {
        return None;
    }
    u32::try_from(whole.checked_mul(100)?.checked_add(number(part)?)?).ok()
}

/// A bit mask of the numbers; `None` for numbers above 62.
pub fn mask(list: &[u32]) -> Option<i64> {
    list.iter().try_fold(0_i64, |mask, &bit| Some(mask | 1_i64.checked_shl(bit).filter(|_| bit < 63)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pages(pages: &[(u32, u64)]) -> Vec<(NumaId, u64)> {
        pages.iter().map(|&(id, pages)| (NumaId(id), pages)).collect()
    }

    #[test]
    fn reads_lists() {
        for (text, expected) in [
            ("0-3,8\n", Some(vec![0, 1, 2, 3, 8])),
            ("1", Some(vec![1])),
            ("4,0-1,1", Some(vec![0, 1, 4])),
            ("\n", Some(vec![])),
            ("3-1", None),
            ("0-", None),
            ("x", None),
            ("0-4294967295", None),
        ] {
            assert_eq!(list(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn reads_numa_stat_of_version_1() {
        let text = "total=44611 N0=32631 N1=7501 N2=1982 N3=2497\nfile=44428 N0=32614 N1=7335 N2=1982 N3=2497\n\
                    anon=183 N0=17 N1=166 N2=0 N3=0\nunevictable=0 N0=0 N1=0 N2=0 N3=0\n\
                    hierarchical_total=768133 N0=509113 N1=138887 N2=20464 N3=99669\n";
        let expected = pages(&[(0, 509_113), (1, 138_887), (2, 20_464), (3, 99_669)]);
        assert_eq!(numa_stat(CgroupVersion::V1, 4096, text.as_bytes()), Some(expected));
        let old = "total=5 N0=2 N1=3\nfile=0 N0=0 N1=0\n";
        assert_eq!(numa_stat(CgroupVersion::V1, 4096, old.as_bytes()), Some(pages(&[(0, 2), (1, 3)])));
    }

    #[test]
    fn reads_numa_stat_of_version_2() {
        let text = "anon N0=193236992 N1=4096\nfile N0=1367764992 N2=8191\n";
        assert_eq!(numa_stat(CgroupVersion::V2, 4096, text.as_bytes()), None, "other nodes in the second line");
        let text =
            "anon N0=193236992 N1=4096\nfile N0=1367764992 N1=8191\nkernel_stack N0=1 N1=1\nfile_mapped N0=9 N1=9\n";
        let expected = pages(&[(0, (193_236_992 + 1_367_764_992) / 4096), (1, 2)]);
        assert_eq!(numa_stat(CgroupVersion::V2, 4096, text.as_bytes()), Some(expected));
        let text = "anon N0=65536\nfile N0=131072\n";
        assert_eq!(numa_stat(CgroupVersion::V2, 65_536, text.as_bytes()), Some(pages(&[(0, 3)])));
    }

    #[test]
    fn what_is_no_numa_stat_is_refused() {
        use CgroupVersion::{V1, V2};
        for (version, text) in [
            (V1, ""),
            (V1, "file=1 N0=1\n"),
            (V1, "total=1\n"),
            (V1, "total=1 N0=x\n"),
            (V1, "total=1 N=1\n"),
            (V1, "total=1 N0=1 N0=1\n"),
            (V1, "total=1 N0=-1\n"),
            (V2, ""),
            (V2, "anon N0=1\n"),
            (V2, "file N0=1\n"),
            (V2, "anon N0\nfile N0=1\n"),
            (V2, "anon_thp N0=1\nfile N0=1\n"),
            (V2, "anon N0=1\nfile N0=99999999999999999999999\n"),
        ] {
            assert_eq!(numa_stat(version, 4096, text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn reads_memory_of_a_node() {
        let text =
            b"Node 1 MemTotal:       16426628 kB\nNode 1 MemFree:        1024 kB\nNode 1 Inactive(file):   8 kB\n";
        assert_eq!(node_memory(text, "MemTotal"), Some(16_426_628 * 1024));
        assert_eq!(node_memory(text, "MemFree"), Some(1 << 20));
        assert_eq!(node_memory(text, "Inactive(file)"), Some(8192));
        assert_eq!(node_memory(text, "Free"), None);
        assert_eq!(node_memory(b"MemFree: 5 kB", "MemFree"), None);
    }

    #[test]
    fn sums_high_watermarks() {
        let text = b"Node 0, zone      DMA\n  pages free     2816\n        boost    0\n        min      4\n        low      7\n        \
                     high     10\n        spanned  4095\n  pagesets\n    cpu: 0\n              count: 0\n              high:  99\n\
                     Node 0, zone   Normal\n        high     100\nNode 1, zone   Normal\n        high     7\n";
        assert_eq!(high_watermarks(text), pages(&[(0, 110), (1, 7)]));
    }

    #[test]
    fn reads_mappings() {
        let heap = b"55d0c8a4e000 default heap anon=33 dirty=33 active=0 N0=30 N1=3 kernelpagesize_kB=4";
        let expected =
            Mapping { start: 0x55d0_c8a4_e000, pages: pages(&[(0, 30), (1, 3)]), page_size: 4096, is_file: false };
        assert_eq!(mapping(heap, 4096), Some(expected));
        let library = b"7f00 default file=/usr/lib/libc.so.6 mapped=5 mapmax=40 N1=5 kernelpagesize_kB=4";
        assert!(mapping(library, 4096).is_some_and(|mapping| mapping.is_file));
        let shared = b"7f00 bind:1 file=/dev/zero\\040(deleted) dirty=5 N1=5 kernelpagesize_kB=4";
        assert!(mapping(shared, 4096).is_some_and(|mapping| !mapping.is_file));
        let huge = b"7f00 default file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 N1=1 kernelpagesize_kB=2048";
        assert_eq!(mapping(huge, 4096).map(|mapping| mapping.page_size), Some(2 << 20));
        assert_eq!(mapping(b"7f00 default", 4096), None);
        assert_eq!(mapping(b"zz default N0=1", 4096), None);
        assert_eq!(
            range(b"55d0c8a4e000-55d0c8a6f000 rw-p 0 00:00 0 [heap]"),
            Some((0x55d0_c8a4_e000, 0x55d0_c8a6_f000))
        );
        assert_eq!(range(b"7-7 x"), None);
    }

    #[test]
    fn reads_the_average_of_pressure() {
        let text =
            b"some avg10=12.34 avg60=0.00 avg300=0.00 total=17\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(pressure_average(text), Some(1234));
        assert_eq!(pressure_average(b"some avg10=1.2 x"), None);
        assert_eq!(pressure_average(b""), None);
    }

    proptest! {
        #[test]
        fn survives_any_bytes(text: Vec<u8>) {
            let _ = (list(&text), distances(&text), node_memory(&text, "MemFree"), high_watermarks(&text));
            let _ = (mapping(&text, 4096), range(&text), pressure_average(&text));
            for version in [CgroupVersion::V1, CgroupVersion::V2] {
                let _ = numa_stat(version, 4096, &text);
            }
        }

        #[test]
        fn survives_what_looks_like_the_kernels(
            stat in "((total|anon|file|hierarchical_total)[= ]([0-9]{0,3} )?(N[0-9]{0,4}=[0-9]{0,21} ?){0,3}\n?){0,5}",
            lists in "([0-9]{0,5}-?[0-9]{0,5},?){0,5}",
        ) {
            let _ = (list(lists.as_bytes()), mapping(stat.as_bytes(), 4096));
            for version in [CgroupVersion::V1, CgroupVersion::V2] {
                let _ = numa_stat(version, 4096, stat.as_bytes());
            }
        }
    }
}
