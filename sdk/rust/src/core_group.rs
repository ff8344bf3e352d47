//! Numbers of core scheduling groups from names.

/// Bits of a group number: JSON numbers hold integers of up to 53 bits without loss.
const BITS: u32 = 53;

/// The number of the core scheduling group with this name, for [`set_core_group`](crate::CpuIdentity::set_core_group): the same for every
/// policy and on every node, and never 0. Different names can collide by chance; with a thousand names the odds are one in ten thousand
/// million.
///
/// It is the 64-bit FNV-1a hash of the name, folded to 53 bits.
///
/// ```
/// use qosm_sdk::core_group;
///
/// assert_ne!(core_group("a"), core_group("b"));
/// assert_ne!(core_group(""), 0, "the empty name is one too");
/// assert!(core_group("a") < 1 << 53);
/// ```
#[must_use]
pub fn core_group(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let folded = (hash >> BITS) ^ (hash & ((1 << BITS) - 1));
    folded.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_number_everywhere() {
        // 64-bit FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/, "a" is af63dc4c8601ec8c.
        let a = 0xaf63_dc4c_8601_ec8c_u64;
        assert_eq!(core_group("a"), (a >> 53) ^ (a & ((1 << 53) - 1)));
        assert_ne!(core_group("batch"), core_group("batch-expeller"));
    }
}
