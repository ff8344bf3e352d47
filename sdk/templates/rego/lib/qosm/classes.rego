# METADATA
# title: Shares of caches and memory bandwidth
# description: |
#   A class says what its members may use, and its members share that. Who is in none may use all. As with knobs, all of it counts anew at
#   each evaluation: a class that is not in `settings` any more is given up, and so is a place in it.
package qosm.lib.classes

import data.qosm.lib.knobs

# METADATA
# description: |
#   Defines a class, by the policy's own name for it. `shares` has `cache`, `bandwidth`, both or none, and in `domains` what differs, by the
#   id of a domain: `{"cache": classes.ways(0, 30), "bandwidth": {"percent": 50}}`.
define(class, shares, reason) := object.union(shares, {"class": class, "reason": reason})

# METADATA
# description: From so many percent of a cache's ways to so many.
ways(start, end) := {"percent": [start, end]}

# METADATA
# description: |
#   Puts a container, or a pod with all its containers, into a class that `settings` define. A container's own class counts before its pod's.
assign(target, class, reason) := object.union(knobs.target_of(target), {"assign": class, "reason": reason})

# METADATA
# description: |
#   Why a class of the policy is not in force, or what of it is not: undefined while all is well. Needs `resctrl-allocation`.
trouble(class) := input.resctrl.states[class].why if input.resctrl.states[class].why != ""
