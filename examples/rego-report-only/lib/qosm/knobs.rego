# METADATA
# title: Settings
# description: |
#   Objects in `settings` that hold knobs. Each evaluation declares all of them: a knob that is no longer in the set is released, and the
#   value of the next policy or the baseline applies again.
package qosm.lib.knobs

# METADATA
# description: |
#   Holds a knob of a container or a pod, as in `input`, or of a tier ("kubepods", "burstable", "besteffort"). The value is a whole number
#   in the knob's own unit, or "max" if the kernel accepts that word; for `cpuset.cpus` and `cpuset.mems` an array or set of numbers; for
#   `cpu.weight` also `{"shares": n}`. `qosm explain` shows the reason.
hold(target, knob, value, reason) := object.union(
	target_of(target),
	{"knob": knob, "value": value, "reason": reason},
)

# METADATA
# description: |
#   Holds a setting of the node's kernel, such as "vm.watermark_scale_factor". `input.nodeKnobs` has the settings of this kernel.
hold_node(knob, value, reason) := {"knob": knob, "value": value, "reason": reason}

# METADATA
# description: |
#   Holds a knob of a container, a pod or a tier on a block device: "io.max", whose value is an object of `rbps`, `wbps`, `riops` and
#   `wiops` per second, or "io.weight", 1 to 10000. The device is a key of `input.blockDevices`, its numbers, such as "8:16".
hold_on_device(target, device, knob, value, reason) := object.union(
	hold(target, knob, value, reason),
	{"device": device},
)

# METADATA
# description: |
#   Holds a setting of a block device for the whole node: "io.cost.qos" or "io.cost.model". The value is an object with the kernel's own
#   names.
hold_of_device(device, knob, value, reason) := {"knob": knob, "device": device, "value": value, "reason": reason}

# METADATA
# description: |
#   Moves a container's pages from some NUMA nodes to others. The token is a number of the policy's choice; another token starts a new
#   migration.
move_pages(container, from, to, token, reason) := {
	"migrate": container.id,
	"from": from,
	"to": to,
	"token": token,
	"reason": reason,
}

# METADATA
# description: 'The field that names a target: `tier`, `pod` or `container`.'
target_of(target) := {"tier": target} if is_string(target)

target_of(target) := {"pod": target.id} if target.containers

target_of(target) := {"container": target.id} if {
	target.id
	not target.containers
}

# METADATA
# description: The grant that each knob needs.
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
