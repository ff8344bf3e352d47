;; Never decides.
;; expect: evaluate: timeout: used up
(func $evaluate (param i64 i32 i32 i32) (result i32) (loop $again (br $again)) unreachable)
