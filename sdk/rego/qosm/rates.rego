# METADATA
# title: Samples as rates and shares
# description: |
#   A rate is undefined for a container that has no sample, since it was not read twice, or no limit that the rate is a share of; and at the
#   first evaluation, whose window is 0. A rate needs the grant of its column: `cpu-stat`, `memory-stat`, `pressure`, `node` or
#   `resctrl-monitor`.
package qosm.lib.rates

import data.qosm.lib.units

# METADATA
# description: CPU time that a container used within the window, in thousandths of a CPU.
cpu_milli(container) := per_window(input.cpu[container.id].usageUsec, 1000)

# METADATA
# description: |
#   Percentage of the CFS periods within the window in which a container was throttled. Undefined for an idle container, which has no
#   periods.
throttled_percent(container) := units.percentage(
	input.cpu[container.id].nrThrottled,
	input.cpu[container.id].nrPeriods,
)

# METADATA
# description: Memory in use, in bytes, without page cache that was not used recently; as `kubectl top` shows it.
working_set(container) := max([
	0,
	input.memory[container.id].usageBytes - input.memory[container.id].inactiveFileBytes,
])

# METADATA
# description: The working set as a percentage of the container's memory limit.
working_set_percent(container) := units.percentage(working_set(container), container.memoryLimitBytes)

# METADATA
# description: |
#   Percentage of the window in which some threads of a container waited for a resource: "cpu", "memory" or "io".
some_stalled_percent(container, resource) := per_window(input.pressure[container.id][resource].someUsec, 100)

# METADATA
# description: Percentage of the window in which all threads of a container waited at once for a resource.
full_stalled_percent(container, resource) := per_window(input.pressure[container.id][resource].fullUsec, 100)

# METADATA
# description: Bytes that a container has in the last-level caches of all domains now. Undefined if a domain does not count them.
cache_bytes(container) := sum_of(input.resctrl.containers[container.id], "occupancyBytes")

# METADATA
# description: Bytes per second that a container moves between the caches and any memory. Undefined if a domain does not count them.
memory_bytes_per_second(container) := per_window(sum_of(input.resctrl.containers[container.id], "totalBytes"), 1000 * 1000)

# METADATA
# description: CPU use of the node within the window, in percent of all its CPUs.
node_cpu_percent := units.divide(per_window(input.node.cpuUsageUsec, 100), input.node.cpus)

# METADATA
# description: Rate per second, in thousandths, of a number that was counted within the window.
per_second_milli(number) := per_window(number * 1000, 1000 * 1000)

per_window(number, factor) := units.divide(number * factor, input.tick.windowUsec)

sum_of(usages, field) := sum([usage[field] | some usage in usages]) if {
	count(usages) > 0
	every usage in usages {
		usage[field] >= 0
	}
}
