;; Returns a result that lies outside of its memory.
;; expect: evaluate: trap: out of bounds
(func $evaluate (param i64 i32 i32 i32) (result i32) (i32.const -16))
