package corpus.units

import rego.v1

result := {
	"parse": [units.parse("10Ki"), units.parse("5M"), units.parse("100m"), units.parse("0.5"), units.parse("\"2G\"")],
	"bytes": [units.parse_bytes("10KiB"), units.parse_bytes("5MB"), units.parse_bytes("1.5Gi"), units.parse_bytes("7")],
	"bad": [x | x := units.parse_bytes("ten")],
}
