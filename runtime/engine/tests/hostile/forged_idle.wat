;; Wants another's container to be idle.
;; expect: evaluate: rule: it names container number 12, which it was not given
(import "qosm:policy/cpu-weight@0.1.0" "set-idle" (func $set_idle (param i32 i32 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $set_idle (i32.const 10) (i32.const 1) (i32.const 0) (i32.const 0))
  (call $set_idle (i32.const 12) (i32.const 1) (i32.const 0) (i32.const 0))
  (i32.const 16))
