//! Properties that hold for any input from a policy, checked by the fuzz targets in `fuzz/` and by this crate's tests.

use crate::go::printf;
use crate::pattern::{Kind, Pattern};
use crate::{Context, Value, builtin, limit};

/// Checks [`Value::parse`] with a text: a parsed value that is written parses to an equal value.
///
/// # Panics
///
/// If a property does not hold.
pub fn value(text: &str) {
    let Ok(value) = Value::parse(text) else { return };
    let written = value.to_string();
    assert_eq!(Value::parse(&written).as_ref(), Ok(&value), "{written}");
    assert_eq!(Value::parse(&written).map(|value| value.to_string()).as_ref(), Ok(&written));
    assert!(Value::from_json(&value.to_json()).is_ok(), "{}", value.to_json());
    assert_eq!(value.cmp(&value.clone()), std::cmp::Ordering::Equal);
}

/// Checks `sprintf` with a format, the first line, and arguments, the rest of the text: the result has a bounded length.
///
/// # Panics
///
/// If a property does not hold.
pub fn sprintf(text: &str) {
    let (format, arguments) = text.split_once('\n').unwrap_or((text, "[]"));
    let Ok(Value::Array(arguments)) = Value::parse(arguments) else { return };
    if let Ok(text) = printf::sprintf(format, &arguments, &Context::new(0)) {
        assert!(text.len() <= limit::TEXT_BYTES);
        assert_eq!(printf::sprintf(format, &arguments, &Context::new(0)).as_ref(), Ok(&text), "printed twice");
    }
}

/// Checks a regular expression, the first line, with a text, the rest: matches are parts of the text, and `regex.split`
/// returns what lies between them.
///
/// # Panics
///
/// If a property does not hold.
pub fn regex(text: &str) {
    let (pattern, text) = text.split_once('\n').unwrap_or((text, "a b"));
    let compiled = Pattern::compile(pattern, Kind::Matches, &Context::new(0));
    let context = Context::new(0);
    let call =
        |name: &str, arguments: &[Value]| builtin(name).and_then(|builtin| builtin.call(arguments, &context).ok()?);
    let found = call("regex.find_n", &[pattern.into(), text.into(), (-1).into()]);
    assert_eq!(found.is_some(), compiled.is_ok(), "{pattern:?}");
    for part in found.as_ref().and_then(Value::as_array).unwrap_or_default() {
        assert!(part.as_str().is_some_and(|part| text.contains(part)), "{pattern:?} {text:?}");
    }
    if let Some(parts) = call("regex.split", &[pattern.into(), text.into()]) {
        let parts: usize =
            parts.as_array().unwrap_or_default().iter().filter_map(|part| Some(part.as_str()?.len())).sum();
        assert!(parts <= text.len(), "{pattern:?} {text:?}");
    }
}

/// Checks a call of a function that the host provides, written as in Rego: it ends without a panic.
///
/// # Panics
///
/// If a property does not hold.
pub fn call(text: &str) {
    let Some((name, arguments)) = text.split_once('(') else { return };
    let Some(builtin) = builtin(name) else { return };
    let arguments = format!("[{}]", arguments.strip_suffix(')').unwrap_or(arguments));
    let Ok(Value::Array(arguments)) = Value::parse(&arguments) else { return };
    let given = builtin.call(&arguments, &Context::new(0));
    assert_eq!(given, builtin.call(&arguments, &Context::new(0)), "called twice");
    if let Ok(Some(value)) = given {
        assert_eq!(Value::parse(&value.to_string()), Ok(value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_value_or_none(text in "[\\[\\]{}:,0-9a\"\\\\setu().eE+ -]{0,40}") {
            value(&text);
        }

        #[test]
        fn any_format_prints(text in "([ -~é]|%[-+# 0]{0,3}[0-9*]{0,2}(\\.[0-9*]{0,2})?[a-zA-Z%]){0,6}\n\\[1, -2.5, \"é\", \\[1\\], 1e300, 123456789012345678901\\]") {
            sprintf(&text);
        }

        #[test]
        fn any_pattern_finds_or_fails(text in "[a-c.*+?|()\\[\\]{}^$\\\\dDwWsSbBpLQE,0-9:-]{0,16}\n[a-c0-9 é]{0,12}") {
            regex(&text);
        }

        #[test]
        fn any_call_ends(name in any::<prop::sample::Index>(), arguments in "([0-9]|\"[a-z:/%.,0-9-]{0,12}\"|\\[[0-9]\\]|\\{\"a\": \\[\"a\"\\]\\}|\\{1, \"x\"\\}|, )") {
            let names: Vec<&str> = crate::table::names().collect();
            let name = name.get(&names);
            for arity in 1..5 {
                call(&format!("{name}({})", vec![arguments.as_str(); arity].join(", ")));
            }
        }
    }
}
