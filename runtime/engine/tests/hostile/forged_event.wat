;; Writes an event on somebody else's pod.
;; expect: evaluate: rule: it names pod number 2, which it was not given
(import "qosm:policy/pod-event@0.1.0" "emit" (func $emit (param i32 i32 i32 i32 i32 i32)))
(data (i32.const 4096) "Hello")
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $emit (i32.const 2) (i32.const 0) (i32.const 4096) (i32.const 5) (i32.const 4096) (i32.const 5))
  (i32.const 16))
