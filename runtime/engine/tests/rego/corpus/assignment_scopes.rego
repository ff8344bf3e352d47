package corpus.assignment_scopes

import rego.v1

x := 1

inner := [x | some x in [5, 6]]

shadow := y if {
	x := 10
	y := x + 1
}

result := {"outer": x, "inner": inner, "shadow": shadow}
