# METADATA
# title: Settings
# description: |
#   What a policy puts into `settings` to hold a knob. All of it counts anew at each evaluation: what is not in the set any more is
#   released, and what lies beneath comes back.
package qosm.lib.knobs

# METADATA
# description: |
#   Holds a knob of a container or a pod, as `input` shows them, or of a tier ("kubepods", "burstable", "besteffort"). The value is a
#   whole number in the knob's own unit, or "max" where the kernel knows that word; of `cpuset.cpus` and `cpuset.mems` an array or set
#   of numbers; of `cpu.weight` also `{"shares": n}`. The reason is what `qosm explain` shows.
hold(target, knob, value, reason) := object.union(
	target_of(target),
	{"knob": knob, "value": value, "reason": reason},
)

# METADATA
# description: |
#   Holds a setting of the node's kernel, such as "vm.watermark_scale_factor". `input.nodeKnobs` has those that there are.
hold_node(knob, value, reason) := {"knob": knob, "value": value, "reason": reason}

# METADATA
# description: |
#   Holds what a container, a pod or a tier may do on a block device: "io.max", whose value is an object of `rbps`, `wbps`, `riops` and
#   `wiops` a second, or "io.weight", 1 to 10000. `input.blockDevices` is by the numbers of the device, such as "8:16".
hold_on_device(target, device, knob, value, reason) := object.union(
	hold(target, knob, value, reason),
	{"device": device},
)

# METADATA
# description: |
#   Holds a setting of a block device for the whole node: "io.cost.qos" or "io.cost.model", whose values are objects with the kernel's
#   own names.
hold_of_device(device, knob, value, reason) := {"knob": knob, "device": device, "value": value, "reason": reason}

# METADATA
# description: |
#   Moves a container's pages from some NUMA nodes to others. The token is the policy's own number for it: another one begins anew.
move_pages(container, from, to, token, reason) := {
	"migrate": container.id,
	"from": from,
	"to": to,
	"token": token,
	"reason": reason,
}

# METADATA
# description: 'The field that names a target: that of a tier, a pod or a container.'
target_of(target) := {"tier": target} if is_string(target)

target_of(target) := {"pod": target.id} if target.containers

target_of(target) := {"container": target.id} if {
	target.id
	not target.containers
}

# METADATA
# description: The interface that each knob needs to be granted.
grants := {
	"cpu.quota": "cpu-bandwidth",
	"cpu.burst": "cpu-bandwidth",
	"cpu.weight": "cpu-weight",
	"cpu.idle": "cpu-weight",
	"cpu.bvt_warp_ns": "cpu-identity",
	"core_sched.group": "cpu-identity",
	"memory.min": "memory-protection",
	"memory.low": "memory-protection",
	"memory.high": "memory-protection",
	"memory.wmark_ratio": "memory-protection",
	"memory.wmark_scale_factor": "memory-protection",
	"memory.wmark_min_adj": "memory-protection",
	"memory.priority": "memory-protection",
	"memory.use_priority_oom": "memory-protection",
	"memory.oom.group": "memory-protection",
	"memory.pagecache_limit.enable": "memory-protection",
	"memory.pagecache_limit.size": "memory-protection",
	"memory.pagecache_limit.sync": "memory-protection",
	"cpuset.mems": "cpuset",
	"cpuset.cpus": "cpuset",
	"memory.max": "memory-limit",
	"vm.min_free_kbytes": "node-knobs",
	"vm.watermark_scale_factor": "node-knobs",
	"memcg_reaper.reap_background": "node-knobs",
	"kernel.sched_group_identity_enabled": "node-knobs",
	"kernel.sched_idle_saver_wmark": "node-knobs",
	"pagecache_limit.enabled": "node-knobs",
	"kernel.sched_core": "node-knobs",
	"io.max": "block-io",
	"io.weight": "block-io",
	"io.cost.qos": "block-io",
	"io.cost.model": "block-io",
}
