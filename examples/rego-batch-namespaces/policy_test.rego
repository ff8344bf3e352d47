package qosm_test

import data.qosm
import data.qosm.lib.testing
import data.qosm.lib.units

grants := ["node", "cpu-weight", "memory-protection", "all-pods"]

limited := testing.container("main", {"memoryLimitBytes": units.gib})

unlimited := testing.container("main", {})

node(pods, config) := testing.document(pods, {"config": config, "node": testing.node({})})

test_a_listed_namespace_gives_way if {
	auto := {"policy": "auto", "cpuIdle": true, "cpuWeight": 1, "memoryHighPercent": 90}
	facts := node([testing.pod("batch/job", [limited], {"config": auto})], {})
	settings := qosm.settings with input as facts
	testing.holds(settings) == {
		"container batch/job/main cpu.idle 1",
		"container batch/job/main memory.high 966367641",
		"pod batch/job cpu.weight 1",
	}
	faults := testing.faults(settings, grants) with input as facts
	faults == set()
}

test_an_annotation_says_more_precisely if {
	config := {"cpuIdle": false, "cpuWeight": 5, "memoryHighPercent": 50}
	settings := qosm.settings with input as node([testing.pod("batch/job", [limited], {"config": config})], {})
	testing.holds(settings) == {"pod batch/job cpu.weight 5", "container batch/job/main memory.high 536870912"}
}

test_the_policys_own_configuration_chooses_by_namespace_or_label if {
	config := {"batch": [{"namespaces": ["ci"]}, {"labels": {"matchLabels": {"tier": "batch"}}}]}
	facts := node(
		[
			testing.pod("ci/build", [unlimited], {}),
			testing.pod("default/report", [unlimited], {"labels": {"tier": "batch"}}),
			testing.pod("default/web", [unlimited], {"labels": {"tier": "front"}}),
		],
		config,
	)
	settings := qosm.settings with input as facts
	testing.holds(settings) == {
		"container ci/build/main cpu.idle 1",
		"container default/report/main cpu.idle 1",
		"pod ci/build cpu.weight 1",
		"pod default/report cpu.weight 1",
	}
}

test_a_pod_that_says_none_is_left_alone_in_a_chosen_namespace if {
	pod := testing.pod("ci/runner", [limited], {"config": {"policy": "none"}})
	qosm.settings == set() with input as node([pod], {"batch": [{"namespaces": ["ci"]}]})
}

test_without_a_limit_memory_is_counted_from_the_nodes if {
	config := {"batch": [{"namespaces": ["ci"]}], "memoryHighNodePercent": 25}
	settings := qosm.settings with input as node([testing.pod("ci/build", [unlimited], {})], config)
	testing.held(settings, "ci/build/main", "memory.high") == 8 * units.gib
}

test_a_pods_limit_counts_before_the_nodes_memory if {
	config := {"batch": [{"namespaces": ["ci"]}], "memoryHighNodePercent": 25}
	pod := testing.pod("ci/build", [unlimited], {"memoryLimitBytes": 2 * units.gib})
	settings := qosm.settings with input as node([pod], config)
	testing.held(settings, "ci/build/main", "memory.high") == units.percent_of(90, 2 * units.gib)
}

test_nobody_is_batch_unless_somebody_says_so if {
	qosm.settings == set() with input as node([testing.pod("default/web", [limited], {})], {})
}
