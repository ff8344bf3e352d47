package qosm_test

import data.qosm
import data.qosm.lib.testing
import data.qosm.lib.units

grants := ["memory-protection"]

web(config, limit) := testing.pod("default/web", [testing.container("app", limit)], {"config": config})

node(pods) := testing.document(pods, {"config": {"leastLimitMib": 64}})

test_memory_high_is_so_much_of_the_limit if {
	facts := node([web({"percent": 80}, {"memoryLimitBytes": units.gib})])
	settings := qosm.settings with input as facts
	testing.holds(settings) == {"container default/web/app memory.high 858993459"}
	faults := testing.faults(settings, grants) with input as facts
	faults == set()
}

test_who_did_not_ask_is_left_alone if {
	qosm.settings == set() with input as node([web({}, {"memoryLimitBytes": units.gib})])
}

test_small_containers_are_left_alone if {
	facts := node([web({"percent": 80}, {"memoryLimitBytes": 32 * units.mib})])
	qosm.settings == set() with input as facts
}

test_the_owner_of_a_pod_without_limits_is_told if {
	settings := qosm.settings with input as node([web({"percent": 80}, {})])
	some setting in settings
	setting.reject == "default/web"
	setting.field == "percent"
}

test_a_container_that_does_not_run_is_left_alone if {
	limit := {"memoryLimitBytes": units.gib, "state": "terminated"}
	qosm.settings == set() with input as node([web({"percent": 80}, limit)])
}
