;; Returns a result at an odd address.
;; expect: evaluate: trap: not aligned
(func $evaluate (param i64 i32 i32 i32) (result i32) (i32.const 17))
