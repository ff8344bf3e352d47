//! Amounts in Kubernetes' notation.

use proptest::prelude::*;
use qosm_cluster::{Quantity, QuantityError};

#[test]
fn what_kubernetes_takes_is_read_exactly() {
    for (text, units, millis) in [
        ("0", 0, 0),
        ("-0", 0, 0),
        ("1", 1, 1000),
        ("+1", 1, 1000),
        ("007", 7, 7000),
        ("1.5", 2, 1500),
        ("1.", 1, 1000),
        (".5", 1, 500),
        ("100m", 1, 100),
        ("0.1m", 1, 1),
        ("1500m", 2, 1500),
        ("1n", 1, 1),
        ("0.1n", 1, 1),
        ("1u", 1, 1),
        ("1000000u", 1, 1000),
        ("2k", 2000, 2_000_000),
        ("1M", 1_000_000, 1_000_000_000),
        ("1G", 1_000_000_000, 1_000_000_000_000),
        ("1T", 1_000_000_000_000, 1_000_000_000_000_000),
        ("1P", 1_000_000_000_000_000, 1_000_000_000_000_000_000),
        ("1E", 1_000_000_000_000_000_000, u64::MAX),
        ("1Ki", 1024, 1_024_000),
        ("1Mi", 1 << 20, 1_048_576_000),
        ("1Gi", 1 << 30, 1_073_741_824_000),
        ("1Ti", 1 << 40, 1_099_511_627_776_000),
        ("1Pi", 1 << 50, 1_125_899_906_842_624_000),
        ("1Ei", 1 << 60, u64::MAX),
        ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
        ("0.1Gi", 107_374_183, 107_374_182_400),
        ("0.5Ki", 512, 512_000),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1e+3", 1000, 1_000_000),
        ("15e-1", 2, 1500),
        ("1e-3", 1, 1),
        ("0e99999999999999999999", 0, 0),
        ("9007199254740993", 9_007_199_254_740_993, 9_007_199_254_740_993_000),
        ("9223372036854775807", 9_223_372_036_854_775_807, u64::MAX),
        ("9223372036854775808", 9_223_372_036_854_775_807, u64::MAX),
        ("100Ei", 9_223_372_036_854_775_807, u64::MAX),
        ("1e99999999999999999999", 9_223_372_036_854_775_807, u64::MAX),
        ("1e-99999999999999999999", 1, 1),
        ("1.0000000000000000000000000000001", 2, 1001),
    ] {
        let quantity = Quantity::parse(text);
        assert_eq!(
            quantity.as_ref().map(|quantity| (quantity.units(), quantity.millis())),
            Ok((units, millis)),
            "{text}"
        );
    }
}

#[test]
fn what_kubernetes_refuses_is_refused() {
    for text in ["", ".", "+", "-", "m", "Gi", "e3", "+-1", "inf", "NaN", "auto", "½"] {
        assert_eq!(Quantity::parse(text), Err(QuantityError::Number), "{text}");
    }
    for text in [
        "1K", "1gi", "1GI", "1GB", "1GiB", "1kb", "1 Gi", "1Gi ", "1.2.3", "1e", "1e+", "1e3Ki", "1e1.5", "1_000",
        "1,5", "0x10", "1mm", "1e--3", "1٠",
    ] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::Suffix(_))), "{text}: {:?}", Quantity::parse(text));
    }
    assert!(matches!(Quantity::parse(" 1"), Err(QuantityError::Number)));
    for text in ["-1", "-1n", "-0.0000000000001"] {
        assert_eq!(Quantity::parse(text), Err(QuantityError::Negative), "{text}");
    }
    assert_eq!(Quantity::parse(&"1".repeat(300)), Err(QuantityError::Long));
}

const SUFFIXES: [&str; 17] =
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e2"];

proptest! {
    #[test]
    fn what_is_written_reads_back(number in 0u64.., suffix in proptest::sample::select(&SUFFIXES)) {
        let quantity = Quantity::parse(&format!("{number}{suffix}")).unwrap();
        prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
    }

    #[test]
    fn more_is_never_less(one in 0u64.., other in 0u64.., suffix in proptest::sample::select(&SUFFIXES)) {
        let read = |number: u64| Quantity::parse(&format!("{number}{suffix}")).unwrap();
        let (less, more) = (read(one.min(other)), read(one.max(other)));
        prop_assert!(less <= more && less.units() <= more.units() && less.millis() <= more.millis());
    }

    #[test]
    fn fractions_are_exact_and_rounded_up(whole in 0u64..1_000_000, micros in 0u64..1_000_000) {
        let quantity = Quantity::parse(&format!("{whole}.{micros:06}Mi")).unwrap();
        let bytes = (whole * 1_000_000 + micros) * (1 << 20);
        prop_assert_eq!(quantity.units(), bytes.div_ceil(1_000_000));
    }

    #[test]
    fn sums_add_up(one in 0u64..(1 << 62), other in 0u64..(1 << 62)) {
        let read = |number: u64| Quantity::parse(&number.to_string()).unwrap();
        prop_assert_eq!(read(one).plus(read(other)), read(one + other));
    }

    #[test]
    fn no_text_panics(text in any::<String>(), close in "[-+0-9.eEKMGTPinum ]{0,40}") {
        let _ = Quantity::parse(&text);
        let _ = Quantity::parse(&close);
    }
}
