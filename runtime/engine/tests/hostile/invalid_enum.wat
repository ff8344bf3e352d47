;; Says a line of a level that does not exist.
;; expect: evaluate: trap: discriminant
(import "qosm:policy/log@0.1.0" "write" (func $write (param i32 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $write (i32.const 77) (i32.const 16) (i32.const 1))
  (i32.const 16))
