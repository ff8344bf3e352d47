;; Writes an event that Kubernetes would refuse.
;; expect: evaluate: rule: `not one word` is not the reason of an event
(import "qosm:policy/pod-event@0.1.0" "emit" (func $emit (param i32 i32 i32 i32 i32 i32)))
(data (i32.const 4096) "not one word")
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $emit (i32.const 1) (i32.const 0) (i32.const 4096) (i32.const 12) (i32.const 4096) (i32.const 5))
  (i32.const 16))
