# METADATA
# title: Reasons and messages
# description: '`sprintf` prints `%!d(float64=3)` for a computed number, and `concat` accepts no numbers. These functions accept both.'
package qosm.lib.text

import data.qosm.lib.units

# METADATA
# description: Strings, numbers and other values, joined without a separator.
line(parts) := concat("", [word(part) | some part in parts])

# METADATA
# description: A string unchanged, any other value as JSON.
word(part) := part if is_string(part)

word(part) := json.marshal(part) if not is_string(part)

# METADATA
# description: The pod's `namespace/name`.
name(pod) := concat("/", [pod.namespace, pod.name])

# METADATA
# description: 'A number of bytes for people, with at most one decimal, rounded down: "512 KiB", "1.5 GiB".'
bytes(number) := tenths(number, units.gib, " GiB") if number >= units.gib

bytes(number) := tenths(number, units.mib, " MiB") if {
	number < units.gib
	number >= units.mib
}

bytes(number) := tenths(number, units.kib, " KiB") if {
	number < units.mib
	number >= units.kib
}

bytes(number) := line([number, " B"]) if number < units.kib

# METADATA
# description: 'Thousandths of a CPU for people: "0.25 CPUs", "2 CPUs".'
cpus(milli) := line([units.divide(milli, 1000), decimals(milli % 1000, 3), " CPUs"])

tenths(number, unit, name_of_unit) := line([
	units.divide(number, unit),
	decimals(units.divide((number % unit) * 10, unit), 1),
	name_of_unit,
])

decimals(0, _) := ""

decimals(fraction, digits) := concat("", [".", trim_right(padded, "0")]) if {
	fraction > 0
	printed := format_int(fraction, 10)
	padded := concat("", [substring("000", 0, digits - count(printed)), printed])
}
