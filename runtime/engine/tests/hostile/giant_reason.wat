;; Gives a reason of half a megabyte, which is cut.
;; expect: evaluate: ok
(import "qosm:policy/cpu-bandwidth@0.1.0" "set-burst" (func $set_burst (param i32 i32 i64 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $set_burst (i32.const 2) (i32.const 10) (i64.const 1) (i32.const 262144) (i32.const 524288))
  (i32.const 16))
