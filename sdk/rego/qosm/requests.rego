# METADATA
# title: Requests to the cluster
# description: |
#   Extended resources of the node, and evictions of pods. As with knobs, each evaluation declares all of them: a resource that is no longer
#   in `settings` is withdrawn, and so is an eviction that was not carried out yet.
package qosm.lib.requests

# METADATA
# description: |
#   Publishes a resource of the node, in its own unit: thousandths of a CPU for `kubernetes.io/batch-cpu`, bytes for
#   `kubernetes.io/batch-memory`. Needs `node-resource`.
publish(name, amount, reason) := {"publish": name, "amount": amount, "reason": reason}

# METADATA
# description: 'Publishes a resource with the shares of NUMA nodes, an object by their numbers: `{"0": 8000, "1": 4000}`.'
publish_by_zone(name, amount, zones, reason) := object.union(publish(name, amount, reason), {"zones": zones})

# METADATA
# description: Why a resource of the policy is not in force on the Node; undefined if it is. Needs `node-resource`.
unpublished(name) := input.resources[name].why if not input.resources[name].inForce

# METADATA
# description: Evicts a pod, with the pod's own grace period. `reason` is one word in CamelCase. Needs `eviction`.
evict(pod, reason, message) := {"evict": pod.id, "urgency": "soon", "reason": reason, "message": message}

# METADATA
# description: 'Evicts a pod that cannot wait: after a few seconds without an answer, the agent ends the pod''s processes itself.'
evict_now(pod, reason, message) := object.union(evict(pod, reason, message), {"urgency": "now"})

# METADATA
# description: |
#   Outcome of a pod's eviction: `pending`, `accepted`, `refused`, `gone` or `killed`; undefined if no eviction was requested.
outcome(pod) := input.evictions[pod.uid].outcome
