;; Takes memory page by page, and touches it.
;; expect: evaluate: memory: may have 33554432 B
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (loop $again
    (i32.store (i32.mul (i32.sub (memory.size) (i32.const 1)) (i32.const 65536)) (i32.const 1))
    (drop (memory.grow (i32.const 1)))
    (br $again))
  unreachable)
