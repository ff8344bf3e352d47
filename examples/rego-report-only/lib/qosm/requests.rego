# METADATA
# title: What is asked of the cluster
# description: |
#   Extended resources of the node, and pods that have to leave it. As with knobs, all of it counts anew at each evaluation: a resource that
#   is not in `settings` any more is withdrawn, and so is a request to evict that nobody has carried out yet.
package qosm.lib.requests

# METADATA
# description: |
#   Publishes a resource of the node, in its own unit: thousandths of a CPU for `kubernetes.io/batch-cpu`, bytes for
#   `kubernetes.io/batch-memory`. Needs `node-resource`.
publish(name, amount, reason) := {"publish": name, "amount": amount, "reason": reason}

# METADATA
# description: |
#   The same with the shares of NUMA nodes, an object by their numbers: `{"0": 8000, "1": 4000}`.
publish_by_zone(name, amount, zones, reason) := object.union(publish(name, amount, reason), {"zones": zones})

# METADATA
# description: |
#   Why a resource of the policy is not on the Node: undefined while it is. Needs `node-resource`.
unpublished(name) := input.resources[name].why if not input.resources[name].inForce

# METADATA
# description: |
#   Has a pod evicted, with the pod's own time to end. `reason` is one word in camel case. Needs `eviction`.
evict(pod, reason, message) := {"evict": pod.id, "urgency": "soon", "reason": reason, "message": message}

# METADATA
# description: |
#   The same where it cannot wait: after a few seconds without an answer the agent ends the pod's processes itself.
evict_now(pod, reason, message) := object.union(evict(pod, reason, message), {"urgency": "now"})

# METADATA
# description: |
#   What became of a pod's eviction: `pending`, `accepted`, `refused`, `gone` or `killed`; undefined where none was asked for.
outcome(pod) := input.evictions[pod.uid].outcome
