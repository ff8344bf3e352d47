//! Restricts the addresses to which a registry may send this node: none within the node itself.
//!
//! A registry names the token address and redirects to its blobs. The agent runs in the node's network, so loopback and
//! link-local addresses would reach services meant only for the node, such as the cloud's metadata service.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Reason for a refused address, in error messages.
pub(super) const WITHIN: &str = "which is an address within this node";

/// The addresses that a registry may name.
#[derive(Clone, Debug)]
pub(super) struct AllowedAddresses {
    /// The registry's own host, without its port.
    own: Option<Arc<str>>,
    /// Whether the registry runs on this machine: then it may name other loopback addresses.
    is_here: Arc<AtomicBool>,
    /// Hosts of the proxies in the environment variables.
    proxies: Arc<[String]>,
}

impl AllowedAddresses {
    /// The allowed addresses of a registry, given as `HOST[:PORT]`.
    pub(super) fn of(registry: &str) -> Self {
        Self::with_proxies(registry, proxies())
    }

    fn with_proxies(registry: &str, proxies: Vec<String>) -> Self {
        let url = Url::parse(&format!("http://{registry}")).ok();
        let own = url.as_ref().and_then(host_of);
        let is_here = own.as_deref().is_some_and(|own| address(own).map_or(is_localhost(own), |ip| ip.is_loopback()));
        Self { own: own.map(Arc::from), is_here: Arc::new(is_here.into()), proxies: proxies.into() }
    }

    /// Whether a URL literally names this node. Host names are checked after resolution.
    pub(super) fn is_refused(&self, url: &Url) -> bool {
        let Some(host) = host_of(url) else { return true };
        if self.own.as_deref() == Some(host.as_str()) {
            return false;
        }
        match address(&host) {
            Some(ip) => !self.may_be(ip),
            None => is_localhost(&host) && !self.is_here(),
        }
    }

    fn may_be(&self, ip: IpAddr) -> bool {
        match kind(ip) {
            Kind::Else => true,
            Kind::Loopback => self.is_here(),
            Kind::LinkLocal => false,
        }
    }

    fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Relaxed)
    }

    /// Filters the resolved addresses of a host name.
    fn sift(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if self.own.as_deref() == Some(name.as_str()) {
            // The registry's own name may resolve to loopback. One such address among others does not make it a registry of this machine.
            let is_loopback = |address: &SocketAddr| kind(address.ip()) == Kind::Loopback;
            if !addresses.is_empty() && addresses.iter().all(is_loopback) {
                self.is_here.store(true, Ordering::Relaxed);
            }
            return Ok(addresses);
        }
        if self.proxies.contains(&name) {
            return Ok(addresses);
        }
        let was_empty = addresses.is_empty();
        let sifted: Vec<_> = addresses.into_iter().filter(|address| self.may_be(address.ip())).collect();
        if sifted.is_empty() && !was_empty { Err(Refused { name }) } else { Ok(sifted) }
    }
}

impl Resolve for AllowedAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses = reach.sift(&name, found).map_err(Box::<dyn Error + Send + Sync>::from)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A host name that resolves only to addresses within this node.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is an address within this node")]
struct Refused {
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// This machine, including unspecified addresses, which also reach it.
    Loopback,
    LinkLocal,
    Else,
}

fn kind(ip: IpAddr) -> Kind {
    // An IPv4-mapped IPv6 address is the same address.
    match ip.to_canonical() {
        ip if ip.is_loopback() || ip.is_unspecified() => Kind::Loopback,
        // All of 0.0.0.0/8 means "this network".
        IpAddr::V4(ip) if ip.octets()[0] == 0 => Kind::Loopback,
        IpAddr::V4(ip) if ip.is_link_local() => Kind::LinkLocal,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Kind::LinkLocal,
        // `::127.0.0.1`, a deprecated form.
        IpAddr::V6(ip) if ip.segments()[..6] == [0; 6] => ip.to_ipv4().map_or(Kind::Else, |ip| kind(IpAddr::V4(ip))),
        _ => Kind::Else,
    }
}

fn host_of(url: &Url) -> Option<String> {
    Some(url.host_str()?.trim_end_matches('.').to_ascii_lowercase())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Hosts of the proxies in the environment variables: these may be on this machine.
fn proxies() -> Vec<String> {
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .filter_map(|proxy| {
            let url = if proxy.contains("://") { Url::parse(&proxy) } else { Url::parse(&format!("http://{proxy}")) };
            host_of(&url.ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_writing_it_leads_into_the_node() {
        let reach = AllowedAddresses::with_proxies("r.io", Vec::new());
        for (url, is_refused) in [
            ("http://127.0.0.1/t", true),
            ("http://127.1/t", true),
            ("http://0x7f000001/t", true),
            ("http://2130706433/t", true),
            ("http://0.0.0.0/t", true),
            ("http://0.1.2.3/t", true),
            ("http://localhost/t", true),
            ("http://LOCALHOST./t", true),
            ("http://x.localhost/t", true),
            ("http://[::1]/t", true),
            ("http://[::]/t", true),
            ("http://[::ffff:127.0.0.1]/t", true),
            ("http://[::ffff:7f00:1]/t", true),
            ("http://[::127.0.0.1]/t", true),
            ("http://169.254.169.254/t", true),
            ("http://[::ffff:169.254.169.254]/t", true),
            ("http://[fe80::1]/t", true),
            ("http://10.0.0.7/t", false),
            ("http://[2001:db8::1]/t", false),
            ("http://[::ffff:10.0.0.7]/t", false),
            ("http://blobs.example.com/t", false),
            ("http://r.io:5000/t", false),
        ] {
            assert_eq!(reach.is_refused(&Url::parse(url).unwrap()), is_refused, "{url}");
        }
    }

    #[test]
    fn a_registry_of_this_machine_may_stay_on_it() {
        for registry in ["127.0.0.1:5000", "localhost:5000", "[::1]:5000"] {
            let reach = AllowedAddresses::with_proxies(registry, Vec::new());
            assert!(!reach.is_refused(&Url::parse("http://127.0.0.2/t").unwrap()), "{registry}");
            assert!(!reach.is_refused(&Url::parse("http://localhost:5001/t").unwrap()), "{registry}");
            assert!(reach.is_refused(&Url::parse("http://169.254.169.254/t").unwrap()), "{registry}");
        }
    }

    #[test]
    fn a_name_that_stands_for_the_node_is_not_asked() {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
        let reach = AllowedAddresses::with_proxies("r.io", vec!["proxy.corp".into()]);
        for inside in ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "0.0.0.0"] {
            let error = reach.sift("evil.example.com", vec![at(inside)]).unwrap_err();
            assert_eq!(error.to_string(), "`evil.example.com` is an address within this node");
            // A good address does not let a bad one through.
            assert_eq!(reach.sift("evil.example.com", vec![at(inside), at("192.0.2.1")]).unwrap(), [at("192.0.2.1")]);
            assert_eq!(reach.sift("PROXY.corp.", vec![at(inside)]).unwrap(), [at(inside)], "the operator's own");
        }
        let both = [at("192.0.2.1"), at("127.0.0.1")];
        assert_eq!(reach.sift("r.io", both.to_vec()).unwrap(), both, "the registry itself");
        assert!(reach.sift("auth.r.io", vec![at("127.0.0.1")]).is_err(), "it is not only here");
        assert_eq!(reach.sift("r.io", vec![at("127.0.0.1")]).unwrap(), [at("127.0.0.1")]);
        assert_eq!(reach.sift("auth.r.io", vec![at("127.0.0.1")]).unwrap(), [at("127.0.0.1")], "it is here");
        assert!(reach.sift("auth.r.io", vec![at("169.254.1.1")]).is_err());
    }
}
