//! The files that a connection to an API server reads.

use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;

/// Folder of the pod's own credentials, which the kubelet renews.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The files and the program that a connection uses when it starts and when it renews credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFiles {
    /// Files and folders, whether or not they exist.
    pub paths: Vec<PathBuf>,
    /// The credential plug-in of the kubeconfig; it may need any file. `None` if there is none.
    pub program: Option<String>,
}

impl ConnectionFiles {
    /// The files of a kubeconfig (by default the usual ones), and of the pod's service account.
    pub fn find(kubeconfig: Option<&Path>) -> Self {
        let mut files = Self { paths: vec![SERVICE_ACCOUNT.into()], program: None };
        let read = match kubeconfig {
            Some(path) => {
                files.paths.push(path.to_path_buf());
                Kubeconfig::read_from(path).ok()
            }
            None => {
                files.paths.extend(usual_kubeconfigs());
                Kubeconfig::read().ok()
            }
        };
        // The connection reports a missing or unreadable file.
        if let Some(read) = read {
            files.add(&read);
        }
        files
    }

    fn add(&mut self, kubeconfig: &Kubeconfig) {
        let authorities =
            kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()?.certificate_authority.as_ref());
        let users = || kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
        let of_user = users().flat_map(|user| [&user.token_file, &user.client_certificate, &user.client_key]).flatten();
        self.paths.extend(authorities.chain(of_user).map(PathBuf::from));
        self.program = users().find_map(|user| user.exec.as_ref()?.command.clone());
    }
}

fn usual_kubeconfigs() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        Some(list) => std::env::split_paths(&list).collect(),
        None => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_kubeconfig_names_are_found_relative_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.kubeconfig");
        let text = "apiVersion: v1\nkind: Config\n\
                    clusters: [{name: c, cluster: {server: https://127.0.0.1, certificate-authority: ca.crt}}]\n\
                    users:\n- {name: a, user: {tokenFile: /run/token, client-certificate: a.crt, client-key: a.key}}\n\
                    - {name: b, user: {exec: {command: aws-login, apiVersion: client.authentication.k8s.io/v1}}}\n\
                    contexts: [{name: x, context: {cluster: c, user: a}}]\ncurrent-context: x\n";
        std::fs::write(&path, text).unwrap();
        let files = ConnectionFiles::find(Some(&path));
        let beside = |name: &str| folder.path().join(name);
        for expected in [path.clone(), beside("ca.crt"), beside("a.crt"), beside("a.key"), "/run/token".into()] {
            assert!(files.paths.contains(&expected), "{}: {files:?}", expected.display());
        }
        assert_eq!(files.program.as_deref(), Some("aws-login"));
    }

    #[test]
    fn one_that_is_not_there_is_named_all_the_same() {
        let files = ConnectionFiles::find(Some(Path::new("/nowhere/kubeconfig")));
        assert_eq!(files.paths, [PathBuf::from(SERVICE_ACCOUNT), "/nowhere/kubeconfig".into()]);
        assert_eq!(files.program, None);
    }
}
