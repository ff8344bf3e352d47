# METADATA
# title: Events, log lines and rejections
# description: They take effect when they enter `settings`, not again while they stay. A policy declares them for as long as they are true.
package qosm.lib.report

# METADATA
# description: An event for the pod's owner, for information. The reason is one word in CamelCase. Needs the grant `pod-event`.
event(pod, reason, message) := {"event": reason, "pod": pod.id, "type": "Normal", "message": message}

# METADATA
# description: An event for the pod's owner, who should act. The reason is one word in CamelCase. Needs the grant `pod-event`.
warning(pod, reason, message) := {"event": reason, "pod": pod.id, "type": "Warning", "message": message}

# METADATA
# description: 'A line of the policy''s log, at `info`.'
log(message) := {"log": message, "level": "info"}

# METADATA
# description: 'A line of the policy''s log, at `warn`: something is worse than intended.'
complain(message) := {"log": message, "level": "warn"}

# METADATA
# description: Rejects a pod whose configuration the policy cannot apply. Names the invalid field; the message says how to correct it.
reject(pod, field, message) := {"reject": pod.id, "field": field, "message": message}

# METADATA
# description: |
#   The value of `input.state` at the next evaluation, also after a restart of the agent: an object. Ids are not valid after a restart; see
#   `pods.key`. `settings` may contain at most one of these.
remember(state) := {"state": state}
