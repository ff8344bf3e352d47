;; Calls itself `../../x`.
;; expect: description: flaw: name: `../../x` is not a name
(data (i32.const 4096) "../../x")
(func $describe (result i32)
  (i32.store (i32.const 1024) (i32.const 4096))
  (i32.store (i32.const 1028) (i32.const 7))
  (i32.const 1024))
