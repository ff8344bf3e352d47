package qosm.lib.knobs_test

import data.qosm.lib.knobs
import data.qosm.lib.testing

web := testing.pod("default/web", [testing.container("app", {})], {})

test_a_container_is_held_by_its_id if {
	knobs.hold(web.containers[0], "cpu.weight", 10, "why") == {
		"container": "default/web/app",
		"knob": "cpu.weight",
		"value": 10,
		"reason": "why",
	}
}

test_a_pod_is_no_container if {
	knobs.hold(web, "memory.min", 4096, "why").pod == "default/web"
	not knobs.hold(web, "memory.min", 4096, "why").container
}

test_a_pod_without_containers_is_a_pod if {
	knobs.hold(object.union(web, {"containers": []}), "memory.min", 4096, "why").pod == "default/web"
}

test_a_tier_is_a_word if {
	knobs.hold("burstable", "memory.low", 0, "why") == {
		"tier": "burstable",
		"knob": "memory.low",
		"value": 0,
		"reason": "why",
	}
}

test_pages_are_moved_by_container if {
	knobs.move_pages(web.containers[0], [0], [1], 7, "why") == {
		"migrate": "default/web/app",
		"from": [0],
		"to": [1],
		"token": 7,
		"reason": "why",
	}
}

test_a_knob_of_a_device_names_it if {
	knobs.hold_on_device("besteffort", "8:16", "io.max", {"rbps": 1048576}, "why") == {
		"tier": "besteffort",
		"device": "8:16",
		"knob": "io.max",
		"value": {"rbps": 1048576},
		"reason": "why",
	}
	knobs.hold_of_device("8:16", "io.cost.qos", {"enable": true}, "why") == {
		"device": "8:16",
		"knob": "io.cost.qos",
		"value": {"enable": true},
		"reason": "why",
	}
}

test_a_core_group_needs_the_grant_of_identities if {
	setting := knobs.hold(web, "core_sched.group", 7, "why")
	testing.faults({setting}, ["cpu-identity"]) == set() with input as testing.document([web], {})
	testing.faults({setting}, ["cpu-weight"]) != set() with input as testing.document([web], {})
}

test_an_identity_needs_a_grant_of_its_own if {
	setting := knobs.hold(web, "cpu.bvt_warp_ns", -1, "why")
	testing.faults({setting}, ["cpu-identity"]) == set() with input as testing.document([web], {})
	testing.faults({setting}, ["cpu-weight"]) != set() with input as testing.document([web], {})
}
