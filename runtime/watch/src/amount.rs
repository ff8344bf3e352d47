//! Formats amounts for people.

use std::time::Duration;

use bytesize::ByteSize;

/// Formats bytes, such as `1.8 GiB`.
pub fn bytes(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// Formats an age as kubectl does: `45s`, `3m10s`, `14m`, `5h30m`, `2d4h`, `12d`.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{smaller}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_they_are_short() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (19_800, "5h30m"),
            (28_800, "8h"),
            (187_200, "2d4h"),
            (1_036_800, "12d"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown, "{seconds}");
        }
    }

    #[test]
    fn bytes_have_the_unit_that_leaves_few_digits() {
        for (number, shown) in [(0, "0 B"), (512 << 10, "512.0 KiB"), (1_932_735_283, "1.8 GiB")] {
            assert_eq!(bytes(number), shown);
        }
    }
}
