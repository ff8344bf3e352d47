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
}
