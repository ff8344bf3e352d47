//! Patterns of `REGISTRY/REPOSITORY` or `oci-layout:PATH`, in which `*` matches any number of any characters, including `/`.

/// Why a text is not a pattern, and what to write; `None` if it is one.
pub(super) fn fault(pattern: &str) -> Option<&'static str> {
    let last = pattern.rsplit('/').next().unwrap_or_default();
    if let Some(path) = pattern.strip_prefix("oci-layout:") {
        layout_fault(path)
    } else if pattern.is_empty() {
        Some("it is empty; write REGISTRY/REPOSITORY, or `*` for all artefacts")
    } else if !pattern.bytes().all(|byte| byte.is_ascii_graphic()) {
        Some("no reference has blanks or letters beyond ASCII, so it matches nothing")
    } else if pattern.contains("://") {
        Some("leave out the scheme: REGISTRY/REPOSITORY")
    } else if pattern.contains('@') {
        Some("leave out the digest: a rule holds for all of a repository")
    } else if !pattern.contains('/') && !pattern.contains('*') {
        Some("there is no `/`, so it matches nothing; write REGISTRY/REPOSITORY, or REGISTRY/* for all of a registry")
    } else if last.contains(':') {
        Some("leave out the tag: a rule holds for all of a repository (after a port comes a `/`: REGISTRY:PORT/*)")
    } else {
        None
    }
}

/// The same for the path of a layout.
fn layout_fault(path: &str) -> Option<&'static str> {
    let last = path.rsplit('/').next().unwrap_or_default();
    if path.is_empty() {
        Some("there is no path, so it matches nothing; write oci-layout:PATH, or `oci-layout:*` for all layouts")
    } else if path.contains("@sha256:") {
        Some("leave out the digest: a rule holds for all of a layout")
    } else if last.contains(':') {
        Some("leave out the tag: a rule holds for all of a layout")
    } else {
        None
    }
}

/// Whether a text matches the pattern.
pub(super) fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to resume when the last `*` has to match one more character.
    let mut star = None;
    loop {
        match (pattern.get(p), text.get(t)) {
            (Some(b'*'), _) => {
                star = Some((p, t));
                p += 1;
            }
            (Some(wanted), Some(found)) if wanted == found => {
                p += 1;
                t += 1;
            }
            (None, None) => return true,
            _ => match star {
                Some((at, taken)) if taken < text.len() => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                _ => return false,
            },
        }
    }
}

/// Whether any text matches both patterns.
pub(super) fn overlap(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    // `below[r]`: whether any text matches the rests of both patterns from (l + 1, r) on; rows from the last to the first.
    let mut below: Vec<bool> = Vec::new();
    for l in (0..=left.len()).rev() {
        let mut row = vec![false; right.len() + 1];
        for r in (0..=right.len()).rev() {
            let down = below.get(r).copied().unwrap_or(false);
            let across = row.get(r + 1).copied().unwrap_or(false);
            let both = below.get(r + 1).copied().unwrap_or(false);
            let common = match (left.get(l), right.get(r)) {
                (None, None) => true,
                // A `*` ends here, or it matches the next element of the other pattern: one step down, one across.
                (Some(b'*'), _) | (_, Some(b'*')) => down || across,
                (Some(one), Some(other)) => one == other && both,
                _ => false,
            };
            if let Some(cell) = row.get_mut(r) {
                *cell = common;
            }
        }
        below = row;
    }
    below.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "r.io/a/b", true),
            ("r.io/*", "r.io/a/b", true),
            ("r.io/*", "r.io/", true),
            ("r.io/*", "r.io.evil.org/a", false),
            ("r.io/a", "r.io/a", true),
            ("r.io/a", "r.io/ab", false),
            ("r.io/*/b", "r.io/a/b/c/b", true),
            ("r.io/*/b", "r.io/b", false),
            ("*/policies/*", "r.io/x/policies/y", true),
            ("**a*", "bcab", true),
            ("r.io/A", "r.io/a", false),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn two_patterns_overlap_when_one_text_is_of_both() {
        for (left, right, expected) in [
            ("*", "*", true),
            ("r.io/*", "*/a", true),
            ("r.io/a*", "r.io/*b", true),
            ("r.io/a*", "r.io/b*", false),
            ("r.io/*a", "r.io/*b", false),
            ("r.io/a", "r.io/a", true),
            ("r.io/a", "r.io/b", false),
            ("a*b*c", "*bc*c", true),
            ("", "*", true),
            ("", "a", false),
        ] {
            assert_eq!((overlap(left, right), overlap(right, left)), (expected, expected), "{left} {right}");
        }
    }

    #[test]
    fn a_pattern_that_can_match_nothing_is_found_out() {
        for good in [
            "*",
            "r.io/a",
            "r.io/*",
            "localhost:5000/*",
            "*/a",
            "r*",
            "oci-layout:air",
            "oci-layout:*",
            "oci-layout:/a:5/b c",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, expected) in [
            ("", "is empty"),
            ("r.io", "no `/`"),
            ("r.io/a:1", "the tag"),
            ("localhost:5000*", "REGISTRY:PORT/*"),
            ("r.io/a@sha256:12", "the digest"),
            ("oci://r.io/a", "the scheme"),
            ("r.io/ a", "blanks"),
            ("r.io/ä", "ASCII"),
            ("oci-layout:", "no path"),
            ("oci-layout:/a:1", "the tag"),
            ("oci-layout:/a@sha256:12", "the digest"),
        ] {
            assert!(fault(bad).unwrap().contains(expected), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_two_patterns_match_is_an_overlap(left in "[ab*]{0,6}", right in "[ab*]{0,6}", text in "[ab]{0,6}") {
            if is_match(&left, &text) && is_match(&right, &text) {
                prop_assert!(overlap(&left, &right));
            }
        }

        #[test]
        fn a_pattern_without_stars_overlaps_exactly_what_matches_it(pattern in "[ab*]{0,6}", text in "[ab]{0,6}") {
            prop_assert_eq!(overlap(&pattern, &text), is_match(&pattern, &text));
        }
    }
}
