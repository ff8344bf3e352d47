;; Returns an error of a hundred kilobytes: it is cut, and is no crime.
;; expect: evaluate: refused: refused in `evaluate`
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (i32.store (i32.const 4096) (i32.const 1))
  (i32.store (i32.const 4100) (i32.const 524288))
  (i32.store (i32.const 4104) (i32.const 100000))
  (i32.const 4096))
