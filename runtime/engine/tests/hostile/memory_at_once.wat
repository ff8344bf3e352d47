;; Wants 4 GiB in one step.
;; expect: evaluate: memory: may have 33554432 B
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (drop (memory.grow (i32.const 65500)))
  (i32.const 16))
