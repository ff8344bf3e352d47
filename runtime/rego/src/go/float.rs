//! Formatting of floats as by Go's strconv.FormatFloat.

/// Upper bound of a float's digits; any further digits are zeros.
pub(crate) const MAX_DIGITS: usize = 1_100;

/// Formats like strconv.FormatFloat with 64 bits: `e`, `E`, `f`, `g`, `G`, `b`, `x`, `X`; without a precision, the
/// shortest text that parses to the same float.
pub(crate) fn format(float: f64, verb: char, precision: Option<usize>) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    match verb {
        'f' | 'F' => fixed(float, precision),
        'e' | 'E' => exponential(float, precision, verb),
        'b' => binary(float),
        'x' | 'X' => hexadecimal(float, precision, verb),
        _ => general(float, precision, if verb == 'G' { 'E' } else { 'e' }),
    }
}

fn fixed(float: f64, precision: Option<usize>) -> String {
    let Some(precision) = precision else { return format!("{float}") };
    let mut text = format!("{float:.*}", precision.min(MAX_DIGITS));
    text.extend(std::iter::repeat_n('0', precision.saturating_sub(MAX_DIGITS)));
    text
}

fn exponential(float: f64, precision: Option<usize>, letter: char) -> String {
    let (sign, digits, exponent) = digits(float, precision.map(|precision| precision.saturating_add(1)));
    let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
    let zeros = "0".repeat(precision.unwrap_or(0).saturating_sub(rest.len()));
    let point = if rest.is_empty() && zeros.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}{zeros}{letter}{}", exponent_text(exponent))
}

fn general(float: f64, precision: Option<usize>, letter: char) -> String {
    let significant = precision.map(|precision| precision.max(1));
    let (sign, digits, exponent) = digits(float, significant);
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let mut most = significant.map_or(6, |significant| i64::try_from(significant).unwrap_or(i64::MAX));
    if significant.is_some() && most > count && count > exponent {
        most = count;
    }
    if exponent < -4 || exponent >= most {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}{letter}{}", exponent_text(exponent));
    }
    format!("{sign}{}", positional(digits, exponent))
}

/// Digits with a decimal point; the first digit has the weight 10^exponent.
fn positional(digits: &str, exponent: i64) -> String {
    let Ok(before) = usize::try_from(exponent.saturating_add(1)) else {
        let zeros = usize::try_from(exponent.saturating_neg().saturating_sub(1)).unwrap_or(0);
        return format!("0.{}{digits}", "0".repeat(zeros));
    };
    if before == 0 {
        return format!("0.{digits}");
    }
    match digits.split_at_checked(before) {
        Some((whole, "")) => whole.to_owned(),
        Some((whole, fraction)) => format!("{whole}.{fraction}"),
        None => format!("{digits}{}", "0".repeat(before.saturating_sub(digits.len()))),
    }
}

/// Sign, significant digits, and the exponent of the first digit; the shortest digits that parse to the same float, or
/// `count` of them.
fn digits(float: f64, count: Option<usize>) -> (&'static str, String, i64) {
    let text = match count {
        Some(count) => format!("{:.*e}", count.saturating_sub(1).min(MAX_DIGITS), float.abs()),
        None => format!("{:e}", float.abs()),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let sign = if float.is_sign_negative() { "-" } else { "" };
    (sign, mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// The exponent with a sign and at least two digits.
fn exponent_text(exponent: i64) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:02}", exponent.unsigned_abs())
}

/// Mantissa, including the implicit leading bit, and the exponent of two.
fn parts(float: f64) -> (u64, i64) {
    let bits = float.to_bits();
    let mantissa = bits & ((1 << 52) - 1);
    let biased = i64::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    if biased == 0 { (mantissa, -1074) } else { (mantissa | (1 << 52), biased - 1075) }
}

fn binary(float: f64) -> String {
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let (mantissa, exponent) = parts(float);
    format!("{sign}{mantissa}p{exponent:+}")
}

fn hexadecimal(float: f64, precision: Option<usize>, verb: char) -> String {
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let (mut mantissa, mut exponent) = parts(float);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One bit before the point, 60 bits after it.
        let shift = mantissa.leading_zeros().saturating_sub(3);
        mantissa <<= shift;
        exponent += 60 - i64::from(shift);
    }
    if let Some(precision) = precision
        && precision < 15
    {
        let dropped = u32::try_from(60_usize.saturating_sub(precision.saturating_mul(4))).unwrap_or(60);
        let extra = mantissa & ((1 << dropped) - 1);
        mantissa >>= dropped;
        let half = 1_u64 << dropped.saturating_sub(1);
        if extra > half || (extra == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa & (1 << 61) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let fraction = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let fraction = match precision {
        Some(precision) => {
            let kept = fraction.get(..precision.min(15)).unwrap_or(&fraction);
            format!("{kept}{}", "0".repeat(precision.saturating_sub(15)))
        }
        None => fraction.trim_end_matches('0').to_owned(),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let text = format!("{sign}0x{}{point}{fraction}p{}", mantissa >> 60, exponent_text(exponent));
    if verb == 'X' { text.to_uppercase() } else { text }
}
