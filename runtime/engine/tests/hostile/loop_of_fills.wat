;; Fills all of its memory for ever: no check of the epoch inside of one fill.
;; expect: evaluate: timeout: used up
(memory $memory 480)
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (loop $again
    (memory.fill (i32.const 65536) (i32.const 1) (i32.const 31000000))
    (br $again))
  unreachable)
