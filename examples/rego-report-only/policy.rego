# Warns pods' owners of memory close to the limit, and of time lost to CFS throttling. It sets nothing: its METADATA grant
# no knob, so the host would refuse it.
#
# Each condition has two thresholds, one to begin and a lower one to end, so that a pod near a threshold does not get repeated events. Which
# containers were high at the last evaluation is in `input.state`; everything else follows from the current samples.
package qosm

import data.qosm.lib.pods
import data.qosm.lib.rates
import data.qosm.lib.report
import data.qosm.lib.text
import data.qosm.lib.thresholds

# METADATA
# title: Tells the owners of pods that are close to their memory limit, or throttled.
# entrypoint: true
# custom:
#   qosm:
#     name: limit-watch
#     version: 0.1.0
#     grants: [cpu-stat, memory-stat, pod-event]
#     intervalMillis: 10000
#     triggers: [memoryEvents]
#     configSchema:
#       type: object
#       additionalProperties: false
#       properties:
#         memoryPercent:
#           description: Share of its memory limit from which a container is close to it; 90 if it is not said.
#           type: integer
#           minimum: 1
#           maximum: 100
#         throttledPercent:
#           description: Share of CFS periods from which a container is throttled too much; 25 if it is not said.
#           type: integer
#           minimum: 1
#           maximum: 100
#         margin:
#           description: How far beneath these a container has to come to be told of anew; 10 if it is not said.
#           type: integer
#           minimum: 0
#           maximum: 100
settings contains report.warning(pod, "MemoryNearLimit", message) if {
	some pod in pods.active
	close := [text.line([container.name, " at ", rates.working_set_percent(container), " % of ", text.bytes(container.memoryLimitBytes)]) |
		some container in pods.running(pod)
		high.memory[pods.key(pod, container)]
	]
	count(close) > 0
	message := text.line(["working set close to the memory limit: ", concat(", ", close)])
}

settings contains report.warning(pod, "CPUThrottled", message) if {
	some pod in pods.active
	throttled := [text.line([container.name, " in ", rates.throttled_percent(container), " % of its periods"]) |
		some container in pods.running(pod)
		high.cpu[pods.key(pod, container)]
	]
	count(throttled) > 0
	message := text.line(["throttled at its CPU limit: ", concat(", ", throttled)])
}

# A process that the kernel kills inside a container is visible nowhere else unless it was the container's first.
settings contains report.warning(pod, "ProcessKilled", message) if {
	some pod in pods.active
	killed := [text.line([kills, " in ", container.name]) |
		some container in pods.running(pod)
		kills := input.memory[container.id].oomKills
		kills > 0
	]
	count(killed) > 0
	message := text.line(["processes ended for want of memory: ", concat(", ", killed)])
}

# The sets come back as lists: JSON has no sets.
settings contains report.remember(high)

high := {
	"memory": {key |
		some pod in pods.active
		some container in pods.running(pod)
		key := pods.key(pod, container)
		is_high("memory", rates.working_set_percent(container), bound.memoryPercent, key)
	},
	"cpu": {key |
		some pod in pods.active
		some container in pods.running(pod)
		key := pods.key(pod, container)
		is_high("cpu", rates.throttled_percent(container), bound.throttledPercent, key)
	},
}

is_high(signal, percent, enter, key) if thresholds.high(percent, enter, enter - bound.margin, was_high(signal, key))

default was_high(_, _) := false

was_high(signal, key) if remembered[signal][key]

# As sets again, and asked by key: `in` goes through all of a list or set for each container.
remembered := {signal: {key | some key in keys} | some signal, keys in input.state}

bound := object.union({"memoryPercent": 90, "throttledPercent": 25, "margin": 10}, input.config)
