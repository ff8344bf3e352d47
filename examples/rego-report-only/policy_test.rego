package qosm_test

import data.qosm
import data.qosm.lib.testing
import data.qosm.lib.units

grants := ["cpu-stat", "memory-stat", "pod-event"]

web := testing.pod("default/web", [testing.container("app", {"memoryLimitBytes": 100 * units.mib})], {})

# A tick at which the container uses this much of its 100 MiB, with the state of the last evaluation.
at(mebibytes, state) := testing.document([web], {
	"state": state,
	"cpu": {},
	"memory": {"default/web/app": testing.memory({"usageBytes": mebibytes * units.mib})},
})

was_high := {"memory": ["uid-of-default/web/app"], "cpu": []}

calm := {"memory": [], "cpu": []}

# The state that the next evaluation finds: sets have become lists.
state(settings) := {signal: sort(keys) | some signal, keys in one.state} if {
	some one in settings
	one.state
}

test_memory_near_the_limit_is_told if {
	settings := qosm.settings with input as at(90, calm)
	testing.events(settings) == {"default/web MemoryNearLimit"}
	{"working set close to the memory limit: app at 90 % of 100 MiB"} == {one.message | some one in settings}
	faults := testing.faults(settings, grants) with input as at(90, calm)
	faults == set()
}

test_it_stays_told_until_it_is_well_below if {
	every mebibytes, told in {85: {"default/web MemoryNearLimit"}, 80: {"default/web MemoryNearLimit"}, 79: set()} {
		settings := qosm.settings with input as at(mebibytes, was_high)
		testing.events(settings) == told
	}
	kept := qosm.settings with input as at(80, was_high)
	state(kept) == was_high
	forgotten := qosm.settings with input as at(79, was_high)
	state(forgotten) == calm
}

test_what_was_calm_is_calm_below_the_upper_threshold if {
	settings := qosm.settings with input as at(89, calm)
	testing.events(settings) == set()
	state(settings) == calm
}

test_the_first_evaluation_remembers_nothing if {
	settings := qosm.settings with input as at(85, {})
	testing.events(settings) == set()
}

test_throttling_is_told_where_periods_passed if {
	throttled := {"default/web/app": testing.cpu({"nrPeriods": 10, "nrThrottled": 3})}
	settings := qosm.settings with input as object.union(at(10, calm), {"cpu": throttled})
	testing.events(settings) == {"default/web CPUThrottled"}
	idle := qosm.settings with input as object.union(at(10, calm), {"cpu": {"default/web/app": testing.cpu({})}})
	testing.events(idle) == set()
}

test_an_operator_sets_the_bounds if {
	config := {"config": {"memoryPercent": 50, "margin": 0}}
	settings := qosm.settings with input as object.union(at(50, calm), config)
	testing.events(settings) == {"default/web MemoryNearLimit"}
	below := qosm.settings with input as object.union(at(49, was_high), config)
	testing.events(below) == set()
}

test_a_killed_process_is_told if {
	killed := {"default/web/app": testing.memory({"usageBytes": 1, "oomKills": 2})}
	settings := qosm.settings with input as object.union(at(1, calm), {"memory": killed})
	testing.events(settings) == {"default/web ProcessKilled"}
}

test_nothing_is_held if {
	settings := qosm.settings with input as at(99, calm)
	testing.holds(settings) == set()
}
