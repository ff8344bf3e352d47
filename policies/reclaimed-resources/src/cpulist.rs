//! Counts the CPUs of a cpulist such as `0-3,8`.

/// The number of distinct CPUs in a cpulist; `None` if the text is not a cpulist. Blank text has none.
///
/// Ranges are counted without listing their CPUs, so `0-4294967295` costs nothing.
pub(crate) fn count(text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(0);
    }
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let (mut count, mut next) = (0_u64, 0_u64);
    for (first, last) in ranges {
        let from = next.max(first);
        count += (last + 1).saturating_sub(from);
        next = next.max(last + 1);
    }
    Some(count)
}

/// Only digits: the standard library's parser would also accept a sign.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u32 = if is_number { text.parse().ok()? } else { return None };
    Some(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted_once() {
        for (text, cpus) in [
            ("", Some(0)),
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8", Some(5)),
            ("8,0-3", Some(5)),
            ("0-3,2-5", Some(6)),
            ("0-7,2-3,5", Some(8)),
            (" 0-1\n", Some(2)),
            ("0-4294967295", Some(4_294_967_296)),
            ("3-1", None),
            ("0-", None),
            ("-3", None),
            ("+1", None),
            ("0,,1", None),
            ("0, 1", None),
            ("a", None),
            ("4294967296", None),
        ] {
            assert_eq!(count(text), cpus, "{text:?}");
        }
    }
}
