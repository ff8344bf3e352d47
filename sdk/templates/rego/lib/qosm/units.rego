# METADATA
# title: Whole numbers
# description: |
#   Every value of a knob is a whole number. `/` makes fractions, so these divide downwards, and give the same number in `opa eval` as in
#   Wasm. What has no answer (a percentage of nothing) is undefined: whoever holds a knob by it holds nothing.
package qosm.lib.units

kib := 1024

mib := 1048576

gib := 1073741824

# METADATA
# description: a divided by b, rounded downwards. Both are whole numbers from 0 on, b is at least 1.
divide(a, b) := (a - (a % b)) / b if b > 0

# METADATA
# description: So many percent of a whole, rounded downwards.
percent_of(percent, whole) := divide(percent * whole, 100)

# METADATA
# description: How many percent of the whole a part is, rounded downwards; undefined where the whole is 0.
percentage(part, whole) := divide(part * 100, whole)

# METADATA
# description: The greatest multiple of a step that is not above a number.
floor_to(number, step) := divide(number, step) * step

# METADATA
# description: A number, or the nearest of two bounds where it is beyond them.
clamp(number, low, high) := max([low, min([number, high])])

# METADATA
# description: |
#   Bytes of a Kubernetes quantity ("512Mi", "1.5G", "1000"), or of a number as it is. Undefined for what is none, and for thousandths
#   ("1000m"), which `units.parse_bytes` takes for millions.
bytes(quantity) := floor(quantity) if is_number(quantity)

bytes(quantity) := floor(units.parse_bytes(quantity)) if {
	is_string(quantity)
	not endswith(quantity, "m")
}

# METADATA
# description: Thousandths of a CPU of a Kubernetes quantity ("250m", "2"), or of a number of CPUs.
milli_cpu(quantity) := floor(quantity * 1000) if is_number(quantity)

milli_cpu(quantity) := floor(units.parse(quantity) * 1000) if is_string(quantity)
