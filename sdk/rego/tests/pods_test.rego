package qosm.lib.pods_test

import data.qosm.lib.pods
import data.qosm.lib.testing

web := testing.pod("default/web", [testing.container("app", {}), testing.container("job", {"state": "terminated"})], {})

asked := testing.pod("default/asked", [], {"config": {"percent": 5}})

ended := testing.pod("default/ended", [], {"active": false, "config": {"percent": 5}})

names(list) := {pod.name | some pod in list}

test_ended_pods_are_not_active if {
	names(pods.active) == {"web", "asked"} with input as testing.document([web, asked, ended], {})
}

test_only_active_pods_with_configuration_are_configured if {
	names(pods.configured) == {"asked"} with input as testing.document([web, asked, ended], {})
}

test_only_running_containers_run if {
	[container.name | some container in pods.running(web)] == ["app"]
}

test_a_container_is_remembered_by_what_survives_a_restart if {
	pods.key(web, web.containers[0]) == "uid-of-default/web/app"
}
