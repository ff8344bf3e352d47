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
#   Active pods that somebody configured for this policy, by an annotation, a list of namespaces or a ConfigMap. A policy that takes
#   configuration from pods holds nothing on any other.
configured := [pod |
	some pod in active
	count(pod.config) > 0
]

# METADATA
# description: The running containers of a pod, sidecars and init containers included.
running(pod) := [container |
	some container in pod.containers
	container.state == "running"
]

# METADATA
# description: |
#   Names a container in `state`: by the pod's UID and its own name, which stay the same where the agent begins anew and gives out other ids.
key(pod, container) := concat("/", [pod.uid, container.name])
