;; Has a summary of eight megabytes.
;; expect: describe: trap: too much data
(memory $memory 400)
(func $describe (result i32)
  (i32.store (i32.const 1040) (i32.const 65536))
  (i32.store (i32.const 1044) (i32.const 8388608))
  (i32.const 1024))
