;; Returns an error whose text ends outside of its memory.
;; expect: configure: trap: out of bounds
(func $configure (param i32 i32) (result i32)
  (i32.store (i32.const 4096) (i32.const 1))
  (i32.store (i32.const 4100) (i32.const 1048570))
  (i32.store (i32.const 4104) (i32.const 100))
  (i32.const 4096))
