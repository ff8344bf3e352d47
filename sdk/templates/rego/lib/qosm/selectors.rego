# METADATA
# title: Choosing pods
# description: Kubernetes' label selectors, and selectors of pods by namespace, labels and class for the policy's own configuration.
package qosm.lib.selectors

# METADATA
# description: |
#   Whether a selector chooses a pod. It may have `namespaces` (a list), `labels` (a label selector) and `classes` (QoS classes), and the
#   pod has to match all that it has. A selector with none of them chooses no pod: an empty configuration must not affect a whole node.
chooses(selector, pod) if {
	count(said(selector)) > 0
	every part in said(selector) {
		fits(part, selector[part], pod)
	}
}

said(selector) := {part | some part in ["namespaces", "labels", "classes"]; selector[part]}

fits("namespaces", namespaces, pod) if pod.namespace in namespaces

fits("labels", selector, pod) if matches(selector, pod.labels)

fits("classes", classes, pod) if pod.qos in classes

# METADATA
# description: |
#   Whether labels match a Kubernetes label selector with `matchLabels` and `matchExpressions` (In, NotIn, Exists, DoesNotExist). An empty
#   selector matches all.
matches(selector, labels) if {
	every key, value in object.get(selector, "matchLabels", {}) {
		labels[key] == value
	}
	every expression in object.get(selector, "matchExpressions", []) {
		holds(expression.operator, expression.key, object.get(expression, "values", []), labels)
	}
}

holds("In", key, values, labels) if has(labels, key, values)

holds("NotIn", key, values, labels) if not has(labels, key, values)

holds("Exists", key, _, labels) if key in object.keys(labels)

holds("DoesNotExist", key, _, labels) if not key in object.keys(labels)

# A separate rule: `not labels[key] in values` is undefined if the label is missing, since arguments are looked up before the `not`.
has(labels, key, values) if labels[key] in values
