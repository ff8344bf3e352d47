;; Divides by zero.
;; expect: evaluate: trap: divide by zero
(func $evaluate (param i64 i32 i32 i32) (result i32) (i32.div_u (i32.const 1) (i32.const 0)))
