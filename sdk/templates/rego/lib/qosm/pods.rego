# METADATA
# title: Pods and their containers
package qosm.lib.pods

# METADATA
# description: Pods that are pending or running.
active := [pod |
	some pod in input.pods
	pod.active
]

# METADATA
# description: |
#   Active pods that are configured for this policy, by an annotation, a list of namespaces or a ConfigMap. A policy that takes
#   configuration from pods holds nothing on other pods.
configured := [pod |
	some pod in active
	count(pod.config) > 0
]

# METADATA
# description: The running containers of a pod, including sidecars and init containers.
running(pod) := [container |
	some container in pod.containers
	container.state == "running"
]

# METADATA
# description: |
#   Key of a container in `state`: the pod's UID and the container's name. Unlike ids, these stay the same after a restart of the agent.
key(pod, container) := concat("/", [pod.uid, container.name])
