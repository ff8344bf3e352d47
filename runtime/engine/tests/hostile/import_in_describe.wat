;; Looks around while it says who it is.
;; expect: describe: rule: it calls `qosm:policy/state@0.1.3#load` while it describes itself
(import "qosm:policy/state@0.1.0" "load" (func $load (param i32)))
(func $describe (result i32) (call $load (i32.const 4096)) (i32.const 1024))
