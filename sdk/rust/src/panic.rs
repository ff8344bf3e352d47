//! Logs the message of a panic to the operator before the module traps.

use std::any::Any;

/// Logs panics with file and line. For [`export!`](crate::export).
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub fn report_panics() {
    use crate::bindings::qosm::policy::log;

    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|place| (place.file(), place.line()));
            log::write(log::Level::Warn, &line(place, panic.payload()));
        }));
    });
}

/// The log line: the location, and the panic's message if it has one.
fn line(place: Option<(&str, u32)>, payload: &(dyn Any + Send)) -> String {
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words");
    match place {
        Some((file, line)) => ["panicked at ", file, ":", &line.to_string(), ": ", words].concat(),
        None => ["panicked: ", words].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_panic_says_where_and_why() {
        let place = Some(("src/lib.rs", 7));
        assert_eq!(line(place, &"no pods"), "panicked at src/lib.rs:7: no pods");
        assert_eq!(line(place, &String::from("3 pods")), "panicked at src/lib.rs:7: 3 pods");
        assert_eq!(line(None, &5_u8), "panicked: no words");
    }
}
