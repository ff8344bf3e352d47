# METADATA
# title: Whole numbers
# description: |
#   Values of knobs are whole numbers, and `/` returns fractions. These functions round down, and return the same number in `opa eval` as in
#   Wasm. Without a result (a percentage of nothing) they are undefined, and a rule that uses one holds nothing.
package qosm.lib.units

# METADATA
# description: Bytes of a kibibyte (Ki).
kib := 1024

# METADATA
# description: Bytes of a mebibyte (Mi).
mib := 1048576

# METADATA
# description: Bytes of a gibibyte (Gi).
gib := 1073741824

# METADATA
# description: a divided by b, rounded down. Both are whole numbers, a at least 0, b at least 1.
divide(a, b) := (a - (a % b)) / b if b > 0

# METADATA
# description: A percentage of a whole, rounded down.
percent_of(percent, whole) := divide(percent * whole, 100)

# METADATA
# description: A part in percent of the whole, rounded down; undefined if the whole is 0.
percentage(part, whole) := divide(part * 100, whole)

# METADATA
# description: The greatest multiple of a step that is at most a number.
floor_to(number, step) := divide(number, step) * step

# METADATA
# description: A number, or the nearer bound if the number is outside of the bounds.
clamp(number, low, high) := max([low, min([number, high])])

# METADATA
# description: |
#   Bytes of a Kubernetes quantity ("512Mi", "1.5G", "1000"), or of a number. Undefined for other text and for thousandths ("1000m"), which
#   `units.parse_bytes` would read as millions.
bytes(quantity) := floor(quantity) if is_number(quantity)

bytes(quantity) := floor(units.parse_bytes(quantity)) if {
	is_string(quantity)
	not endswith(quantity, "m")
}

# METADATA
# description: Thousandths of a CPU of a Kubernetes quantity ("250m", "2"), or of a number of CPUs, rounded down from whole millionths.
milli_cpu(quantity) := whole_milli(quantity) if is_number(quantity)

milli_cpu(quantity) := whole_milli(units.parse(quantity)) if is_string(quantity)

# Floats hold few thousandths exactly: 1.001 * 1000 is 1000.9999999999999 on a node.
whole_milli(cpus) := divide(round(cpus * 1000000), 1000)
