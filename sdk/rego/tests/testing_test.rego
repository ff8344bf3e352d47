package qosm.lib.testing_test

import data.qosm.lib.classes
import data.qosm.lib.knobs
import data.qosm.lib.report
import data.qosm.lib.requests
import data.qosm.lib.testing

web := testing.pod("default/web", [testing.container("app", {"cpuLimitMilli": 2000})], {"labels": {"app": "web"}})

app := web.containers[0]

facts := testing.document([web], {"config": {"percent": 5}})

test_what_is_not_said_is_usual if {
	facts.tick.windowUsec == 1000000
	facts.config == {"percent": 5}
	web.namespace == "default"
	web.name == "web"
	web.labels == {"app": "web"}
	app == {
		"id": "default/web/app",
		"name": "app",
		"kind": "regular",
		"state": "running",
		"extendedResources": {},
		"cpuLimitMilli": 2000,
	}
}

test_objects_are_usual_but_for_what_is_said if {
	node := testing.node_object({"labels": {"pool": "batch"}, "resources": {"cpu": {"allocatable": 7000}}})
	node.labels == {"pool": "batch"}
	node.resources.cpu == {"capacity": 8000, "allocatable": 7000}
	node.resources.memory.capacity == 34359738368
	testing.pod_object({"deleting": true}).deleting
	not testing.pod_object({}).deleting
}

test_what_is_held_is_found_by_id_and_by_word if {
	settings := {
		knobs.hold(app, "cpu.weight", 10, "why"),
		knobs.hold(web, "memory.min", 4096, "why"),
		knobs.hold("burstable", "memory.low", 8192, "why"),
		report.warning(web, "Near", "near"),
	}
	testing.held(settings, "default/web/app", "cpu.weight") == 10
	testing.held(settings, "default/web", "memory.min") == 4096
	testing.held(settings, "burstable", "memory.low") == 8192
	not testing.held(settings, "default/web", "cpu.weight")
	testing.holds(settings) == {
		"container default/web/app cpu.weight 10",
		"pod default/web memory.min 4096",
		"tier burstable memory.low 8192",
	}
	testing.events(settings) == {"default/web Near"}
}

test_good_settings_have_no_faults if {
	settings := {
		knobs.hold(app, "cpu.quota", "max", "why"),
		knobs.hold(app, "memory.wmark_min_adj", -25, "why"),
		knobs.hold(app, "cpuset.mems", [0, 1], "why"),
		classes.define("be", {"cache": classes.ways(0, 30)}, "why"),
		classes.assign(web, "be", "why"),
		classes.assign(app, "be", "why"),
		report.warning(web, "Near", "near"),
		report.log("so"),
		report.remember({}),
	}
	grants := ["cpu-bandwidth", "memory-protection", "cpuset", "resctrl-allocation", "pod-event"]
	testing.faults(settings, grants) == set() with input as facts
}

test_each_fault_is_told if {
	stranger := object.union(app, {"id": "default/db/app"})
	every fault, setting in {
		"there is no container default/db/app": knobs.hold(stranger, "cpu.weight", 10, "why"),
		"there is no tier guaranteed": knobs.hold("guaranteed", "cpu.weight", 10, "why"),
		"there is no pod default/db": report.warning({"id": "default/db"}, "Near", "near"),
		"there is no knob cpu.wait": knobs.hold(app, "cpu.wait", 10, "why"),
		"the METADATA do not grant memory-protection": knobs.hold(app, "memory.min", 0, "why"),
		"the METADATA do not grant eviction": requests.evict(web, "Full", "full"),
		"cpu.weight cannot be 10.5": knobs.hold(app, "cpu.weight", 10.5, "why"),
		"cpu.weight cannot be -1": knobs.hold(app, "cpu.weight", -1, "why"),
		"cpu.weight is held without a reason": knobs.hold(app, "cpu.weight", 10, ""),
		"class be is defined without a reason": classes.define("be", {}, ""),
		"there is no class be": classes.assign(app, "be", "why"),
		"there is no knob cpu.wieght": {"remark": "cpu.wieght", "container": app.id, "reason": "why"},
		"a remark on cpu.weight is made without a reason": {"remark": "cpu.weight", "container": app.id},
		"example.com/gpu is published without a reason": requests.publish("example.com/gpu", 1, ""),
		"a migration of default/web/app is started without a reason": knobs.move_pages(app, [0], [1], 1, ""),
		"event Near has no message": {"event": "Near", "pod": web.id},
		"cpu.weight cannot be 0": knobs.hold(app, "cpu.weight", 0, "why"),
		"cpu.weight cannot be 10001": knobs.hold(app, "cpu.weight", 10001, "why"),
		"cpu.weight cannot be \"5\"": knobs.hold(app, "cpu.weight", "5", "why"),
		"cpu.weight cannot be \"max\"": knobs.hold(app, "cpu.weight", "max", "why"),
		"cpu.weight cannot be true": knobs.hold(app, "cpu.weight", true, "why"),
		"cpu.idle cannot be 2": knobs.hold(app, "cpu.idle", 2, "why"),
		"cpuset.cpus cannot be \"0-3\"": knobs.hold(app, "cpuset.cpus", "0-3", "why"),
		"cpuset.cpus cannot be []": knobs.hold(app, "cpuset.cpus", [], "why"),
		"cpu.weight has no value": {"knob": "cpu.weight", "container": app.id, "reason": "why"},
		"cpu.weight needs one target: a container, pod or tier": knobs.hold_node("cpu.weight", 10, "why"),
		"cpu.quota needs one target: a container, pod or tier": {"remark": "cpu.quota", "reason": "why"},
		"cpu.weight takes no device": knobs.hold_on_device(app, "8:0", "cpu.weight", 10, "why"),
		"io.weight needs a device": knobs.hold(app, "io.weight", 10, "why"),
		"io.cost.qos takes no target": knobs.hold_on_device(app, "8:0", "io.cost.qos", {"enable": true}, "why"),
		"vm.min_free_kbytes takes no target": knobs.hold(app, "vm.min_free_kbytes", 10, "why"),
		"cpu.idle is of containers only": knobs.hold(web, "cpu.idle", 1, "why"),
	} {
		grants := [
			"cpu-weight",
			"cpuset",
			"page-migration",
			"resctrl-allocation",
			"pod-event",
			"node-resource",
			"tiers",
			"block-io",
			"node-knobs",
		]
		testing.faults({setting}, grants) == {fault} with input as object.union(facts, {"blockDevices": {"8:0": {}}})
	}
}

test_values_that_the_agent_accepts_have_no_faults if {
	settings := {
		knobs.hold(app, "cpu.weight", {"shares": 2}, "why"),
		knobs.hold(app, "cpu.idle", true, "why"),
		knobs.hold(app, "cpuset.mems", [0], "why"),
		knobs.hold(app, "cpu.bvt_warp_ns", -1, "why"),
		knobs.hold(app, "memory.high", "max", "why"),
		knobs.hold(web, "memory.max", 9223372036854775807, "why"),
		knobs.hold(app, "cpuset.cpus", {0, 1}, "why"),
		knobs.hold_node("vm.watermark_scale_factor", 50, "why"),
		{"remark": "cpu.weight", "tier": "besteffort", "reason": "why"},
	}
	grants := ["cpu-weight", "cpu-identity", "memory-protection", "memory-limit", "cpuset", "node-knobs"]
	testing.faults(settings, grants) == set() with input as facts
}

test_a_tier_needs_its_grant if {
	told := testing.faults({knobs.hold("besteffort", "cpu.weight", 10, "why")}, ["cpu-weight"]) with input as facts
	told == {"the METADATA do not grant tiers"}
}

test_two_values_of_a_knob_of_the_node_are_told if {
	settings := {
		knobs.hold_node("vm.watermark_scale_factor", 50, "why"),
		knobs.hold_node("vm.watermark_scale_factor", 60, "why not"),
	}
	told := testing.faults(settings, ["node-knobs"]) with input as facts
	told == {"vm.watermark_scale_factor of node is to be 50 and 60"}
}

test_a_contradiction_is_told_once if {
	settings := {knobs.hold(app, "cpu.weight", 10, "why"), knobs.hold(app, "cpu.weight", 20, "why not")}
	told := testing.faults(settings, ["cpu-weight"]) with input as facts
	told == {"cpu.weight of default/web/app is to be 10 and 20"}
}

test_a_class_needs_its_grant if {
	told := testing.faults({classes.define("be", {}, "why")}, ["cpu-weight"]) with input as facts
	told == {"the METADATA do not grant resctrl-allocation"}
}

test_two_classes_for_one_and_two_shares_of_one_are_told if {
	settings := {
		classes.define("be", {"cache": classes.ways(0, 30)}, "why"),
		classes.define("be", {"cache": classes.ways(0, 40)}, "why"),
		classes.define("ls", {}, "why"),
		classes.assign(app, "be", "why"),
		classes.assign(app, "ls", "why not"),
	}
	told := testing.faults(settings, ["resctrl-allocation"]) with input as facts
	told == {"class be is to be two things", "default/web/app is to be in class be and ls"}
}

test_knobs_of_two_devices_are_two if {
	disk := {"names": ["sdb"], "partitions": [], "volumeGroups": []}
	devices := object.union(facts, {"blockDevices": {"8:16": disk, "8:32": disk}})
	settings := {
		knobs.hold_on_device(app, "8:16", "io.weight", 100, "why"),
		knobs.hold_on_device(app, "8:32", "io.weight", 200, "why"),
		knobs.hold_of_device("8:16", "io.cost.qos", {"enable": true}, "why"),
	}
	testing.held_on_device(settings, "default/web/app", "8:32", "io.weight") == 200
	testing.held_on_device(settings, "node", "8:16", "io.cost.qos") == {"enable": true}
	not testing.held_on_device(settings, "node", "8:16", "io.weight")
	not testing.held(settings, "default/web/app", "io.weight")
	testing.holds(settings) == {
		"container default/web/app io.weight 8:16 100",
		"container default/web/app io.weight 8:32 200",
	}
	testing.faults(settings, ["block-io"]) == set() with input as devices
	told := testing.faults(settings, ["block-io"]) with input as facts
	told == {"there is no device 8:16", "there is no device 8:32"}
}
