//! The recording in the pictures of the documentation: a shop in which one container bursts until its allowance is used up, one
//! may not burst, and batch work runs beside them.

use serde_json::{Value, json};

const SECONDS: u64 = 80;
const MIB: u64 = 1 << 20;

/// The lines of the recording.
pub(crate) fn lines() -> String {
    let mut text = format!("{}\n", facts());
    for second in 0..=SECONDS {
        text += &format!("{}\n", tick(second));
    }
    text
}

fn facts() -> Value {
    let pod = |name: &str, namespace: &str, class: &str, annotations: Value, resources: Value| {
        json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("uid-{name}"),
                "labels": {"koordinator.sh/qosClass": class}, "annotations": annotations
            },
            "spec": {"containers": [{"name": "app", "resources": resources}]}
        })
    };
    let burst = json!({"policy": "auto", "cfsQuotaBurstPercent": 200, "cfsQuotaBurstPeriodSeconds": 6}).to_string();
    let asked = json!({"koordinator.sh/cpuBurst": burst, "koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#});
    json!({
        "host": {"cgroup": "v2", "driver": "systemd", "cpus": 16, "memory": "32Gi"},
        "policies": [{"name": "cpu-burst", "config": {"profile": "koordinator"}}, {"name": "memory-qos"}],
        "pods": [
            pod("checkout", "shop", "LS", asked, json!({
                "requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}
            })),
            pod("cart", "shop", "LS", json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#}), json!({
                "requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}
            })),
            pod("train", "batch", "BE", json!({"koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#}), json!({})),
        ]
    })
}

/// One second. From the 20th on, `checkout` needs more than its limit; at the 53rd, its burst allowance is used up.
fn tick(second: u64) -> Value {
    let wave = [0, 9, 14, 9, 0, 4, 11, 6][usize::try_from(second % 8).unwrap()];
    let (usage, throttled) = match second {
        20..28 => (1_950_000, 7),
        28..32 => (2_350_000, 3),
        32..53 => (2_500_000 + wave * 10_000, 0),
        53.. => (1_980_000, 6),
        0..20 => (700_000 + wave * 20_000, 0),
    };
    let container = |pod: &str, cpu: Value, memory: u64, waits: [u64; 3]| {
        json!({
            "pod": pod, "container": "app", "cpu": cpu,
            "memory": {"usageBytes": memory * MIB, "anonBytes": memory * MIB * 3 / 4, "fileBytes": memory * MIB / 4},
            "pressure": {"cpuSomeUsec": waits[0], "memorySomeUsec": waits[1], "ioSomeUsec": waits[2]}
        })
    };
    let cpu = |usage: u64, throttled: u64| json!({"usageUsec": usage, "nrPeriods": 10, "nrThrottled": throttled, "throttledUsec": throttled * 35_000});
    let memory = 420 + second * 5 + wave;
    json!({
        "windowMillis": 1000,
        "node": {"cpuUsageUsec": usage + 2_300_000, "memoryAvailableBytes": (22_000 - second * 5) * MIB},
        "containers": [
            container("shop/checkout", cpu(usage, throttled), memory, [
                throttled * 35_000 + wave * 3_000, if second < 20 { 0 } else { wave * 1_500 }, wave * 2_000
            ]),
            container("shop/cart", cpu(930_000, 2 + wave % 3), 300 + wave, [90_000, 0, 0]),
            container("batch/train", json!({"usageUsec": 1_200_000}), 3_000 + second * 5, [400_000, 20_000, 0]),
        ]
    })
}
