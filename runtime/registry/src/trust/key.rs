//! Public keys for checking signatures.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Digest as _, Sha512};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::pkcs8::der::Decode as _;
use p256::pkcs8::{
    DecodePublicKey as _, Document, EncodePublicKey as _, ObjectIdentifier, SubjectPublicKeyInfoRef, spki,
};
use qosm_model::digest::Digest;

/// A public key of an algorithm that cosign signs with: ECDSA on P-256 or P-384, or Ed25519.
#[derive(Clone)]
pub struct PublicKey {
    key: Key,
    fingerprint: Digest,
    hint: String,
}

#[derive(Clone)]
enum Key {
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
    Ed25519(ed25519_dalek::VerifyingKey),
}

/// Why a text is not a public key that signatures can be checked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text has no PEM block.
    #[error(
        "this is no PEM: a public key begins with `-----BEGIN PUBLIC KEY-----`, as `cosign generate-key-pair` writes it to \
         `cosign.pub`"
    )]
    NotPem,
    /// The text has more than one PEM block.
    #[error("there are {0} PEM blocks; list each key by itself, under a name of its own")]
    Several(usize),
    /// The text is a private key.
    #[error(
        "this is a private key (`{0}`), which must stay with the signer; give the public half, as \
         `cosign public-key --key FILE` or `openssl pkey -in FILE -pubout` prints it"
    )]
    Private(String),
    /// The text is a certificate.
    #[error(
        "this is a certificate, and signatures are checked with bare keys here; give the key in it, as \
         `openssl x509 -in FILE -noout -pubkey` prints it"
    )]
    Certificate,
    /// The text is another kind of PEM block.
    #[error("this is a PEM block of `{0}`, where `PUBLIC KEY` is wanted")]
    Label(String),
    /// The block's content does not match its label.
    #[error("the PEM block is damaged or no public key ({0}); copy it again, with its first and last line")]
    Malformed(String),
    /// The algorithm or curve is not supported.
    #[error(
        "the key is {0}, with which signatures cannot be checked here; ECDSA P-256 (`cosign generate-key-pair`), ECDSA P-384 and \
         Ed25519 work"
    )]
    Algorithm(String),
    /// A weak key, for which signatures can be forged.
    #[error("the key is a point of small order, for which anybody can make signatures; replace it")]
    Weak,
}

impl PublicKey {
    /// Reads PEM of a SubjectPublicKeyInfo (RFC 5280, section 4.1), as `cosign.pub` holds it. Surrounding white space is ignored.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what the text is instead, and how to get the key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        match labels(text).as_slice() {
            [] => Err(KeyError::NotPem),
            ["PUBLIC KEY"] => {
                let (_, document) = Document::from_pem(text).map_err(malformed)?;
                Self::from_der(document.as_bytes())
            }
            ["CERTIFICATE" | "TRUSTED CERTIFICATE", ..] => Err(KeyError::Certificate),
            ["RSA PUBLIC KEY"] => Err(KeyError::Algorithm("RSA".to_owned())),
            labels => match labels.iter().find(|label| label.contains("PRIVATE KEY")) {
                Some(&label) => Err(KeyError::Private(label.to_owned())),
                None if labels.len() > 1 => Err(KeyError::Several(labels.len())),
                None => Err(KeyError::Label(labels.concat())),
            },
        }
    }

    fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let algorithm = SubjectPublicKeyInfoRef::from_der(der).map_err(malformed)?.algorithm;
        let curve = algorithm.parameters.and_then(|parameters| parameters.decode_as::<ObjectIdentifier>().ok());
        let key = match (algorithm.oid.to_string().as_str(), curve.map(|oid| oid.to_string()).as_deref()) {
            (oid::ECDSA, Some(oid::P256)) => {
                Key::P256(p256::ecdsa::VerifyingKey::from_public_key_der(der).map_err(malformed)?)
            }
            (oid::ECDSA, Some(oid::P384)) => {
                Key::P384(p384::ecdsa::VerifyingKey::from_public_key_der(der).map_err(malformed)?)
            }
            (oid::ED25519, _) => {
                let key = ed25519_dalek::VerifyingKey::from_public_key_der(der).map_err(malformed)?;
                if key.is_weak() {
                    return Err(KeyError::Weak);
                }
                Key::Ed25519(key)
            }
            (algorithm, curve) => return Err(KeyError::Algorithm(oid::name(algorithm, curve))),
        };
        // The fingerprint is of the re-encoded key: a point can be compressed or not, and one key in two encodings must not count as two.
        let fingerprint = Digest::of(key.to_der().map_err(malformed)?.as_bytes());
        Ok(Self { hint: hint(&fingerprint), key, fingerprint })
    }

    /// SHA-256 of the key's SubjectPublicKeyInfo in DER, in hexadecimal digits: two keys are the same if these are.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.hex()
    }

    /// The algorithm's name for messages.
    pub fn algorithm(&self) -> &'static str {
        match self.key {
            Key::P256(_) => "ECDSA P-256",
            Key::P384(_) => "ECDSA P-384",
            Key::Ed25519(_) => "Ed25519",
        }
    }

    /// Whether this key signed these bytes.
    ///
    /// ECDSA signatures are read in DER and may have a high S; the hash is SHA-256 on P-256 and SHA-384 on P-384. Ed25519 is
    /// tried with the SHA-512 of the message first, which is what cosign signs (RFC 8032: Ed25519ph without context), then plain.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::P256(key) => p256::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Key::P384(key) => p384::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Key::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature).is_ok_and(|signature| {
                key.verify_prehashed_strict(Sha512::new_with_prefix(message), None, &signature).is_ok()
                    || key.verify_strict(message, &signature).is_ok()
            }),
        }
    }

    /// Whether this key signed the bytes that have this SHA-256. Only P-256 signs such a hash; for other keys the result is `false`.
    pub(super) fn verify_sha256(&self, hash: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::P256(key) => p256::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify_prehash(hash, &signature).is_ok()),
            Key::P384(_) | Key::Ed25519(_) => false,
        }
    }

    /// The hint that cosign writes beside a signature: it tells which key made it.
    pub(super) fn hint(&self) -> &str {
        &self.hint
    }
}

impl Key {
    fn to_der(&self) -> Result<Document, spki::Error> {
        match self {
            Self::P256(key) => key.to_public_key_der(),
            Self::P384(key) => key.to_public_key_der(),
            Self::Ed25519(key) => key.to_public_key_der(),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm(), self.fingerprint)
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for PublicKey {}

/// The labels of all PEM blocks, in order.
fn labels(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----")).collect()
}

fn malformed(error: impl fmt::Display) -> KeyError {
    KeyError::Malformed(error.to_string())
}

/// The fingerprint's bytes in base64.
fn hint(fingerprint: &Digest) -> String {
    let digits = fingerprint.hex();
    let bytes: Vec<u8> = digits
        .as_bytes()
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    STANDARD.encode(bytes)
}

/// Object identifiers of algorithms and curves, and their names for messages.
mod oid {
    pub(super) const ECDSA: &str = "1.2.840.10045.2.1";
    pub(super) const P256: &str = "1.2.840.10045.3.1.7";
    pub(super) const P384: &str = "1.3.132.0.34";
    pub(super) const ED25519: &str = "1.3.101.112";

    pub(super) fn name(algorithm: &str, curve: Option<&str>) -> String {
        let name = match (algorithm, curve) {
            ("1.2.840.113549.1.1.1", _) => "RSA",
            ("1.2.840.113549.1.1.10", _) => "RSA-PSS",
            ("1.2.840.10040.4.1", _) => "DSA",
            ("1.3.101.110", _) => "X25519, which does not sign",
            ("1.3.101.113", _) => "Ed448",
            (ECDSA, Some("1.3.132.0.35")) => "ECDSA P-521",
            (ECDSA, Some("1.3.132.0.33")) => "ECDSA P-224",
            (ECDSA, Some("1.3.132.0.10")) => "ECDSA secp256k1",
            (ECDSA, Some(curve)) => return format!("ECDSA on the curve {curve}"),
            (ECDSA, None) => "ECDSA on a curve without a name",
            (algorithm, _) => return format!("of the algorithm {algorithm}"),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::signer::Signer;
    use super::*;

    const P256: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEu6BxI6ripY9Mo76CXuQDG1axbG2j
V1bdm3/BShvSuifspKj/5yvTqKwugX1Dxk/PC4OlH8hRBDLwT1uoDzXLpw==
-----END PUBLIC KEY-----
";
    const P256_COMPRESSED: &str = "-----BEGIN PUBLIC KEY-----
MDkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDIgADu6BxI6ripY9Mo76CXuQDG1axbG2j
V1bdm3/BShvSuic=
-----END PUBLIC KEY-----
";
    const RSA: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCuPwveufoUwQL+ccZr4vXRhAu6
SjAxiF/7elp6EMgQs1if2L47IClZU9wWwJBgXSOGkVevE7bvUT2ryj0GDRBbytQ2
xKd2B21+GPjZniLOWakslxjRkEMnFGZrhbmgCHvQzE3DbIcCUd2vhEt+cFUKkk1u
qndLsQhhS4fLREr8vwIDAQAB
-----END PUBLIC KEY-----";
    const P521: &str = "-----BEGIN PUBLIC KEY-----
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBOXJxgytbwgHDR8dFiK75Nn3VwRuV
nZ89VdHtTycz7WJZAlO9XAUCcmjC5PyBfNb74H1d2mSFDx81shUrluvfYxkBk24s
IlFU6EQwv9bVNG0j7jLmueaXGgSLJMU4N0IZf0tteZxqP/p+e3tHtQ4cPNgyM2wu
se4IyrQD7xMj4Buf5pY=
-----END PUBLIC KEY-----";
    /// All zero: a point of order 4.
    const WEAK: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END PUBLIC KEY-----";

    fn signers() -> [Signer; 4] {
        [Signer::p256(1), Signer::p384(1), Signer::ed25519ph(1), Signer::ed25519(1)]
    }

    #[test]
    fn each_algorithm_verifies_its_own_signatures_and_nothing_else() {
        for (index, signer) in signers().iter().enumerate() {
            let key = PublicKey::from_pem(&signer.pem()).unwrap();
            let signature = signer.sign(b"message");
            assert!(key.verify(b"message", &signature), "{key:?}");
            assert!(!key.verify(b"massage", &signature), "{key:?}");
            assert!(!key.verify(b"message", &[]), "{key:?}");
            assert!(!key.verify(b"message", &signature[1..]), "{key:?}");
            let mut flipped = signature.clone();
            *flipped.last_mut().unwrap() ^= 1;
            assert!(!key.verify(b"message", &flipped), "{key:?}");
            for (other, signer) in signers().iter().enumerate() {
                // Both ways to sign with Ed25519 use the same key here, and both count.
                let is_same = index == other || (index >= 2 && other >= 2);
                assert_eq!(key.verify(b"message", &signer.sign(b"message")), is_same, "{index} {other}");
            }
        }
    }

    #[test]
    fn a_high_s_is_as_good_as_a_low_one() {
        let Signer::P256(key) = Signer::p256(1) else { panic!() };
        let low: p256::ecdsa::Signature = p256::ecdsa::signature::Signer::sign(&key, b"message");
        let (r, s) = low.split_scalars();
        let high = p256::ecdsa::Signature::from_scalars(r.to_bytes(), (-s).to_bytes()).unwrap();
        assert_ne!(low, high);
        let key = PublicKey::from_pem(&Signer::p256(1).pem()).unwrap();
        for signature in [low, high] {
            assert!(key.verify(b"message", signature.to_der().as_bytes()));
        }
    }

    #[test]
    fn only_p256_verifies_a_sha256() {
        for (signer, expected) in signers().iter().zip([true, false, false, false]) {
            let key = PublicKey::from_pem(&signer.pem()).unwrap();
            let hash = super::super::signer::sha256(b"message");
            assert_eq!(key.verify_sha256(&hash, &signer.sign(b"message")), expected, "{key:?}");
        }
    }

    #[test]
    fn a_fingerprint_is_that_of_openssl_and_of_the_key_rather_than_its_spelling() {
        // openssl pkey -pubin -outform der | sha256sum
        let fingerprint = "63544f846f7dbff9253ad52822a3c9e434e50195e21849035917b55ba8838b61";
        for text in [P256, P256_COMPRESSED, &format!("\n  {}  ", P256.trim()), &P256.replace('\n', "\r\n")] {
            let key = PublicKey::from_pem(text).unwrap();
            assert_eq!(key.fingerprint(), fingerprint, "{text}");
            assert_eq!(key.hint(), "Y1RPhG99v/klOtUoIqPJ5DTlAZXiGEkDWRe1W6iDi2E=");
        }
    }

    #[test]
    fn what_is_no_public_key_is_named_with_the_way_out() {
        let block = |label: &str| P256.replace("PUBLIC KEY", label);
        for (text, expected) in [
            ("", "this is no PEM"),
            ("ssh-ed25519 AAAA", "this is no PEM"),
            (
                RSA,
                "the key is RSA, with which signatures cannot be checked here; ECDSA P-256 (`cosign generate-key-pair`)",
            ),
            (&block("RSA PUBLIC KEY"), "the key is RSA,"),
            (P521, "the key is ECDSA P-521,"),
            (WEAK, "small order"),
            (&block("EC PRIVATE KEY"), "this is a private key (`EC PRIVATE KEY`)"),
            (&block("ENCRYPTED SIGSTORE PRIVATE KEY"), "`cosign public-key --key FILE`"),
            (&[P256, &block("PRIVATE KEY")].concat(), "this is a private key"),
            (&block("CERTIFICATE"), "`openssl x509 -in FILE -noout -pubkey`"),
            (&block("PGP PUBLIC KEY BLOCK"), "this is a PEM block of `PGP PUBLIC KEY BLOCK`"),
            (&[P256, P256].concat(), "there are 2 PEM blocks"),
            (&P256.replace("MFkw", "MFkx"), "damaged or no public key"),
            (&P256.replace("u6Bx", "u6By"), "damaged or no public key"),
            (P256.split_at(120).0, "damaged or no public key"),
        ] {
            let error = PublicKey::from_pem(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
