//! Proportions in integers.

/// `amount × numerator ÷ denominator`, rounded down. The product does not overflow; a result that does not fit is [`u64::MAX`]. A
/// denominator of 0 counts as 1, so that no measurement makes a policy trap.
///
/// ```
/// use qosm_sdk::scale;
///
/// let (limit_milli, period_usec) = (1500, 100_000);
/// assert_eq!(scale(period_usec, limit_milli, 1000), 150_000, "the CFS quota of a CPU limit");
/// assert_eq!(scale(u64::MAX, 3, 2), u64::MAX);
/// ```
pub fn scale(amount: u64, numerator: u64, denominator: u64) -> u64 {
    let denominator = denominator.max(1);
    match amount.checked_mul(numerator) {
        Some(product) => product / denominator,
        // The product rarely exceeds 64 bits, and 128-bit division is many times slower on 32-bit Wasm.
        None => {
            let scaled = u128::from(amount) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        }
    }
}

/// `percent` of an amount, rounded down.
///
/// ```
/// assert_eq!(qosm_sdk::percent_of(1 << 30, 80), 858_993_459);
/// ```
pub fn percent_of(amount: u64, percent: u64) -> u64 {
    scale(amount, percent, 100)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_exact_where_products_overflow() {
        for (amount, numerator, denominator, scaled) in [
            (7, 3, 2, 10),
            (u64::MAX, 3, 4, 13_835_058_055_282_163_711),
            (u64::MAX, 4, 3, u64::MAX),
            (u64::MAX, u64::MAX, u64::MAX, u64::MAX),
            (1 << 40, 1 << 40, 1 << 41, 1 << 39),
            (5, 2, 0, 10),
        ] {
            assert_eq!(scale(amount, numerator, denominator), scaled, "{amount} * {numerator} / {denominator}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_greatest_that_is_not_above(amount: u32, numerator: u32, denominator in 1..u32::MAX) {
            let (amount, numerator, denominator) = (amount.into(), numerator.into(), u64::from(denominator));
            let scaled = u128::from(scale(amount, numerator, denominator));
            let exact = u128::from(amount) * u128::from(numerator);
            prop_assert!(scaled * u128::from(denominator) <= exact);
            prop_assert!((scaled + 1) * u128::from(denominator) > exact);
        }
    }
}
