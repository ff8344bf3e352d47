# METADATA
# title: What people are told
# description: |
#   Events, log lines and rejections. They take place when they come into `settings`, not again while they stay: say them for as long as they
#   are true.
package qosm.lib.report

# METADATA
# description: 'An event for the pod''s owner, for information. The reason is one word in camel case. Needs the grant `pod-event`.'
event(pod, reason, message) := {"event": reason, "pod": pod.id, "type": "Normal", "message": message}

# METADATA
# description: 'An event for the pod''s owner: something should be done.'
warning(pod, reason, message) := {"event": reason, "pod": pod.id, "type": "Warning", "message": message}

# METADATA
# description: 'A line of the policy''s log, at `info`.'
log(message) := {"log": message, "level": "info"}

# METADATA
# description: 'A line of the policy''s log, at `warn`: something is worse than it should be.'
complain(message) := {"log": message, "level": "warn"}

# METADATA
# description: The pod cannot be acted on as configured. Names the field at fault; the message says the way out.
reject(pod, field, message) := {"reject": pod.id, "field": field, "message": message}

# METADATA
# description: |
#   What `input.state` will be at the next evaluation, also after a restart of the agent: an object. Ids do not survive that, see
#   `pods.key`. At most one of these is in `settings`.
remember(state) := {"state": state}
