//! A certificate authority that signs one certificate.

use anyhow::Result;

use crate::keys::{openssl, private};
use crate::state_dir::StateDir;

/// The authority's certificate.
pub(crate) const CA: &str = "ca.crt";
/// The registry's certificate.
pub(crate) const CERTIFICATE: &str = "tls.crt";
/// The registry's private key.
pub(crate) const KEY: &str = "tls.key";

/// All extensions of the two certificates; openssl's defaults depend on the machine's configuration.
const EXTENSIONS: &str = "[req]\ndistinguished_name = name\n[name]\n\
    [authority]\nbasicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign, cRLSign\n\
    subjectKeyIdentifier = hash\n\
    [server]\nbasicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n\
    extendedKeyUsage = serverAuth\nsubjectAltName = IP:127.0.0.1, DNS:localhost\nauthorityKeyIdentifier = keyid\n";

/// Creates keys and certificates, for a registry that is reached as 127.0.0.1 or localhost.
///
/// # Errors
///
/// When openssl fails.
pub(crate) fn make(state: &StateDir) -> Result<()> {
    state.write("tls.cnf", EXTENSIONS)?;
    private(state, "ca.key")?;
    let request = ["req", "-config", "tls.cnf", "-new", "-key"];
    let signed = ["-x509", "-days", "30", "-extensions", "authority", "-subj", "/CN=qosm-test-authority", "-out", CA];
    openssl(state, &[&request[..], &["ca.key"], &signed].concat())?;
    private(state, KEY)?;
    openssl(state, &[&request[..], &[KEY, "-subj", "/CN=qosm-test-registry", "-out", "tls.csr"]].concat())?;
    let sign = ["x509", "-req", "-in", "tls.csr", "-CA", CA, "-CAkey", "ca.key", "-CAcreateserial", "-days", "30"];
    openssl(state, &[&sign[..], &["-extfile", "tls.cnf", "-extensions", "server", "-out", CERTIFICATE]].concat())
}
