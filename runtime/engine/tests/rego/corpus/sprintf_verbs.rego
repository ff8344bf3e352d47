package corpus.sprintf_verbs

import rego.v1

result := [
	sprintf("%v %v %v %v", ["a", 1, true, null]),
	sprintf("%v", [[1, "b", {"c": 2}]]),
	sprintf("%v", [{1, 2}]),
	sprintf("%d|%5d|%-5d|%05d|%x|%X|%b|%o|%c", [42, 42, 42, 42, 255, 255, 5, 8, 65]),
	sprintf("%s|%10s|%-10s|%q", ["x", "right", "left", "quoted \"x\""]),
	sprintf("%f|%.2f|%8.3f|%e|%g", [1.5, 2.345, 3.14159, 12345.678, 0.0001]),
	sprintf("%t|%t", [true, false]),
	sprintf("%%|%v%%", [50]),
	sprintf("%d", ["not a number"]),
	sprintf("%s", [7]),
	sprintf("%d %d", [1]),
	sprintf("%d", [1, 2]),
	sprintf("no verbs", []),
	sprintf("%v", [1.5]),
	sprintf("%d", [12345678901234567890]),
]
