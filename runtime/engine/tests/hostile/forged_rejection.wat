;; Rejects a pod that it was never given.
;; expect: pods: rule: it names pod number 7, which it was not given
(func $pods (param i32 i32 i32 i32) (result i32)
  (i32.store (i32.const 4100) (i32.const 4160))
  (i32.store (i32.const 4104) (i32.const 1))
  (i32.store (i32.const 4160) (i32.const 7))
  (i32.const 4096))
