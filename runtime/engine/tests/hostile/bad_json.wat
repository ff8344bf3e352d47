;; Says that its defaults are `[}`.
;; expect: description: flaw: protocol.defaults: it is not JSON
(func $describe (result i32) (i32.store8 (i32.const 1536) (i32.const 91)) (i32.const 1024))
