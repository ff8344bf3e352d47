;; Gives a reason as long as its memory: more than the host copies for one call.
;; expect: evaluate: trap: too much data
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(memory $memory 400)
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $set_burst (i32.const 2) (i32.const 10) (i64.const 1) (i32.const 65536) (i32.const 26000000))
  (i32.const 16))
