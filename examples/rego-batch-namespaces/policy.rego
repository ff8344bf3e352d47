# Batch pods yield: they get little of a busy CPU, their containers are preempted at once, and are slowed down before they fill the
# memory.
#
# A pod is batch, in order of precedence, by its annotation `example.com/batch`; by the list of namespaces under the key `batch` of the
# ConfigMap for lists; by the cluster's ConfigMap; or by the policy's own configuration, which chooses pods by namespace or by label.
package qosm

import data.qosm.lib.knobs
import data.qosm.lib.pods
import data.qosm.lib.selectors
import data.qosm.lib.text
import data.qosm.lib.units

# METADATA
# title: Lets the pods of batch namespaces run on what others leave.
# entrypoint: true
# custom:
#   qosm:
#     name: batch-namespaces
#     version: 0.1.0
#     grants: [node, cpu-weight, memory-protection, all-pods]
#     configSchema:
#       type: object
#       additionalProperties: false
#       properties:
#         batch:
#           description: Pods that are batch though nobody configured them; one that any of these chooses.
#           type: array
#           items:
#             type: object
#             additionalProperties: false
#             properties:
#               namespaces: {type: array, items: {type: string}}
#               labels: {description: A label selector., type: object}
#               classes: {type: array, items: {type: string, enum: [LSE, LSR, LS, BE, SYSTEM]}}
#         memoryHighNodePercent:
#           description: memory.high of a container without a memory limit, in percent of the node's allocatable memory.
#           type: integer
#           minimum: 1
#           maximum: 100
#     protocol:
#       annotationKeys: [example.com/batch]
#       configMapKey: batch-config
#       namespaceListKey: batch
#       presets:
#         - {policy: auto, values: {cpuIdle: true, cpuWeight: 1, memoryHighPercent: 90}}
#         - {policy: none, values: {}, alone: true}
#       schema:
#         type: object
#         properties:
#           policy:
#             description: Whether it is batch at all.
#             type: string
#             enum: [auto, none]
#           cpuIdle:
#             description: Whether its containers are cpu.idle, so that whoever wakes up takes their CPU at once.
#             type: boolean
#           cpuWeight:
#             description: cpu.weight of the pod, that is what it gets of a CPU which other pods want as well.
#             type: integer
#             minimum: 1
#             maximum: 10000
#           memoryHighPercent:
#             description: memory.high of each container, in percent of its memory limit.
#             type: integer
#             minimum: 1
#             maximum: 100
settings contains knobs.hold(pod, "cpu.weight", wanted.cpuWeight, "batch work gets little of a busy CPU") if {
	some [pod, wanted] in batch
}

# Only on containers: on a pod or a tier cpu.idle would keep the kubelet from writing the weight, and from starting again.
settings contains knobs.hold(container, "cpu.idle", 1, "batch work makes way for whoever wakes up") if {
	some [pod, wanted] in batch
	wanted.cpuIdle
	some container in pods.running(pod)
}

settings contains knobs.hold(container, "memory.high", high, reason) if {
	some [pod, wanted] in batch
	some container in pods.running(pod)
	high := units.percent_of(wanted.memoryHighPercent, memory_limit(pod, container))
	reason := text.line(["batch work is slowed down at ", wanted.memoryHighPercent, " % of its memory limit"])
}

settings contains knobs.hold(container, "memory.high", high, reason) if {
	percent := input.config.memoryHighNodePercent
	some [pod, _] in batch
	some container in pods.running(pod)
	not memory_limit(pod, container)
	high := units.percent_of(percent, input.node.memoryAllocatableBytes)
	reason := text.line(["batch work without a limit is slowed down at ", percent, " % of the node's memory"])
}

# A container without a limit of its own has that of its pod (KEP-2837). Undefined if neither has one.
memory_limit(_, container) := container.memoryLimitBytes

memory_limit(pod, container) := pod.memoryLimitBytes if not container.memoryLimitBytes

# Batch pods, each with its configuration. A rule without arguments is evaluated once for all rules that use it.
batch := [[pod, wish(pod)] | some pod in pods.active]

# Undefined for a pod that is not batch. If the pod is configured, that configuration alone counts: it may say `none`.
wish(pod) := object.union(usual, pod.config) if {
	count(pod.config) > 0
	not pod.config.policy == "none"
}

wish(pod) := usual if {
	count(pod.config) == 0
	some selector in input.config.batch
	selectors.chooses(selector, pod)
}

usual := {"cpuIdle": true, "cpuWeight": 1, "memoryHighPercent": 90}
