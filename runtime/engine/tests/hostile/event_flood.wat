;; Writes events for ever.
;; expect: evaluate: rule: more than 256 pod events
(import "qosm:policy/pod-event@0.1.0" "emit" (func $emit (param i32 i32 i32 i32 i32 i32)))
(data (i32.const 4096) "Hello")
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (loop $again
    (call $emit (i32.const 1) (i32.const 0) (i32.const 4096) (i32.const 5) (i32.const 4096) (i32.const 5))
    (br $again))
  unreachable)
