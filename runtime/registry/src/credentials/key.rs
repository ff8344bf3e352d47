//! Matches the keys of credentials against repositories.

use glob::Pattern;

use crate::reference::Reference;

/// Docker Hub's name in the keys of credentials.
const DOCKER_HUB: &str = "index.docker.io";

/// `[SCHEME://]HOST[:PORT][/v1|/v2][/PATH]`, where each part of the host's name may be a pattern.
pub(super) struct Key {
    host: Vec<Pattern>,
    is_exact: bool,
    port: Option<String>,
    path: Vec<String>,
    length: usize,
}

/// How specific a key is: more of the path first, then a host before a pattern, then the longer one.
pub(super) type Rank = (usize, bool, usize);

impl Key {
    /// Parses a key; `None` if it matches no repository.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = host_and_port(host);
        let host = of_docker_hub(&host.to_lowercase()).to_owned();
        let mut path: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        // The rest of an API address.
        if path.first().is_some_and(|first| matches!(first.as_str(), "v1" | "v2")) {
            path.remove(0);
        }
        let parts: Result<Vec<_>, _> = host.split('.').map(Pattern::new).collect();
        let host_parts = parts.ok().filter(|_| !host.is_empty())?;
        let is_exact = !host.contains(['*', '?', '[']);
        Some(Self { is_exact, host: host_parts, port, path, length: text.len() })
    }

    /// How specifically the key matches a repository; `None` if it does not match.
    pub(super) fn rank(&self, of: &Reference) -> Option<Rank> {
        let (host, port) = host_and_port(of.registry());
        let host = of_docker_hub(&host.to_lowercase()).to_owned();
        let parts: Vec<_> = host.split('.').collect();
        // A pattern matches one part of a name, so that `*.io` does not match every host in `.io`.
        let is_host =
            parts.len() == self.host.len() && self.host.iter().zip(parts).all(|(key, part)| key.matches(part));
        let mut repository = of.repository().split('/');
        let is_path = self.path.iter().all(|part| repository.next() == Some(part));
        (is_host && port == self.port && is_path).then_some((self.path.len(), self.is_exact, self.length))
    }
}

fn host_and_port(text: &str) -> (&str, Option<String>) {
    match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port.to_owned())),
        _ => (text, None),
    }
}

fn of_docker_hub(host: &str) -> &str {
    if host == "docker.io" { DOCKER_HUB } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of Kubernetes' "Interpretation of config.json", of the kubelet's credential provider, and of containers-auth.json(5).
    #[test]
    fn a_key_means_what_the_kubelet_and_podman_say() {
        for (key, reference, is_for_it) in [
            ("my-registry.example/images", "my-registry.example/images:1", true),
            ("my-registry.example/images", "my-registry.example/images/my-image:1", true),
            ("my-registry.example/images", "my-registry.example/images2:1", false),
            ("my-registry.example/images", "sub.my-registry.example/images/my-image:1", false),
            ("*.my-registry.example/images", "sub.my-registry.example/images/my-image:1", true),
            ("*.my-registry.example/images", "a.sub.my-registry.example/images/my-image:1", false),
            ("*.my-registry.example/images", "my-registry.example/images/my-image:1", false),
            ("*.kubernetes.io", "abc.kubernetes.io/x:1", true),
            ("*.kubernetes.io", "kubernetes.io/x:1", false),
            ("*.*.kubernetes.io", "abc.def.kubernetes.io/x:1", true),
            ("prefix*.kubernetes.io", "prefix-good.kubernetes.io/x:1", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io/x:1", true),
            ("k8s.*", "k8s.io/x:1", true),
            ("*.io", "x.k8s.io/x:1", false),
            ("*.azurecr.io", "team.azurecr.io:443/x:1", false),
            ("*.io:8888", "r.io:8888/x:1", true),
            ("https://r.io", "r.io/x:1", true),
            ("http://r.io/", "r.io/x:1", true),
            ("https://r.io/v1/", "r.io/x:1", true),
            ("https://r.io/v2/team", "r.io/team/x:1", true),
            ("https://r.io/v2/team", "r.io/other/x:1", false),
            ("r.io:5000", "r.io/x:1", false),
            ("r.io", "r.io:5000/x:1", false),
            ("R.io", "r.io/x:1", true),
            ("https://index.docker.io/v1/", "docker.io/team/x:1", true),
            ("docker.io/team", "docker.io/team/x:1", true),
            ("index.docker.io/team", "docker.io/other/x:1", false),
            ("quay.io/a/b", "quay.io/a/b/c:1", true),
            ("quay.io/a/b", "quay.io/a:1", false),
            ("", "r.io/x:1", false),
            ("[", "r.io/x:1", false),
        ] {
            let rank = Key::parse(key).and_then(|key| key.rank(&reference.parse().unwrap()));
            assert_eq!(rank.is_some(), is_for_it, "{key} for {reference}");
        }
    }
}
