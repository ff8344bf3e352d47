;; Saves one byte too many: the host says no, and the module goes on.
;; expect: evaluate: ok
(import "qosm:policy/state@0.1.0" "save" (func $save (param i32 i32 i32)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
  (call $save (i32.const 65536) (i32.const 65537) (i32.const 4096))
  (if (i32.eqz (i32.load8_u (i32.const 4096))) (then unreachable))
  (i32.const 16))
