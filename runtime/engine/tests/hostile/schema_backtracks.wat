;; Its schema has a pattern that takes exponential time where look-around is known.
;; expect: description: flaw: protocol.schema: the pattern
(data (i32.const 4096) "{\22properties\22: {\22x\22: {\22pattern\22: \22^(?=(a+)+$)\5c\5cw+$\22}}}")
(func $describe (result i32)
  (i32.store (i32.const 1112) (i32.const 4096))
  (i32.store (i32.const 1116) (i32.const 54))
  (i32.const 1024))
