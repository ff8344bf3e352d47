;; Returns a list of four billion rejections.
;; expect: pods: trap:
(func $pods (param i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4100) (i32.const 65536))
  (i32.store (i32.const 4104) (i32.const -1))
  (i32.const 4096))
