# METADATA
# title: For tests
# description: |
#   Builds `input` from what matters to a test, and looks up values in `settings`. Ids are readable names: "default/web", "default/web/app".
package qosm.lib.testing

import data.qosm.lib.knobs
import data.qosm.lib.text
import data.qosm.lib.units
import data.qosm.lib.zeros

# METADATA
# description: |
#   An `input` at an interval tick with a window of one second, with these pods (an array) and further fields, e.g. `{"config": …, "cpu":
#   {"default/web/app": testing.cpu({"usageUsec": 5})}}`.
document(pods, fields) := object.union(
	{
		"tick": {"windowUsec": 1000000, "elapsedUsec": 1000000, "cause": "interval", "alarms": []},
		"config": {},
		"state": {},
		"pods": pods,
	},
	fields,
)

# METADATA
# description: A running pod of Kubernetes' class Burstable, named `namespace/name`.
pod(name, containers, fields) := object.union(
	{
		"id": name,
		"namespace": split(name, "/")[0],
		"name": split(name, "/")[1],
		"uid": concat("", ["uid-of-", name]),
		"qos": "LS",
		"kubeQos": "Burstable",
		"active": true,
		"hostPid": false,
		"staticPod": false,
		"labels": {},
		"containers": [object.union(container, {"id": concat("/", [name, container.name])}) |
			some container in containers
		],
		"cpuOverheadMilli": 0,
		"memoryOverheadBytes": 0,
		"config": {},
		"annotated": false,
	},
	fields,
)

# METADATA
# description: A running container. The pod gives it an id.
container(name, fields) := object.union(
	{"name": name, "kind": "regular", "state": "running", "extendedResources": {}},
	fields,
)

# METADATA
# description: A node of 8 CPUs and 32 GiB.
node(fields) := object.union(
	{
		"cpus": 8,
		"memoryCapacityBytes": 32 * units.gib,
		"memoryAllocatableBytes": 32 * units.gib,
		"pageSizeBytes": 4096,
	},
	fields,
)

# METADATA
# description: |
#   A Node object of 8 CPUs and 32 GiB, all of them allocatable: `{"nodeObject": testing.node_object({"labels": {"pool": "batch"}})}`.
node_object(fields) := object.union(
	{
		"name": "node",
		"labels": {},
		"annotations": {},
		"resources": {
			"cpu": {"capacity": 8000, "allocatable": 8000},
			"memory": {"capacity": 32 * units.gib, "allocatable": 32 * units.gib},
		},
		"zones": [],
	},
	fields,
)

# METADATA
# description: |
#   The object of a bare pod that is not being deleted: `{"podObjects": {"default/web": testing.pod_object({"ownerKind": "DaemonSet"})}}`.
pod_object(fields) := object.union(
	{"annotations": {}, "deleting": false, "gracePeriodSec": 30, "mirror": false, "restartPolicy": "Always"},
	fields,
)

# METADATA
# description: A sample of an idle container.
cpu(fields) := object.union(zeros.cpu, fields)

# METADATA
# description: A sample of a container without memory.
memory(fields) := object.union(zeros.memory, fields)

# METADATA
# description: A sample of a container that waits for nothing.
pressure(fields) := object.union(
	{resource: {"someUsec": 0, "fullUsec": 0} | some resource in ["cpu", "memory", "io"]},
	fields,
)

# METADATA
# description: |
#   A sample of caches and memory bandwidth on one domain, of a container, a class or the rest: `{"resctrl": {"containers":
#   {"default/web/app": [testing.usage({"occupancyBytes": 5})]}}}`.
usage(fields) := object.union({"domain": 0, "occupancyBytes": 0, "localBytes": 0, "totalBytes": 0}, fields)

# METADATA
# description: |
#   The value that `settings` hold for a knob of a container, a pod (by id) or a tier. Undefined if `settings` do not hold the knob, which a
#   test can check by `not testing.held(…)`. For knobs of block devices, use `held_on_device`.
held(settings, target, knob) := setting.value if {
	some setting in settings
	setting.knob == knob
	not setting.device
	target in {object.get(setting, kind, null) | some kind in ["container", "pod", "tier"]}
}

# METADATA
# description: 'The value that `settings` hold for a knob of a block device ("8:16") on a container, a pod (by id), a tier, or "node".'
held_on_device(settings, target, device, knob) := setting.value if {
	some setting in settings
	setting.knob == knob
	setting.device == device
	target in targets(setting)
}

target_fields := ["container", "pod", "tier"]

targets(setting) := {"node"} if {
	every kind in target_fields { not setting[kind] }
} else := {setting[kind] | some kind in target_fields}

# METADATA
# description: 'All knobs that `settings` hold, one line each: "container default/web/app cpu.weight 10".'
holds(settings) := {text.line([kind, " ", setting[kind], " ", knob_of(setting), " ", setting.value]) |
	some setting in settings
	setting.knob
	some kind in ["container", "pod", "tier"]
	setting[kind]
}

knob_of(setting) := concat(" ", [setting.knob, setting.device]) if setting.device

knob_of(setting) := setting.knob if not setting.device

# METADATA
# description: |
#   The class to which `settings` assign a container or pod (by id). Undefined if they assign none; the container is then in the class of
#   its pod.
class_of(settings, target) := setting.assign if {
	some setting in settings
	target in {object.get(setting, kind, null) | some kind in ["container", "pod"]}
	setting.assign
}

# METADATA
# description: 'All events of `settings`, one line each: "default/web MemoryNearLimit".'
events(settings) := {concat(" ", [setting.pod, setting.event]) | some setting in settings}

# METADATA
# description: |
#   What the agent would refuse in `settings` (or not recognise, such as a misspelt name), with the grants in the policy's METADATA. Tests
#   expect none: `testing.faults(settings, ["cpu-weight"]) == set() with input as …`.
faults(settings, grants) := union({
	strangers(settings),
	misspelt(settings),
	ungranted(settings, grants),
	impossible(settings),
	contradictions(settings),
	contradicting(settings),
	twofold(settings),
	undefined_classes(settings),
	silent(settings),
	misplaced(settings),
	incomplete(settings),
})

strangers(settings) := {text.line(["there is no ", kind, " ", id]) |
	some setting in settings
	some kind, ids in known
	id := setting[kind]
	not id in ids
}

known := {
	"pod": pod_ids,
	"reject": pod_ids,
	"container": container_ids,
	"evict": pod_ids,
	"migrate": container_ids,
	"tier": {"kubepods", "burstable", "besteffort"},
	"device": {device | some device, _ in input.blockDevices},
}

pod_ids := {pod.id | some pod in input.pods}

container_ids := {one.id | some one in input.pods[_].containers}

misspelt(settings) := {text.line(["there is no knob ", name]) |
	some setting in settings
	some field in ["knob", "remark"]
	name := setting[field]
	not knobs.grants[name]
}

ungranted(settings, grants) := {text.line(["the METADATA do not grant ", grant]) |
	some setting in settings
	some grant in needed(setting)
	not grant in grants
}

needed(setting) := union({
	{grant | grant := knobs.grants[setting.knob]},
	tiers_grant(setting),
	{"pod-event" | setting.event},
	{"page-migration" | setting.migrate},
	{"resctrl-allocation" | setting.class},
	{"resctrl-allocation" | setting.assign},
	{"node-resource" | setting.publish},
	{"node-resource" | setting.staleAfter},
	{"eviction" | setting.evict},
})

# A remark on a tier sets nothing.
tiers_grant(setting) := {"tiers" |
	setting.knob
	setting.tier
}

misplaced(settings) := {text.line([knob, " ", flaw]) |
	some setting in settings
	some field in ["knob", "remark"]
	knob := setting[field]
	knobs.grants[knob]
	some flaw in union({misaimed(setting, knob), unusable(setting)})
}

misaimed(setting, knob) := union({
	{"takes no target" | of_node(knob); count(kinds) > 0},
	{"needs one target: a container, pod or tier" | not of_node(knob); count(kinds) != 1},
	{"takes no device" | setting.device; not of_device(knob)},
}) if {
	kinds := {kind | some kind in target_fields; setting[kind]}
}

# A remark may lack a device, and be about any target.
unusable(setting) := union({
	{"has no value" | setting.knob; not "value" in object.keys(setting)},
	{"needs a device" | of_device(setting.knob); not setting.device},
	{"is of containers only" |
		setting.knob in {"cpu.idle", "cpuset.mems"}
		some kind in ["pod", "tier"]
		setting[kind]
	},
})

of_node(knob) if knobs.grants[knob] == "node-knobs"

of_node(knob) if knob in {"io.cost.qos", "io.cost.model"}

of_device(knob) if knobs.grants[knob] == "block-io"

impossible(settings) := {text.line([setting.knob, " cannot be ", quoted(setting.value)]) |
	some setting in settings
	knobs.grants[setting.knob]
	not possible(setting.knob, setting.value)
}

# A string looks different from the number that it contains.
quoted(value) := json.marshal(value) if is_string(value)

quoted(value) := value if not is_string(value)

possible(knob, value) if {
	not knob in {"cpuset.cpus", "cpuset.mems", "io.max", "io.cost.qos", "io.cost.model"}
	[least, most] := object.get(bounds, knob, [0, 9223372036854775807])
	whole(value, least, most)
}

possible(knob, "max") if knob in {"cpu.quota", "memory.high", "memory.max"}

possible(knob, value) if {
	is_boolean(value)
	bounds[knob] == [0, 1]
}

possible("cpu.weight", value) if {
	object.keys(value) == {"shares"}
	whole(value.shares, 2, 262144)
}

possible(knob, value) if {
	most := {"cpuset.cpus": 1023, "cpuset.mems": 62}[knob]
	count(value) > 0
	not is_object(value)
	every number in value { whole(number, 0, most) }
}

possible(knob, value) if {
	knob in {"io.max", "io.cost.qos", "io.cost.model"}
	is_object(value)
}

whole(value, least, most) if {
	is_number(value)
	value == floor(value)
	value >= least
	value <= most
}

# The range of each knob that does not have all whole numbers from 0 on. A range of 0 and 1 is a switch, which can also be true or false.
bounds := {
	"cpu.weight": [1, 10000],
	"io.weight": [1, 10000],
	"cpu.bvt_warp_ns": [-1, 2],
	"core_sched.group": [0, 9007199254740991],
	"memory.wmark_ratio": [0, 4294967295],
	"memory.wmark_scale_factor": [0, 4294967295],
	"memory.priority": [0, 4294967295],
	"memory.wmark_min_adj": [-2147483648, 2147483647],
	"cpu.idle": [0, 1],
	"memory.use_priority_oom": [0, 1],
	"memory.oom.group": [0, 1],
	"memory.pagecache_limit.enable": [0, 1],
	"memory.pagecache_limit.sync": [0, 1],
	"memcg_reaper.reap_background": [0, 1],
	"kernel.sched_group_identity_enabled": [0, 1],
	"pagecache_limit.enabled": [0, 1],
	"kernel.sched_core": [0, 1],
}

contradictions(settings) := {text.line([knob_of(one), " of ", target, " is to be ", one.value, " and ", other.value]) |
	some one in settings
	some other in settings
	knob_of(other) == knob_of(one)
	object.filter(other, target_fields) == object.filter(one, target_fields)
	one.value < other.value
	some target in targets(one)
}

contradicting(settings) := {text.line([target, " is to be in class ", one.assign, " and ", other.assign]) |
	some one in settings
	some kind in ["container", "pod"]
	target := one[kind]
	some other in settings
	other[kind] == target
	one.assign < other.assign
}

twofold(settings) := {text.line(["class ", one.class, " is to be two things"]) |
	some one in settings
	some other in settings
	one.class == other.class
	object.remove(one, ["reason"]) != object.remove(other, ["reason"])
}

undefined_classes(settings) := {text.line(["there is no class ", setting.assign]) |
	some setting in settings
	setting.assign
	not setting.assign in {other.class | some other in settings}
}

silent(settings) := {text.line([what, " without a reason"]) |
	some setting in settings
	some what in said(setting)
	object.get(setting, "reason", "") == ""
}

said(setting) := union({
	{text.line([setting.knob, " is held"]) | setting.knob},
	{text.line(["class ", setting.class, " is defined"]) | setting.class},
	{text.line(["class ", setting.assign, " is given"]) | setting.assign},
	{text.line([setting.publish, " is published"]) | setting.publish},
	{text.line(["a migration of ", setting.migrate, " is started"]) | setting.migrate},
	{text.line(["a remark on ", setting.remark, " is made"]) | setting.remark},
})

incomplete(settings) := {text.line([kind, " ", setting[kind], " has no ", field]) |
	some setting in settings
	some kind, fields in {"event": ["pod", "message"], "evict": ["reason", "message"], "reject": ["field", "message"]}
	setting[kind]
	some field in fields
	not is_string(object.get(setting, field, null))
}
