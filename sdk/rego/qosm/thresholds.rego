# METADATA
# title: Thresholds that do not flap
package qosm.lib.thresholds

# METADATA
# description: |
#   Whether a value is high: from `enter` on, and then down to `leave`, which is lower. The policy has to remember whether the value was
#   high at the previous evaluation: `thresholds.high(value, 90, 80, key in input.state.high)`.
high(value, enter, _, _) if value >= enter

high(value, _, leave, true) if value >= leave
