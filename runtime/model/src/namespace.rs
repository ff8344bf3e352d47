//! Names of namespaces in lists.

/// Maximum length of a name (RFC 1123 label).
const MAX_LENGTH: usize = 63;

/// Why a word is not a valid name of a namespace, and what to write; `None` if it is valid.
///
/// Source: Kubernetes, "Object Names and IDs": RFC 1123 label names.
pub fn fault(name: &str) -> Option<String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_ends = !name.starts_with('-') && !name.ends_with('-');
    if (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_inner) && has_ends {
        return None;
    }
    let way_out = if name.contains(['*', '?', '[']) {
        "patterns are not known here, write each name"
    } else if name.contains(',') || name.trim().contains(char::is_whitespace) {
        "write each name as an item of its own"
    } else if name.trim() != name {
        "leave the white space out"
    } else if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        "names have no upper-case letters"
    } else {
        "a name has lower-case letters, digits and `-`, which neither begins nor ends it, at most 63 of them"
    };
    Some(format!("\"{}\" can be no namespace; {way_out}", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_namespace_is_told_with_the_way_out() {
        for name in ["a", "team-a", "0", "kube-system", &"a".repeat(63)] {
            assert_eq!(fault(name), None, "{name}");
        }
        for (name, way_out) in [
            ("*", "patterns are not known"),
            ("team-*", "patterns are not known"),
            (" team-a ", "leave the white space out"),
            ("Team-A", "no upper-case letters"),
            ("team-a,team-b", "an item of its own"),
            ("team-a team-b", "an item of its own"),
            ("", "lower-case letters, digits"),
            ("-a", "neither begins nor ends"),
            ("a-", "neither begins nor ends"),
            ("a.b", "lower-case letters, digits"),
            ("a_b", "lower-case letters, digits"),
            ("tëam", "lower-case letters, digits"),
            (&"a".repeat(64), "at most 63"),
        ] {
            assert!(fault(name).is_some_and(|fault| fault.contains(way_out)), "{name}: {:?}", fault(name));
        }
    }
}
