;; Returns an error of three megabytes.
;; expect: evaluate: trap: too much data
(memory $memory 400)
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (i32.store (i32.const 4096) (i32.const 1))
  (i32.store (i32.const 4100) (i32.const 65536))
  (i32.store (i32.const 4104) (i32.const 3145728))
  (i32.const 4096))
