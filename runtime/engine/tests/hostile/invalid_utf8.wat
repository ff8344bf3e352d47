;; Gives a reason that is no text.
;; expect: evaluate: trap: utf-8
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(data (i32.const 4096) "\ff\fe\c0")
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $set_burst (i32.const 2) (i32.const 10) (i64.const 1) (i32.const 4096) (i32.const 3))
  (i32.const 16))
