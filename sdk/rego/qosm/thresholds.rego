# METADATA
# title: Thresholds that do not flap
package qosm.lib.thresholds

# METADATA
# description: |
#   Whether a value is high: it is from `enter` on, and stays so down to `leave`, which is lower. Whether it was high the last time is
#   for the policy to remember: `thresholds.high(value, 90, 80, key in input.state.high)`.
high(value, enter, _, _) if value >= enter

high(value, _, leave, true) if value >= leave
