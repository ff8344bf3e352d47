package corpus.alarms

import rego.v1

by_container contains alarm.container if {
	some alarm in input.tick.alarms
	alarm.trigger == "throttling"
}

pressed contains alarm.pod if {
	some alarm in input.tick.alarms
	alarm.trigger.pressure.resource == "memory"
}

of_node := [alarm.trigger | some alarm in input.tick.alarms; not alarm.pod; not alarm.container]

result := {"throttled": by_container, "pressed": pressed, "node": of_node}
