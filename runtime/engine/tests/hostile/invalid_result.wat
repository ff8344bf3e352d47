;; Returns a result that is neither `ok` nor `err`.
;; expect: evaluate: trap: discriminant
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (i32.store8 (i32.const 4096) (i32.const 9))
  (i32.const 4096))
