package corpus.time_parts

import rego.v1

ns := 1700000000123456789

result := {
	"date": time.date(ns),
	"clock": time.clock([ns, "Europe/Berlin"]),
	"weekday": time.weekday(ns),
	"add": time.add_date(ns, 1, 2, 3),
	"diff": time.diff(ns, 1600000000000000000),
	"parse": time.parse_rfc3339_ns("2023-11-14T22:13:20Z"),
	"parse_layout": time.parse_ns("2006-01-02 15:04", "2023-11-14 22:13"),
	"duration": [time.parse_duration_ns("1h30m"), time.parse_duration_ns("1.5s"), time.parse_duration_ns("-2ms")],
	"format": [time.format(ns), time.format([ns, "UTC", "Mon Jan _2 2006"])],
	"bad": [x | x := time.parse_rfc3339_ns("yesterday")],
}
