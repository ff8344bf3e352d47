;; Saves all of its memory.
;; expect: evaluate: trap: too much data
(import "qosm:policy/state@0.1.0" "save" (func $save (param i32 i32 i32)))
(memory $memory 400)
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $save (i32.const 0) (i32.const 26000000) (i32.const 4096))
  (i32.const 16))
