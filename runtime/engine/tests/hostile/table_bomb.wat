;; Doubles a table for ever.
;; expect: evaluate: memory: elements and may have 20000
(table $table 1 funcref)
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (loop $again
    (drop (table.grow $table (ref.null func) (table.size $table)))
    (br $again))
  unreachable)
