package qosm.lib.classes_test

import data.qosm.lib.classes
import data.qosm.lib.testing

web := testing.pod("default/web", [testing.container("app", {})], {})

test_a_class_has_its_shares_and_a_reason if {
	classes.define("be", {"cache": classes.ways(0, 30), "bandwidth": {"percent": 50}}, "why") == {
		"class": "be",
		"cache": {"percent": [0, 30]},
		"bandwidth": {"percent": 50},
		"reason": "why",
	}
}

test_pods_and_containers_are_put_into_classes if {
	classes.assign(web, "be", "why") == {"assign": "be", "pod": "default/web", "reason": "why"}
	classes.assign(web.containers[0], "be", "why") == {"assign": "be", "container": "default/web/app", "reason": "why"}
}

test_who_is_in_which_class_can_be_asked if {
	settings := {classes.assign(web, "be", "why")}
	testing.class_of(settings, "default/web") == "be"
	not testing.class_of(settings, "default/web/app")
}

test_trouble_is_told_while_it_lasts if {
	states := {"be": {"inForce": false, "why": "no class is left"}, "ls": {"inForce": true, "why": ""}}
	facts := testing.document([], {"resctrl": {"states": states}})
	classes.trouble("be") == "no class is left" with input as facts
	not classes.trouble("ls") with input as facts
	not classes.trouble("lsr") with input as facts
}
