//! Detection of misspelt keys: Kubernetes compares keys exactly, and authors often mistake letter case or separators.

/// Whether a key differs from a known one only in letter case, or in `-`, `_` and `.` within its name.
pub fn is_nearly(key: &str, known: &str) -> bool {
    let folded = |key: &str| -> Option<(String, String)> {
        let (domain, name) = key.split_once('/')?;
        let name = name.chars().filter(|letter| !matches!(letter, '-' | '_' | '.')).collect::<String>();
        Some((domain.to_ascii_lowercase(), name.to_ascii_lowercase()))
    };
    key != known && folded(key).is_some_and(|key| Some(key) == folded(known))
}

/// Whether a name differs from a known one in one or two letters, and in more than [`is_nearly`] forgives.
pub fn is_slip(name: &str, known: &str) -> bool {
    const MAX_LENGTH: usize = 64;
    let joined = |name: &str| {
        let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_' | '.'));
        letters.collect::<String>().to_ascii_lowercase()
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    name.len() <= MAX_LENGTH
        && name.chars().all(is_name)
        && (1..=2).contains(&strsim::osa_distance(&joined(name), &joined(known)))
}

/// The known name that is closest to `name`, if one is close enough.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Longer text is not a misspelt name, and the cost of the distance is the product of both lengths.
    const MAX_LENGTH: usize = 64;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let name = name.to_lowercase();
    let within = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&name, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= within)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_joints_are_no_difference_to_a_person() {
        let known = "koordinator.sh/cpuBurst";
        for key in [
            "koordinator.sh/CPUBurst",
            "koordinator.sh/cpuburst",
            "koordinator.sh/cpu-burst",
            "Koordinator.sh/cpuBurst",
        ] {
            assert!(is_nearly(key, known), "{key}");
        }
        for key in [known, "koordinator.sh/cpuBursts", "example.com/cpuBurst", "cpuBurst", "koordinator.sh/cpuset"] {
            assert!(!is_nearly(key, known), "{key}");
        }
    }

    #[test]
    fn one_or_two_other_letters_are_a_slip() {
        for name in ["pause", "Pause", "puased", "pau-se", "passes"] {
            assert!(is_slip(name, "paused"), "{name}");
        }
        for name in
            ["paused", "Paused", "pau-sed", "", "pausing", "published-resources", "pau\u{1b}sed", &"x".repeat(1000)]
        {
            assert!(!is_slip(name, "paused"), "{name:?}");
        }
    }
}
