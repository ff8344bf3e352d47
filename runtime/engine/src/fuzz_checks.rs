//! Properties that hold for any bytes given as a module, checked by the fuzz target in `fuzz/` and by this crate's tests.

use crate::error::EngineError;
use crate::inspect::inspect;
use qosm_model::digest::Digest;

/// Checks [`Engine::inspect`](crate::Engine::inspect): what it reads comes from these bytes and is no longer than they
/// are, and its errors are those that it documents.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn inspection(wasm: &[u8]) {
    let findings = match inspect(wasm) {
        Ok(findings) => findings,
        Err(error) => {
            use EngineError::{Bundle, Description, Invalid, NotAComponent, TooLarge, TooManyItems};
            let is_known = matches!(
                error,
                NotAComponent { .. }
                    | TooLarge { .. }
                    | TooManyItems { .. }
                    | Invalid { .. }
                    | Bundle { .. }
                    | Description { .. }
            );
            assert!(is_known, "{error}");
            assert!(error.to_string().len() < 4096, "a message without a reader");
            return;
        }
    };
    let inspection = &findings.inspection;
    assert_eq!((inspection.digest, inspection.size), (Digest::of(wasm), wasm.len()));
    assert!(inspection.imports.is_sorted_by(|one, next| one < next), "{:?}", inspection.imports);
    let names: usize = inspection.unknown_imports.iter().map(String::len).sum();
    assert!(names <= wasm.len(), "names out of nowhere");
    if let Some(version) = &inspection.contract_version {
        assert!(version.parse::<semver::Version>().is_ok(), "{version:?}");
    }
    if let Ok(accepted) = findings.check() {
        assert!(accepted.exports_lifecycle && accepted.unknown_imports.is_empty(), "{accepted:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_a_module_that_was_cut_off_or_changed() {
        let text = r#"(component
            (import "qosm:policy/log@0.1.0" (instance $log (export "write" (func (param "message" string)))))
            (import "wasi:cli/environment@0.2.0" (instance))
            (core module $m (memory (export "memory") 1))
            (core instance (instantiate $m))
            (export "qosm:policy/lifecycle@0.1.0" (instance $log)))"#;
        let wasm = wat::parse_str(text).unwrap();
        inspection(&wasm);
        assert_eq!(inspect(&wasm).unwrap().inspection.unknown_imports.len(), 1);
        for place in 0..wasm.len() {
            inspection(&wasm[..place]);
            for bits in [0x01, 0x80, 0xff] {
                let mut changed = wasm.clone();
                changed[place] ^= bits;
                inspection(&changed);
            }
        }
    }
}
