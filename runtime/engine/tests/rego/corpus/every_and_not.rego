package corpus.every_and_not

import rego.v1

all_running if every pod in input.pods {
	every container in pod.containers {
		container.state == "running"
	}
}

result := {"all": all_running, "vacuous": vacuous, "none": none}

default vacuous := false

vacuous if every x in data.empty { x > 1 }

default none := "somebody"

none := "nobody" if not named("db")

named(name) if {
	some pod in input.pods
	pod.name == name
}
