//! What prod pods are expected to leave of their requests: the request less the peak of their use.
//!
//! There are two estimates, of which the smaller counts: pod by pod, and all prod pods together with the system. The sum of the pods' peaks
//! is too cautious if the peaks do not coincide; the peak of the sum does not cover pods that have just started.
//! Koordinator: `pkg/koordlet/prediction/peak_predictor.go`, `config.go`.

use super::histogram::Histogram;
use crate::amounts::{Amounts, bounded, share};

/// Percentile of the CPU use that counts as the peak.
pub(crate) const CPU_PERCENTILE: u32 = 95;
/// Percentile of the memory use that counts as the peak; higher, since a lack of memory kills processes instead of slowing them down.
pub(crate) const MEMORY_PERCENTILE: u32 = 98;
/// Half-life of the weight of CPU samples.
pub(crate) const CPU_HALF_LIFE_USEC: u64 = 12 * 3_600 * 1_000_000;
/// Half-life of the weight of memory samples.
pub(crate) const MEMORY_HALF_LIFE_USEC: u64 = 24 * 3_600 * 1_000_000;

/// Histograms of CPU and memory use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// CPU use in thousandths of a CPU.
    pub cpu: Histogram,
    /// Memory use in bytes.
    pub memory: Histogram,
}

impl Peaks {
    /// Adds the use over a period of `covered_usec`.
    pub fn add(&mut self, used: Amounts, covered_usec: u64) {
        let weight = covered_usec / 1000;
        self.cpu.add(used.cpu_milli, weight);
        self.memory.add(used.memory_bytes, weight);
    }

    /// Lets time pass, so that weights decay.
    pub fn age(&mut self, usec: u64) {
        self.cpu.age(usec, CPU_HALF_LIFE_USEC);
        self.memory.age(usec, MEMORY_HALF_LIFE_USEC);
    }

    /// The peaks; `None` if nothing has been measured.
    pub fn peak(&self) -> Option<Amounts> {
        Some(Amounts::new(self.cpu.percentile(CPU_PERCENTILE)?, self.memory.percentile(MEMORY_PERCENTILE)?))
    }
}

/// A prod pod, or a pod without a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProdPod {
    /// The pod's request.
    pub request: Amounts,
    /// The peak of its use; `None` if the pod has not been measured long enough. It is expected to leave nothing then.
    pub peak: Option<Amounts>,
    /// Whether its QoS class is LSE, so that its CPUs are never given to others.
    pub is_exclusive: bool,
}

/// What prod pods are expected to leave unused; `None` if the peaks of the system or of all prod pods are unknown.
pub fn prod_reclaimable(
    capacity: Amounts,
    pods: &[ProdPod],
    all_prod: Option<Amounts>,
    system: Option<Amounts>,
    margin_percent: u32,
) -> Option<Amounts> {
    let factor = 100 + i128::from(margin_percent);
    let with_margin =
        |peak: Amounts| Amounts::new(bounded(share(peak.cpu_milli, factor)), bounded(share(peak.memory_bytes, factor)));
    let (mut left, mut kept, mut requested) = (Amounts::ZERO, Amounts::ZERO, Amounts::ZERO);
    for pod in pods {
        let peak = pod.peak.map_or(pod.request, with_margin);
        let peak = if pod.is_exclusive { peak.max(Amounts::new(pod.request.cpu_milli, 0)) } else { peak };
        left = left.plus(pod.request.minus(peak));
        kept = kept.plus(peak);
        requested = requested.plus(pod.request);
    }
    let by_pod = left.min(capacity.minus(kept));
    let together = with_margin(all_prod?.plus(system?));
    let by_sum = requested.minus(together).min(capacity.minus(together));
    Some(by_pod.min(by_sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(request: u64, peak: Option<u64>) -> ProdPod {
        ProdPod {
            request: Amounts::new(request, request),
            peak: peak.map(|peak| Amounts::new(peak, peak)),
            is_exclusive: false,
        }
    }

    fn reclaimable(pods: &[ProdPod], all: Option<u64>, system: Option<u64>) -> Option<u64> {
        let both = |amount: u64| Amounts::new(amount, amount);
        let seen = prod_reclaimable(both(10_000), pods, all.map(both), system.map(both), 10)?;
        assert_eq!(seen.cpu_milli, seen.memory_bytes);
        Some(seen.cpu_milli)
    }

    #[test]
    fn the_smaller_of_both_views_counts() {
        for (pods, all, system, expected) in [
            // 1000 - 110 and 2000 - 220 by pod; 3000 - 1.1 × 500 together.
            (vec![pod(1000, Some(100)), pod(2000, Some(200))], Some(300), Some(200), Some(2450)),
            // By pod 890 + 0, since the second pod uses more than it requests: 2200 of 2000.
            (vec![pod(1000, Some(100)), pod(2000, Some(2000))], Some(300), Some(0), Some(890)),
            // A pod that has not been measured long enough leaves nothing.
            (vec![pod(1000, Some(100)), pod(2000, None)], Some(300), Some(0), Some(890)),
            // Requests above the capacity: 10000 - 110.
            (vec![pod(30_000, Some(100))], Some(100), Some(0), Some(9890)),
            // Requests far above it: 10000 - 2 × 4400 by pod, 10000 - 5500 together.
            (vec![pod(20_000, Some(4000)), pod(20_000, Some(4000))], Some(1000), Some(0), Some(1200)),
            (vec![pod(20_000, Some(100)), pod(20_000, Some(100))], Some(4000), Some(1000), Some(4500)),
            (vec![pod(1000, Some(100))], Some(5000), Some(0), Some(0)),
            (vec![], Some(0), Some(0), Some(0)),
            (vec![pod(1000, Some(100))], None, Some(0), None),
            (vec![pod(1000, Some(100))], Some(100), None, None),
        ] {
            assert_eq!(reclaimable(&pods, all, system), expected, "{pods:?} {all:?} {system:?}");
        }
    }

    #[test]
    fn an_exclusive_pod_leaves_memory_but_no_cpu() {
        let pods = [ProdPod { is_exclusive: true, ..pod(1000, Some(100)) }];
        let zero = Some(Amounts::ZERO);
        let seen = prod_reclaimable(Amounts::new(10_000, 10_000), &pods, zero, zero, 10);
        assert_eq!(seen, Some(Amounts::new(0, 890)));
    }

    #[test]
    fn peaks_are_percentiles_of_cpu_and_memory() {
        let mut peaks = Peaks::default();
        assert_eq!(peaks.peak(), None);
        for minute in 0..100 {
            let spike = if minute < 4 { 16 } else { 1 };
            peaks.add(Amounts::new(spike, spike), 60_000_000);
        }
        assert_eq!(peaks.peak(), Some(Amounts::new(1, 16)), "4 % above: within p95, not within p98");
        peaks.age(u64::MAX);
        assert_eq!(peaks.peak(), None);
    }
}
