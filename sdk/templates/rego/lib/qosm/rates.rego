# METADATA
# title: Samples as rates and shares
# description: |
#   Each is undefined for a container without a sample (it needs to be read twice), without what it is a share of (no limit), and at the
#   first evaluation, whose window is 0. Each needs the column's grant: `cpu-stat`, `memory-stat`, `pressure`, `node` or `resctrl-monitor`.
package qosm.lib.rates

import data.qosm.lib.units

# METADATA
# description: Thousandths of a CPU that a container used within the window.
cpu_milli(container) := per_window(input.cpu[container.id].usageUsec, 1000)

# METADATA
# description: |
#   Percentage of the CFS periods within the window in which a container was throttled. No period has passed in one that is idle:
#   undefined.
throttled_percent(container) := units.percentage(
	input.cpu[container.id].nrThrottled,
	input.cpu[container.id].nrPeriods,
)

# METADATA
# description: Memory in use without page cache that was not used lately, in bytes; what `kubectl top` shows.
working_set(container) := max([
	0,
	input.memory[container.id].usageBytes - input.memory[container.id].inactiveFileBytes,
])

# METADATA
# description: That as a percentage of the container's memory limit.
working_set_percent(container) := units.percentage(working_set(container), container.memoryLimitBytes)

# METADATA
# description: |
#   Percentage of the window in which some threads of a container waited for a resource: "cpu", "memory" or "io".
some_stalled_percent(container, resource) := per_window(input.pressure[container.id][resource].someUsec, 100)

# METADATA
# description: The same, where all of them waited at once.
full_stalled_percent(container, resource) := per_window(input.pressure[container.id][resource].fullUsec, 100)

# METADATA
# description: Bytes that a container has in the last-level caches of all domains now. Undefined where one of them does not count it.
cache_bytes(container) := sum_of(input.resctrl.containers[container.id], "occupancyBytes")

# METADATA
# description: Bytes a second that a container moves between the caches and any memory. Undefined where a domain does not count it.
memory_bytes_per_second(container) := per_window(sum_of(input.resctrl.containers[container.id], "totalBytes"), 1000 * 1000)

# METADATA
# description: How busy the node's CPUs were within the window, in percent of all of them.
node_cpu_percent := units.divide(per_window(input.node.cpuUsageUsec, 100), input.node.cpus)

# METADATA
# description: How often a second, in thousandths, something happened that was counted within the window.
per_second_milli(number) := per_window(number * 1000, 1000 * 1000)

per_window(number, factor) := units.divide(number * factor, input.tick.windowUsec)

sum_of(usages, field) := sum([usage[field] | some usage in usages]) if {
	count(usages) > 0
	every usage in usages {
		usage[field] >= 0
	}
}
