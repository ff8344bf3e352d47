package qosm.lib.rates_test

import data.qosm.lib.rates
import data.qosm.lib.testing
import data.qosm.lib.units

app := testing.container("app", {"id": "app", "memoryLimitBytes": units.gib})

unlimited := testing.container("app", {"id": "app"})

facts := testing.document([], {
	"tick": {"windowUsec": 2000000},
	"node": testing.node({"cpuUsageUsec": 8000000}),
	"cpu": {"app": testing.cpu({"usageUsec": 500000, "nrPeriods": 20, "nrThrottled": 5})},
	"memory": {"app": testing.memory({"usageBytes": units.gib, "inactiveFileBytes": 256 * units.mib})},
	"pressure": {"app": testing.pressure({"memory": {"someUsec": 300000, "fullUsec": 20000}})},
})

test_rates_are_by_window if {
	rates.cpu_milli(app) == 250 with input as facts
	rates.throttled_percent(app) == 25 with input as facts
	rates.some_stalled_percent(app, "memory") == 15 with input as facts
	rates.full_stalled_percent(app, "memory") == 1 with input as facts
	rates.some_stalled_percent(app, "io") == 0 with input as facts
	rates.node_cpu_percent == 50 with input as facts
	rates.per_second_milli(3) == 1500 with input as facts
}

test_the_working_set_is_without_idle_page_cache if {
	rates.working_set(app) == 768 * units.mib with input as facts
	rates.working_set_percent(app) == 75 with input as facts
}

test_more_idle_page_cache_than_memory_is_no_working_set if {
	samples := {"app": testing.memory({"usageBytes": 1, "inactiveFileBytes": 2})}
	rates.working_set(app) == 0 with input as testing.document([], {"memory": samples})
}

test_without_a_sample_or_a_limit_there_is_no_share if {
	not rates.cpu_milli(app) with input as testing.document([], {"cpu": {}})
	not rates.throttled_percent(app) with input as testing.document([], {"cpu": {"app": testing.cpu({})}})
	not rates.working_set_percent(unlimited) with input as facts
}

test_the_first_evaluation_has_no_rates if {
	first := object.union(facts, {"tick": {"windowUsec": 0}})
	not rates.cpu_milli(app) with input as first
	not rates.node_cpu_percent with input as first
}

test_caches_and_memory_bandwidth_are_summed_over_domains if {
	domains := [
		testing.usage({"occupancyBytes": 6 * units.mib, "totalBytes": 900}),
		testing.usage({"domain": 8, "occupancyBytes": units.mib, "totalBytes": 100}),
	]
	measured := testing.document([], {
		"tick": {"windowUsec": 2000000},
		"resctrl": {"containers": {"app": domains, "log": [{"domain": 0, "localBytes": 1}], "idle": []}},
	})
	rates.cache_bytes(app) == 7 * units.mib with input as measured
	rates.memory_bytes_per_second(app) == 500 with input as measured
	every id in ["log", "idle", "gone"] {
		not rates.cache_bytes({"id": id}) with input as measured
		not rates.memory_bytes_per_second({"id": id}) with input as measured
	}
}
