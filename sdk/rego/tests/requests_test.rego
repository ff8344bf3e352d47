package qosm.lib.requests_test

import data.qosm.lib.requests

pod := {"id": "1", "uid": "7f0c"}

test_resources_and_evictions_are_settings if {
	requests.publish("kubernetes.io/batch-cpu", 12000, "idle") == {"publish": "kubernetes.io/batch-cpu", "amount": 12000, "reason": "idle"}
	requests.publish_by_zone("kubernetes.io/batch-cpu", 3, {"0": 1, "1": 2}, "idle").zones["1"] == 2
	requests.evict(pod, "MemoryUsage", "too much") == {"evict": "1", "urgency": "soon", "reason": "MemoryUsage", "message": "too much"}
	requests.evict_now(pod, "MemoryUsage", "too much").urgency == "now"
}

test_how_they_fare_is_read_by_name_and_uid if {
	facts := {
		"resources": {
			"kubernetes.io/batch-cpu": {"amount": 0, "inForce": false, "why": "nobody answers"},
			"kubernetes.io/batch-memory": {"amount": 7, "inForce": true, "why": ""},
		},
		"evictions": {"7f0c": {"outcome": "refused", "why": "a budget", "ageMillis": 3}},
	}
	requests.unpublished("kubernetes.io/batch-cpu") == "nobody answers" with input as facts
	not requests.unpublished("kubernetes.io/batch-memory") with input as facts
	requests.outcome(pod) == "refused" with input as facts
	not requests.outcome({"id": "2", "uid": "other"}) with input as facts
}
