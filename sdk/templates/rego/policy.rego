# Slows containers down before they reach their memory limit: memory.high at a percentage of it.
#
# Above memory.high the kernel reclaims a container's memory and makes it wait, instead of ending it at the limit.
#
# A pod's owner enables it with the annotation `example.com/my-policy`, an operator for many pods with the key
# `my-policy-config` of the cluster's ConfigMap. Other pods are left alone.
package qosm

import data.qosm.lib.knobs
import data.qosm.lib.pods
import data.qosm.lib.report
import data.qosm.lib.text
import data.qosm.lib.units

# METADATA
# title: Slows containers down before they reach their memory limit.
# entrypoint: true
# custom:
#   qosm:
#     name: my-policy
#     version: 0.1.0
#     grants: [memory-protection]
#     configSchema:
#       type: object
#       additionalProperties: false
#       properties:
#         leastLimitMib:
#           description: Containers with a memory limit below so many MiB are left alone.
#           type: integer
#           minimum: 0
#           maximum: 1048576
#     protocol:
#       annotationKeys: [example.com/my-policy]
#       configMapKey: my-policy-config
#       presets:
#         - {policy: auto, values: {percent: 80}}
#         - {policy: none, values: {}, alone: true}
#       schema:
#         type: object
#         properties:
#           percent:
#             description: memory.high of each container, in percent of its memory limit.
#             type: integer
#             minimum: 1
#             maximum: 100
settings contains knobs.hold(container, "memory.high", high, reason) if {
	some pod in pods.configured
	percent := pod.config.percent
	some container in pods.running(pod)
	container.memoryLimitBytes >= least_limit_bytes
	high := units.percent_of(percent, container.memoryLimitBytes)
	reason := text.line([percent, " % of the memory limit"])
}

# Rejects a pod whose configuration cannot take effect, with a message to its owner.
settings contains report.reject(pod, "percent", message) if {
	some pod in pods.configured
	pod.config.percent
	not has_limit(pod)
	message := "no container of the pod has a memory limit; set resources.limits.memory"
}

has_limit(pod) if pod.containers[_].memoryLimitBytes

least_limit_bytes := object.get(input.config, "leastLimitMib", 0) * units.mib
