# METADATA
# title: Shares of caches and memory bandwidth
# description: |
#   A class has shares of caches and memory bandwidth, which its members share. A container in no class may use everything. As with knobs,
#   each evaluation declares all of it: a class or a membership that is no longer in `settings` is removed.
package qosm.lib.classes

import data.qosm.lib.knobs

# METADATA
# description: |
#   Defines a class, by the policy's own name for it. `shares` has `cache`, `bandwidth`, both or none, and in `domains` the shares of single
#   domains by id: `{"cache": classes.ways(0, 30), "bandwidth": {"percent": 50}}`.
define(class, shares, reason) := object.union(shares, {"class": class, "reason": reason})

# METADATA
# description: 'A range of a cache''s ways: start and end in percent.'
ways(start, end) := {"percent": [start, end]}

# METADATA
# description: |
#   Puts a container, or a pod with all its containers, into a class that `settings` define. A container's own class counts before that of
#   its pod.
assign(target, class, reason) := object.union(knobs.target_of(target), {"assign": class, "reason": reason})

# METADATA
# description: |
#   Why the shares of a class of the policy, or which of them, are not in force; undefined if all are. Needs `resctrl-allocation`.
trouble(class) := input.resctrl.states[class].why if input.resctrl.states[class].why != ""
