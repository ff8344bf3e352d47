//! The page cache limit of a pod.

use crate::config::MemoryQos;
use crate::formula::share;
use crate::reason::{Reason, Size};

/// The values of `memory.pagecache_limit.*`; `None` = not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCacheLimit {
    /// `enable`.
    pub(crate) enable: Option<bool>,
    /// `size` in bytes.
    pub(crate) size: Option<u64>,
    /// `sync`.
    pub(crate) sync: Option<bool>,
}

impl PageCacheLimit {
    /// Computes the limit from the size, capped at the pod's limit, or else from the percentage of the pod's limit, at least one page. A
    /// size of 0 or less, or a percentage of 0, switches the limit off. With neither, or with a percentage but no pod limit, nothing is
    /// set. An explicit switch overrides `enable`.
    pub(crate) fn new(qos: &MemoryQos, pod_limit: Option<u64>, page: u64) -> Self {
        let size = match (qos.page_cache_limit_size, qos.page_cache_limit_percent) {
            (Some(size), _) => Some(u64::try_from(size).unwrap_or(0).min(pod_limit.unwrap_or(u64::MAX))),
            // Rounding a small limit down to 0 would switch it off.
            (None, Some(percent)) if percent > 0 => pod_limit.map(|limit| match share(limit, percent) {
                0 => page.max(1),
                size => size,
            }),
            (None, Some(_)) => pod_limit.map(|_| 0),
            (None, None) => None,
        };
        let on = size.map(|size| size > 0);
        Self {
            enable: qos.page_cache_enable.or(on),
            size,
            sync: on.filter(|on| *on).map(|_| qos.page_cache_reclaim_sync.unwrap_or(false)),
        }
    }

    /// Adds the origin of the limit to the reason.
    pub(crate) fn explain(self, qos: &MemoryQos, pod_limit: Option<u64>, reason: &mut Reason) {
        match (self.size, qos.page_cache_limit_size, qos.page_cache_limit_percent) {
            (Some(0), ..) => reason.add("page cache limit 0"),
            (Some(size), Some(asked), _) if u64::try_from(asked) != Ok(size) => {
                reason.add(&format!("page cache limit {} of pod limit", Size::from(size)));
            }
            (Some(size), Some(_), _) => reason.add(&format!("page cache limit {}", Size::from(size))),
            (Some(_), None, Some(percent)) => {
                reason
                    .add(&format!("page cache limit {percent} % of pod limit {}", Size::from(pod_limit.unwrap_or(0))));
            }
            _ => {}
        }
        if let Some(enable) = qos.page_cache_enable {
            reason.add(if enable { "page cache limit on" } else { "page cache limit off" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn limit(enable: Option<bool>, size: Option<u64>, sync: Option<bool>) -> PageCacheLimit {
        PageCacheLimit { enable, size, sync }
    }

    #[test]
    fn it_follows_the_table() {
        let none = MemoryQos::default();
        let size = |size| MemoryQos { page_cache_limit_size: Some(size), ..MemoryQos::default() };
        let percent = |percent| MemoryQos { page_cache_limit_percent: Some(percent), ..MemoryQos::default() };
        let on = Some(true);
        let off = Some(false);
        for (qos, pod_limit, expected) in [
            (size(1 << 20), Some(GIB), limit(on, Some(1 << 20), off)),
            (size(1 << 20), None, limit(on, Some(1 << 20), off)),
            (size(1 << 40), Some(GIB), limit(on, Some(GIB), off)),
            (MemoryQos { page_cache_reclaim_sync: on, ..size(1 << 20) }, None, limit(on, Some(1 << 20), on)),
            // The size takes precedence over the percentage, even if it is 0.
            (
                MemoryQos { page_cache_limit_percent: Some(50), ..size(1 << 20) },
                Some(GIB),
                limit(on, Some(1 << 20), off),
            ),
            (MemoryQos { page_cache_limit_percent: Some(50), ..size(0) }, Some(GIB), limit(off, Some(0), None)),
            (percent(50), Some(GIB), limit(on, Some(GIB / 2), off)),
            (percent(33), Some(100), limit(on, Some(33), off)),
            (percent(50), None, limit(None, None, None)),
            (MemoryQos { page_cache_enable: on, ..percent(50) }, None, limit(on, None, None)),
            (percent(0), Some(GIB), limit(off, Some(0), None)),
            (percent(1), Some(99), limit(on, Some(4096), off)),
            (size(0), Some(GIB), limit(off, Some(0), None)),
            (size(-5), Some(GIB), limit(off, Some(0), None)),
            (none.clone(), Some(GIB), limit(None, None, None)),
            (MemoryQos { page_cache_reclaim_sync: on, ..none.clone() }, Some(GIB), limit(None, None, None)),
            (MemoryQos { page_cache_enable: off, ..size(1 << 20) }, None, limit(off, Some(1 << 20), off)),
            (MemoryQos { page_cache_enable: on, ..size(0) }, None, limit(on, Some(0), None)),
            (MemoryQos { page_cache_enable: on, ..none }, None, limit(on, None, None)),
        ] {
            assert_eq!(PageCacheLimit::new(&qos, pod_limit, 4096), expected, "{qos:?} under {pod_limit:?}");
        }
    }
}
