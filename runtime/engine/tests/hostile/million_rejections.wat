;; Rejects the same pod thirty thousand times.
;; expect: pods: rule: more than 16384 rejections
(func $pods (param i32 i32 i32 i32) (result i32)
  (local $at i32)
  (local.set $at (i32.const 131072))
  (loop $again
    (i32.store (local.get $at) (i32.const 1))
    (local.set $at (i32.add (local.get $at) (i32.const 20)))
    (br_if $again (i32.lt_u (local.get $at) (i32.const 731072))))
  (i32.store (i32.const 4100) (i32.const 131072))
  (i32.store (i32.const 4104) (i32.const 30000))
  (i32.const 4096))
