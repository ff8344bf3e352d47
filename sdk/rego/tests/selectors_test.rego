package qosm.lib.selectors_test

import data.qosm.lib.selectors
import data.qosm.lib.testing

web := testing.pod("prod/web", [], {"qos": "LS", "labels": {"app": "web", "tier": "front"}})

test_each_part_that_is_said_has_to_fit if {
	selectors.chooses({"namespaces": ["prod"]}, web)
	selectors.chooses({"namespaces": ["prod"], "labels": {"matchLabels": {"app": "web"}}, "classes": ["LS"]}, web)
	not selectors.chooses({"namespaces": ["prod"], "labels": {"matchLabels": {"app": "db"}}}, web)
	not selectors.chooses({"namespaces": ["prod"], "classes": ["BE", "LSR"]}, web)
	not selectors.chooses({"namespaces": []}, web)
}

test_a_selector_that_says_nothing_chooses_nothing if {
	not selectors.chooses({}, web)
	not selectors.chooses({"namespace": ["prod"]}, web)
}

test_label_selectors_are_those_of_kubernetes if {
	every selector in [
		{},
		{"matchLabels": {"app": "web", "tier": "front"}},
		{"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]},
		{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
		{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
		{"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist"}]},
	] {
		selectors.matches(selector, web.labels)
	}
	every selector in [
		{"matchLabels": {"app": "web", "tier": "back"}},
		{"matchLabels": {"zone": "a"}},
		{"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]},
		{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
		{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
		{"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
		{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
		{"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]},
	] {
		not selectors.matches(selector, web.labels)
	}
}
